//! NVIDIA's Grace Performance Tuning Guide.

use super::{Chip, metric, near, value};

fn scf(name: &str, nanos: f64, counts: &[(&str, u64)]) -> f64 {
    value(
        Chip::named("grace-cpu-superchip").unwrap(),
        "nvidia-grace-scf",
        name,
        nanos,
        counts,
    )
    .unwrap()
}

/// Bytes of a bandwidth: in 1 ns, GB/s are bytes.
fn bytes(name: &str, event: &str, count: u64) -> f64 {
    scf(name, 1.0, &[(event, count)])
}

#[test]
fn a_beat_is_32_bytes() {
    for (beats, printed) in [(35_572_420, 1_138_317_440.0), (33_542_984, 1_073_375_488.0)] {
        assert_eq!(bytes("cmem_read_bandwidth", "CMEM_RD_DATA", beats), printed);
    }
    assert_eq!(
        bytes("remote_read_bandwidth", "REMOTE_SOCKET_RD_DATA", 36_189_087),
        1_158_050_784.0
    );
}

/// What perf and dd print of the same six runs.
#[test]
fn durations_and_rates_of_the_examples_are_consistent() {
    let gigabyte = 1_073_741_824.0;
    // perf's elapsed seconds and its duration_time, dd's seconds, and the rate that dd prints.
    for (elapsed, nanos, seconds, printed, half_a_unit) in [
        (0.127_496_157, None, 0.125_672, 8.5, 0.05),
        (0.088_826_372, Some(88_826_372.0), 0.087_273_1, 12.3, 0.05),
        (0.172_847_464, Some(172_847_464.0), 0.171_349, 6.3, 0.05),
        (0.134_526_031, Some(134_526_031.0), 0.133_185, 8.1, 0.05),
        (
            1.966_391_711,
            Some(1_966_391_711.0),
            1.964_63,
            0.547,
            0.000_5,
        ),
        (0.735_201_612, Some(735_201_612.0), 0.733_73, 1.5, 0.05),
    ] {
        // The first duration_time lost a digit, see `the_duration_of_the_local_write_lost_a_digit`.
        if let Some(nanos) = nanos {
            let counts = [("RD_BYTES_LOC", 1_073_741_824), ("RD_BYTES_REM", 0)];
            let bandwidth = |nanos| {
                let chip = Chip::named("grace-cpu-superchip").unwrap();
                value(
                    chip,
                    "nvidia-grace-pcie",
                    "pcie_read_bandwidth",
                    nanos,
                    &counts,
                )
            };
            near(
                bandwidth(nanos).unwrap(),
                bandwidth(elapsed * 1e9).unwrap(),
                1e-9,
            );
        }
        near(gigabyte / seconds / 1e9, printed, half_a_unit);
        // dd ends before its process does.
        assert!(seconds < elapsed);
    }
}

#[test]
fn the_duration_of_the_local_write_lost_a_digit() {
    let counts = [("CMEM_WR_TOTAL_BYTES", 1_009_299_148)];
    // The page prints duration_time 27,496,157 ns beside 0.127496157 s elapsed: the leading 1 is
    // lost. With the printed duration_time, the write would have 36.7 GB/s, but dd saw 8.5: elapsed
    // is right.
    let (printed, elapsed) = (27_496_157.0, 127_496_157.0);
    near(scf("cmem_write_bandwidth", elapsed, &counts), 7.916, 0.0005);
    near(
        scf("cmem_write_bandwidth", printed, &counts),
        36.707,
        0.0005,
    );
}

#[test]
fn local_read_and_remote_bandwidths_are_those_of_the_examples() {
    let local = scf(
        "cmem_read_bandwidth",
        88_826_372.0,
        &[("CMEM_RD_DATA", 35_572_420)],
    );
    near(local, 12.815, 0.0005);
    let nanos = 172_847_464.0;
    let source = scf(
        "remote_write_bandwidth",
        nanos,
        &[("REMOTE_SOCKET_WR_TOTAL_BYTES", 961_728_219)],
    );
    let target = scf(
        "cmem_write_bandwidth",
        nanos,
        &[("CMEM_WR_TOTAL_BYTES", 993_278_696)],
    );
    near(source, 5.564, 0.0005);
    near(target, 5.747, 0.0005);
    near(source / target, 0.9682, 0.00005);
    let nanos = 134_526_031.0;
    let source = scf(
        "remote_read_bandwidth",
        nanos,
        &[("REMOTE_SOCKET_RD_DATA", 36_189_087)],
    );
    let target = scf(
        "cmem_read_bandwidth",
        nanos,
        &[("CMEM_RD_DATA", 33_542_984)],
    );
    near(source, 8.608, 0.0005);
    near(target, 7.979, 0.0005);
    // The source counts 7.9% more than the destination, so neither count can replace the other.
    near(source / target, 1.0789, 0.00005);
}

#[test]
fn scf_values_are_those_of_the_first_example() {
    let counts = [
        ("CYCLES", 10_515_321),
        ("CMEM_WB_ACCESS", 191_567),
        ("CMEM_WR_ACCESS", 0),
    ];
    let nanos = 168_225_760.0;
    // 62.5 MHz is implausible for the fabric, but it is what the page prints: values have no
    // plausibility bound.
    near(scf("scf_frequency", nanos, &counts), 0.06251, 0.000_005);
    near(
        scf("cmem_write_utilization", nanos, &counts),
        0.2277,
        0.00005,
    );
    assert_eq!(scf("scf_duration", nanos, &counts), nanos);
    assert_eq!(scf("scf_cycles", nanos, &counts), 10_515_321.0);
    let line = metric("nvidia-grace-scf", "cmem_write_utilization")
        .pmu
        .events["CMEM_WB_ACCESS"]
        .count;
    assert_eq!(191_567 * line.bytes().unwrap(), 12_260_288);
}

#[test]
fn pcie_bandwidths_are_those_of_the_examples() {
    let read = |nanos, local, remote| {
        let counts = [("RD_BYTES_LOC", local), ("RD_BYTES_REM", remote)];
        value(
            Chip::named("grace-cpu-superchip").unwrap(),
            "nvidia-grace-pcie",
            "pcie_read_bandwidth",
            nanos,
            &counts,
        )
        .unwrap()
    };
    near(read(1_966_391_711.0, 1_168_472_064, 0), 0.5942, 0.00005);
    near(read(735_201_612.0, 0, 1_073_762_304), 1.4605, 0.00005);
    // The same reads at both ends: PCIe of socket 1, NVLink-C2C0 of socket 0.
    let c2c0 = value(
        Chip::named("grace-cpu-superchip").unwrap(),
        "nvidia-grace-nvlink-c2c0",
        "c2c0_read_bandwidth",
        735_201_612.0,
        &[("RD_BYTES_LOC", 1_074_057_216)],
    );
    near(
        c2c0.unwrap() / read(735_201_612.0, 0, 1_073_762_304),
        1.000_275,
        5e-7,
    );
}

#[test]
fn root_port_masks_have_a_bit_for_each_port() {
    let ports = |ports: &[u32]| ports.iter().fold(0_u64, |mask, port| mask | 1 << port);
    assert_eq!(ports(&[8]), 0x100);
    assert_eq!(ports(&[0, 1]), 0x3);
    assert_eq!(ports(&[2]), 0x4);
    assert_eq!(ports(&[0, 1, 2, 3]), 0xf);
    let all = metric("nvidia-grace-pcie", "pcie_frequency").pmu.defaults["root_port"];
    assert_eq!(all, ports(&(0..10).collect::<Vec<_>>()));
}

#[test]
fn c2c_reads_and_writes_make_the_total() {
    for (family, name, read, write, total) in [
        (
            "nvidia-grace-nvlink-c2c0",
            "c2c0_bandwidth",
            208_418_816,
            4_026_531_840,
            4_234_950_656.0,
        ),
        (
            "nvidia-grace-nvlink-c2c1",
            "c2c1_bandwidth",
            6_337_792,
            20_643_840,
            26_981_632.0,
        ),
        (
            "nvidia-grace-nvlink-c2c0",
            "c2c0_bandwidth",
            4_234_927_104,
            201_326_592,
            4_436_253_696.0,
        ),
        (
            "nvidia-grace-nvlink-c2c1",
            "c2c1_bandwidth",
            6_356_480,
            20_593_408,
            26_949_888.0,
        ),
    ] {
        let counts = [("RD_BYTES_LOC", read), ("WR_BYTES_LOC", write)];
        assert_eq!(
            value(
                Chip::named("grace-hopper").unwrap(),
                family,
                name,
                1.0,
                &counts
            ),
            Ok(total)
        );
    }
}
