//! Filters in event syntax: addresses, ranges, and combinations that exclude each other.

use proptest::prelude::*;

use super::{Counter, machine, parse};

fn counter(text: &str) -> Counter {
    super::counter(text, &machine("vera"))
}

fn refused(text: &str) -> String {
    super::refusal(text, &machine("vera"))
}

#[test]
fn a_device_address_is_encoded_and_enabled() {
    // `src_bdf` is in bits 8 to 23 of config1, and `src_bdf_en` in bit 24.
    let filtered = counter("nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=27:01.1/");
    assert_eq!(
        (filtered.config, filtered.config1),
        (0, 0x2709 << 8 | 1 << 24)
    );
    let with_domain = counter("nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=0005:27:01.1,src_bdf_en=1/");
    assert_eq!(with_domain.config1, filtered.config1);
    // A number is not converted.
    let number = counter("nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=0x2709,src_bdf_en/");
    assert_eq!(number.config1, filtered.config1);
    assert_eq!(
        refused("nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=27:01.9/"),
        "the filter src_bdf=27:01.9 of `nvidia_pcie_pmu_0_rc_4` cannot be used: a PCI address is \
         bus:device.function in hexadecimal, such as 27:01.1, or with a domain before it"
    );
}

#[test]
fn a_filter_that_is_not_turned_on_is_refused() {
    assert_eq!(
        refused("nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=0x2709/"),
        "the filter src_bdf=0x2709 of `nvidia_pcie_pmu_0_rc_4` cannot be used: it does nothing \
         unless it is turned on; add src_bdf_en=1"
    );
    let refusal = refused("nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=27:01.1,src_bdf_en=0/");
    assert!(refusal.ends_with("add src_bdf_en=1"), "{refusal}");
    for term in ["dst_addr_base=0x10000", "dst_addr_mask=0xfff00"] {
        let refusal = refused(&format!("nvidia_pcie_tgt_pmu_0_rc_1/wr_bytes,{term}/"));
        assert!(refusal.ends_with("add dst_addr_en=1"), "{refusal}");
    }
}

#[test]
fn a_range_of_addresses_becomes_an_exact_mask() {
    let filtered = counter("nvidia_pcie_tgt_pmu_0_rc_1/wr_bytes,dst_addr=0x10000-0x100FF/");
    assert_eq!(filtered.config, 1 | 1 << 11);
    assert_eq!(
        (filtered.config1, filtered.config2),
        (0x10000, 0xffff_ffff_ffff_ff00)
    );
    let refused = |range: &str| {
        refused(&format!(
            "nvidia_pcie_tgt_pmu_0_rc_1/wr_bytes,dst_addr={range}/"
        ))
    };
    assert_eq!(
        refused("0x10000-0x101FE"),
        "the filter dst_addr=0x10000-0x101FE of `nvidia_pcie_tgt_pmu_0_rc_1` cannot be used: the \
         hardware compares by a mask, so a range must be a power of two long and begin at a \
         multiple of its length; 0x10000-0x101ff is the smallest that holds this one"
    );
    assert!(refused("0x10080-0x1017f").contains("0x10000-0x101ff"));
    assert!(refused("5-4").contains("backwards"));
    assert!(refused("0x10000").contains("first and the last address"));
    assert!(refused("0x10000-").contains("first and the last address"));
}

#[test]
fn one_root_complex_has_one_source_filter() {
    assert_eq!(
        refused("nvidia_pcie_pmu_0_rc_4/rd_bytes,src_rp_mask=1,src_bdf=27:01.1/"),
        "`nvidia_pcie_pmu_0_rc_4/rd_bytes,src_rp_mask=1,src_bdf=27:01.1/` selects by root port and \
         by device address, and the hardware does either; leave out src_rp_mask or src_bdf"
    );
    assert!(
        refused("nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=27:01.1/,nvidia_pcie_pmu_0_rc_4/wr_bytes,src_bdf=28:00.0/")
            .contains("has one filter by device address")
    );
    assert!(
        refused("nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=27:01.1/,nvidia_pcie_pmu_0_rc_4/wr_bytes,src_rp_mask=1/")
            .contains("would narrow")
    );
    assert!(
        refused(
            "nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=27:01.1/,nvidia_pcie_pmu_0_rc_4/wr_bytes/"
        )
        .contains("would narrow")
    );
    let accepted = [
        "nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=27:01.1/,nvidia_pcie_pmu_0_rc_4/wr_bytes,src_bdf=27:01.1/",
        "nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=27:01.1/,nvidia_pcie_pmu_0_rc_4/cycles/",
        "nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=27:01.1/,nvidia_pcie_pmu_0_rc_1/wr_bytes,src_bdf=28:00.0/",
        "nvidia_pcie_pmu_0_rc_4/rd_bytes,src_rp_mask=1/,nvidia_pcie_pmu_0_rc_4/rd_bytes,src_rp_mask=2/",
    ];
    for text in accepted {
        parse(text, &machine("vera")).unwrap();
    }
}

#[test]
fn a_ninth_range_is_refused() {
    let list = |ranges: u64| -> String {
        let event = |n: u64| {
            let base = n << 12;
            format!(
                "nvidia_pcie_tgt_pmu_0_rc_0/rd_req,dst_addr={base:#x}-{:#x}/",
                base | 0xfff
            )
        };
        (0..ranges).map(event).collect::<Vec<_>>().join(",")
    };
    parse(&list(8), &machine("vera")).unwrap();
    assert!(refused(&list(9)).contains("9 address ranges"));
}

#[test]
fn sources_and_destinations_of_the_fabric_are_encoded() {
    let filtered = counter("nvidia_ucf_pmu_0/event=0x0,src_loc_cpu=0x1,dst_loc_cmem=0x1/");
    assert_eq!(filtered.config1, 0x102);
    assert_eq!(
        counter("nvidia_ucf_pmu_1/mem_bytes_rd,src_loc_noncpu,dst_rem/").config1,
        0x801
    );
}

proptest! {
    #[test]
    fn the_mask_matches_exactly_the_range(
        bits in 0_u32..40,
        multiple in 0_u64..1 << 20,
        other: u64,
    ) {
        let base = multiple << bits;
        let end = base + ((1 << bits) - 1);
        let range = format!("dst_addr={base:#x}-{end:#x}");
        let filtered = counter(&format!("nvidia_pcie_tgt_pmu_0_rc_1/rd_req,{range}/"));
        let (value, mask) = (filtered.config1, filtered.config2);
        let passes = |address: u64| address & mask == value & mask;
        prop_assert!(passes(base) && passes(end));
        prop_assert_eq!(passes(other), (base..=end).contains(&other));
        prop_assert!(!passes(end.wrapping_add(1)));
        prop_assert!(!passes(base.wrapping_sub(1)));
    }

    #[test]
    fn no_range_panics(text in "[0-9a-fx-]{0,40}") {
        let event = format!("nvidia_pcie_tgt_pmu_0_rc_1/rd_req,dst_addr={text}/");
        let _ = parse(&event, &machine("vera"));
    }
}
