//! The paper on SPE, and the blog on stalls and bandwidth.

use std::time::Duration;

use probe_common::spe::{Records, VirtualAddress};

use super::{CATALOGUE, Chip, Hardware, MetricCounts, metric, near, pmus, value};
use crate::formula::{Formula, Implicit};

#[test]
fn sampling_configuration_has_lost_a_zero() {
    // The paper writes config 0x60000001 for loads and stores with time stamps. The bits are
    // ts_enable 0, load_filter 33, store_filter 34: 0x600000001, one zero more. The paper's "bits
    // of 2 and 4" are the values of bits 33 and 34 in their hexadecimal digit.
    let config: u64 = 1 | 1 << 33 | 1 << 34;
    assert_eq!(config, 0x6_0000_0001);
    assert_ne!(config, 0x6000_0001);
}

#[test]
fn an_altra_max_is_no_neoverse_v1() {
    // Table II says 3.0 Hz and the text Neoverse V1. The Ampere Altra Max is Neoverse N1 at
    // 3.0 GHz, so it has no family here but the generic one and that of SPE.
    let mut machine = Hardware::of_chip(Chip::named("other").unwrap());
    machine.midr = Some(0x410f_d0c0);
    let families: Vec<_> = CATALOGUE
        .on(&machine)
        .iter()
        .map(|metric| metric.family.name.clone())
        .collect();
    let expected = ["generic", "arm-spe"];
    assert!(
        families
            .iter()
            .all(|family| expected.contains(&family.as_str()))
    );
}

#[test]
fn memory_sizes_of_the_spe_paper_are_consistent() {
    // Peaks of two benchmarks in 256 GiB: 32 cores with 8 GiB each.
    let percent = |peak: f64| 100.0 * peak / (32.0 * 8.0);
    near(percent(52.3), 20.4, 0.05);
    near(percent(123.8), 48.4, 0.05);
    // The "16 pages" of the AUX buffer have 64 KiB each: 1 MiB in all. 32 pages are 2 MiB, and the
    // minimum is 4 pages.
    let pages = |pages: u64| pages * 64 * 1024;
    assert_eq!(
        [pages(16), pages(32), pages(4)],
        [1 << 20, 2 << 20, 256 << 10]
    );
    // "About 0.2 GiB": 16 AUX and 9 ring pages for each of 128 cores; AUX alone is 0.125 GiB.
    let gibibytes = |pages_per_core: f64| pages_per_core * 64.0 * 128.0 / 1024.0 / 1024.0;
    near(gibibytes(16.0 + 9.0), 0.195, 0.0005);
    near(gibibytes(16.0), 0.125, 1e-12);
}

#[test]
fn addresses_and_times_follow_their_headers() {
    // The headers 0xb2 and 0x71 are at bytes 30 and 55 of a record, their payloads at 31 and 56.
    let mut record = [0_u8; 64];
    record[30] = 0xb2;
    record[31..39].copy_from_slice(&0x00aa_bbcc_ddee_ff11_u64.to_le_bytes());
    record[55] = 0x71;
    record[56..].copy_from_slice(&77_u64.to_le_bytes());
    let record = Records::new(&record).next().unwrap().unwrap();
    let address = record.virtual_address().map(VirtualAddress::raw);
    assert_eq!(address, Some(0x00aa_bbcc_ddee_ff11));
    assert_eq!(record.timestamp(), Some(77));
}

#[test]
fn the_numbers_of_the_blog_are_consistent() {
    // Entries of a TLB, the size of a page in KiB, and the reach in KiB.
    for (entries, page, reach) in [
        (512, 4, 2 << 10),
        (32, 2 << 10, 64 << 10),
        (64, 4, 256),
        (64, 2 << 10, 128 << 10),
        // "Most can map at least 64 MiB with large pages": not the Xeon Phi's first level.
        (8, 2 << 10, 16 << 10),
    ] {
        assert_eq!(entries * page, reach);
    }
    // STREAM's arrays have 64,000,000 elements of 8 bytes. Arrays of a kernel, its MB/s, and its
    // minimum time in seconds.
    for (arrays, megabytes, seconds) in [
        (2.0, 169_446.8, 0.0060),
        (2.0, 169_173.1, 0.0061),
        (3.0, 174_824.3, 0.0088),
        (3.0, 174_663.2, 0.0088),
    ] {
        near(arrays * 8.0 * 64e6 / (megabytes * 1e6), seconds, 0.000_05);
    }
    // Banks of GDDR5: clamshell mode halves them, lockstep again.
    assert_eq!([32 * 16, 32 * 16 / 2, 32 * 16 / 2 / 2], [512, 256, 128]);
}

#[test]
fn bytes_in_flight_are_bandwidth_times_latency() {
    let formula = Formula::parse("bandwidth * latency").unwrap();
    let mut counts = MetricCounts::for_cpus(Duration::ZERO);
    counts.add("bandwidth", 175, 1, 1);
    counts.add("latency", 275, 1, 1);
    // GB/s times ns are bytes. The author rounds 751.95 lines up to 768, 96 for each of 8
    // controllers.
    let bytes = formula.evaluate(&counts).unwrap().value;
    assert_eq!(bytes, 48_125.0);
    near(bytes / 64.0, 751.95, 0.005);
    assert_eq!(768 / 8, 64 + 32);
    // The same by counts: in 1,000 ns, 175,000 bytes, each request waiting for 275 cycles of 1 ns.
    let counts = [
        ("RD_REQ", 175_000 / 32),
        ("RD_CUM_OUTS", 275 * (175_000 / 32)),
        ("CYCLES", 1_000),
    ];
    let value = value(
        Chip::named("tegra410").unwrap(),
        "tegra410-cmem-latency",
        "cmem_read_bytes_in_flight",
        1_000.0,
        &counts,
    );
    near(value.unwrap(), 48_125.0, 32.0);
}

#[test]
fn memory_stalls_are_the_larger_of_two() {
    let share = |pending, buffers| {
        let counts = [
            ("CYCLE_ACTIVITY.STALL_CYCLES_L2_PENDING", pending),
            ("RESOURCE_STALLS.SB", buffers),
            ("CPU_CLK_UNHALTED.THREAD", 1_000),
        ];
        value(
            Chip::named("sandy-bridge").unwrap(),
            "intel-snb-stalls",
            "memory_stall_share",
            1.0,
            &counts,
        )
        .unwrap()
    };
    // Allocating stores show as pending misses, streaming stores as full buffers. The metric is the
    // larger of the two shares, not their sum.
    assert_eq!(share(830, 200), 83.0);
    assert_eq!(share(300, 910), 91.0);
}

/// Apart from the bits that perf replaces (USR, OS, EN).
#[test]
fn encodings_of_sandy_bridge_are_the_raw_codes_of_the_blog() {
    let pmus = pmus("spr");
    let pmu = &metric("intel-snb-stalls", "memory_stall_share").pmu;
    const PERF_KEEPS: u64 = !(1 << 16 | 1 << 17 | 1 << 22);
    for (event, raw) in [
        ("UOPS_ISSUED.STALL_CYCLES", 0x01c3_010e_u64),
        ("RESOURCE_STALLS.ANY", 0x01a2),
        ("CYCLE_ACTIVITY.CYCLES_NO_DISPATCH", 0x0443_04a3),
        ("UOPS_DISPATCHED.STALL_CYCLES_CORE", 0x01c3_02b1),
        ("CYCLE_ACTIVITY.STALL_CYCLES_L2_PENDING", 0x0543_05a3),
        ("RESOURCE_STALLS.SB", 0x08a2),
    ] {
        let text = pmu.events[event].perf.replace("{pmu}", "cpu");
        let groups = crate::event::parse(&text, &pmus).unwrap();
        let crate::event::Source::Counter(counter) = &groups[0].events[0].source else {
            panic!("{event} is no counter")
        };
        assert_eq!(counter.config, raw & PERF_KEEPS, "{event}");
    }
}

#[test]
fn num_units_is_needed_where_clockticks_are_added_up() {
    let metric = metric("intel-spr", "io_read_tor_latency");
    assert!(metric.formula.implicits().contains(&Implicit::NumUnits));
}
