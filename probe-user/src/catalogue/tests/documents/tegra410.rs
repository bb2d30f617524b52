//! The Tegra410 document.

use super::metric;

#[test]
fn the_printed_bdf_contradicts_its_formula() {
    let bdf = |bus: u32, device: u32, function: u32| (bus << 8) + (device << 3) + function;
    // The page gives the formula and then 0x2781 for 27:01.1, which would be device << 7: the
    // formula is right.
    assert_eq!(bdf(0x27, 1, 1), 0x2709);
    assert_ne!(bdf(0x27, 1, 1), 0x2781);
    // Its example command makes the same slip for 01:01.0: src_bdf=0x0180 selects 01:10.0.
    assert_eq!(bdf(1, 1, 0), 0x0108);
    assert_eq!(bdf(1, 0x10, 0), 0x0180);
    let help = metric("tegra410-pcie", "pcie_rc_read_bandwidth").help();
    assert!(help.contains("27:01.1 is 0x2709"));
}

#[test]
fn root_port_masks_have_a_bit_for_each_port() {
    let mask = |ports: std::ops::Range<u32>| ports.fold(0_u64, |mask, port| mask | 1 << port);
    assert_eq!(mask(0..4), 0xF);
    // All eight: the default filter.
    assert_eq!(mask(0..8), 0xFF);
    let defaults = &metric("tegra410-pcie", "pcie_rc_read_bandwidth")
        .pmu
        .defaults;
    assert_eq!(defaults["src_rp_mask"], 0xFF);
}

#[test]
fn the_example_of_the_address_filter_matches_more_than_its_range() {
    let matches = |address: u64, base: u64, mask: u64| address & mask == base & mask;
    let (base, mask) = (0x10000, 0xF_FF00);
    for address in 0x10000..=0x100FF {
        assert!(matches(address, base, mask));
    }
    assert!(!matches(0xFFFF, base, mask) && !matches(0x10100, base, mask));
    // The page says that the filter is for 0x10000 to 0x100FF; its mask leaves bits 20 to 63 free,
    // so every address 1 MiB further matches too. The exact mask has all upper bits.
    let exact = 0xFFFF_FFFF_FFFF_FF00;
    assert!(matches(0x11_0000, base, mask));
    assert!(!matches(0x11_0000, base, exact) && matches(0x100FF, base, exact));
    let help = metric("tegra410-pcie-tgt", "pcie_tgt_read_bandwidth").help();
    assert!(help.contains("0xFFFFFFFFFFFFFF00"));
}
