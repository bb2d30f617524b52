//! Metrics of whole inputs.

use super::{
    super::{derive, json, table},
    CATALOGUE, derived, fixture, readings, rows, value,
};
use crate::{
    catalogue::{Catalogue, Chip, Hardware, Platform, Processor},
    formula::{Implicit, NoValue},
};

#[track_caller]
fn near(value: f64, expected: f64) {
    assert!(
        (value - expected).abs() <= 1e-3 * expected,
        "{value} and not {expected}"
    );
}

#[test]
fn the_local_read_of_the_grace_guide_gives_its_bandwidths() {
    let derived = derived(
        &fixture("scf-local-read.csv"),
        Chip::named("grace-cpu-superchip").unwrap(),
    );
    near(value(&derived, "cmem_read_bandwidth"), 12.815);
    near(
        value(&derived, "remote_read_bandwidth"),
        4_728.0 * 32.0 / 88_826_372.0,
    );
    assert_eq!(&*rows(&derived, "cmem_read_bandwidth")[0].place, "socket 0");
    assert_eq!(
        &*rows(&derived, "remote_read_bandwidth")[0].place,
        "socket 1"
    );
    // Missing events are named, and so is what the chip does not have.
    let missing = &rows(&derived, "cmem_read_latency")[0].value;
    let expected = ["CMEM_RD_OUTSTANDING", "CMEM_RD_ACCESS", "CYCLES"].map(str::to_owned);
    assert_eq!(*missing, Err(NoValue::Missing(expected.to_vec())));
    let gmem = &rows(&derived, "gmem_read_bandwidth")[0].value;
    assert!(matches!(gmem, Err(NoValue::NotOnChip { .. })));
}

#[test]
fn the_remote_read_over_pcie_of_the_grace_guide_gives_its_bandwidths() {
    let derived = derived(
        &fixture("pcie-remote-read.csv"),
        Chip::named("grace-cpu-superchip").unwrap(),
    );
    let read = value(&derived, "pcie_read_bandwidth");
    near(read, (1_073_762_304.0 + 6_398_720.0) / 735_201_612.0);
    assert_eq!(
        &*rows(&derived, "pcie_read_bandwidth")[0].place,
        "socket 1 root_port=0x100"
    );
    near(value(&derived, "c2c0_read_bandwidth"), 1.4609);
}

#[test]
fn the_gpu_write_of_the_grace_guide_gives_its_bandwidth() {
    let derived = derived(
        &fixture("gpu-write.json"),
        Chip::named("grace-hopper").unwrap(),
    );
    near(
        value(&derived, "c2c0_write_bandwidth"),
        4_026_531_840.0 / 777_059_774.0,
    );
    // An event that was not counted is not zero.
    let reason = &rows(&derived, "c2c1_read_bandwidth")[0].value;
    assert_eq!(*reason, Err(NoValue::NeverRan("RD_BYTES_LOC".to_owned())));
}

#[test]
fn table_7_of_the_ddio_paper_gives_its_values() {
    let derived = derived(
        &fixture("ddio-table7.txt"),
        Chip::named("emerald-rapids").unwrap(),
    );
    near(value(&derived, "io_inbound_read_bandwidth"), 40_130.0);
    near(value(&derived, "io_inbound_write_bandwidth"), 39_575.0);
    near(
        value(&derived, "io_percent_of_inbound_full_writes_that_miss_l3"),
        85.160,
    );
    near(
        value(&derived, "io_percent_of_inbound_reads_that_miss_l3"),
        88.262,
    );
    assert_eq!(
        &*rows(&derived, "io_inbound_read_bandwidth")[0].place,
        "part 0"
    );
    let partial = &rows(
        &derived,
        "io_percent_of_inbound_partial_writes_that_miss_l3",
    )[0]
    .value;
    assert!(matches!(partial, Err(NoValue::DenominatorTooSmall { .. })));
}

#[test]
fn intervals_and_sockets_have_separate_values() {
    let derived = derived(
        &fixture("core-intervals.csv"),
        Chip::named("neoverse-v2").unwrap(),
    );
    let values = |name| {
        let rows = rows(&derived, name).into_iter();
        let pairs = rows.map(|row| {
            let value = row
                .value
                .as_ref()
                .map(|value| (value.value, value.running_ratio));
            (row.set.scope.as_deref(), value.ok())
        });
        pairs.collect::<Vec<_>>()
    };
    assert_eq!(
        values("ipc"),
        [
            (Some("S0"), Some((1.5, 0.5))),
            (Some("S1"), None),
            (Some("S0"), Some((0.5, 1.0))),
        ]
    );
    // An interval begins at the stamp before it.
    let flops: Vec<f64> = values("sve_flops")
        .iter()
        .map(|(_, value)| value.unwrap().0)
        .collect();
    near(flops[0], 30_000.0);
    near(flops[1], 15_000.0);
}

#[test]
fn time_comes_from_the_best_source_of_the_input() {
    let chip = Chip::named("grace-cpu-superchip").unwrap();
    let bandwidth = |text: &str| value(&derived(text, chip), "cmem_read_bandwidth");
    near(bandwidth("CMEM_RD_DATA=100\nduration_time=1600"), 2.0);
    near(bandwidth("CMEM_RD_DATA=100\nseconds=0.0000016"), 2.0);
    // One CPU reads this PMU: its counter's time is the elapsed time, 1,600 ns.
    near(
        bandwidth("100,,nvidia_scf_pmu_0/cmem_rd_data/,800,50.00,,"),
        2.0,
    );
    // The time that the input gives has priority.
    near(
        bandwidth(
            "100,,nvidia_scf_pmu_0/cmem_rd_data/,800,50.00,,\n3200,ns,duration_time,3200,100.00,,",
        ),
        1.0,
    );
    // perf prints the time of a run per socket for the first only.
    near(
        bandwidth("S1,1,100,,cmem_rd_data,800,100.00,,\nS0,1,1600,ns,duration_time,1600,100.00,,"),
        2.0,
    );
    let unknown = derived("CMEM_RD_DATA=100", chip);
    let reason = &rows(&unknown, "cmem_read_bandwidth")[0].value;
    assert_eq!(*reason, Err(NoValue::NotKnown(Implicit::DurationTime)));
    // Many CPUs read the counters of cores: their running time is not the elapsed time.
    let core = derived(
        "100,,r80c0,800,50.00,,",
        Chip::named("neoverse-v2").unwrap(),
    );
    assert_eq!(
        rows(&core, "sve_flops")[0].value,
        Err(NoValue::NotKnown(Implicit::Seconds))
    );
}

/// The Grace guide prints 27,496,157 ns where dd took 127,496,157: a write of 1 GiB would have 36.7
/// GB/s.
#[test]
fn a_duration_that_counters_contradict_is_reported() {
    let chip = Chip::named("grace-cpu-superchip").unwrap();
    let times = |enabled: u64, duration: u64| {
        let text = format!(
            "1009280460,,nvidia_scf_pmu_0/cmem_wr_total_bytes/,{enabled},100.00,,\n\
             {duration},ns,duration_time,{duration},100.00,,"
        );
        let derived = derived(&text, chip);
        let mut out = Vec::new();
        table(&mut out, &derived).unwrap();
        let out = String::from_utf8(out).unwrap();
        let times = derived.times.into_iter().next();
        assert!(times.iter().all(|text| out.contains(text)), "{out}");
        times
    };
    assert_eq!(times(127_496_157, 127_496_157), None);
    assert_eq!(times(127_400_000, 127_496_157), None);
    assert_eq!(
        times(127_496_157, 27_496_157).as_deref(),
        Some(
            "scf: its counters were enabled for 0.127496 s, and the duration is 0.027496 s: \
             one of them is wrong, and with the duration every bandwidth"
        )
    );
}

#[test]
fn units_of_perf_become_counts() {
    let text =
        "1.5,MiB,uncore_imc/cas_count_read/,10,100.00,,\n1000000000,ns,duration_time,1,100.00,,";
    near(
        value(
            &derived(text, Chip::named("sapphire-rapids").unwrap()),
            "memory_bandwidth_read",
        ),
        1.572_864,
    );
    let text = "9000,,OFFCORE_REQUESTS_OUTSTANDING.DEMAND_DATA_RD,200,100.00,,\n\
        30,,OFFCORE_REQUESTS.DEMAND_DATA_RD,200,100.00,,\n600,,cycles,200,100.00,,";
    near(
        value(
            &derived(text, Chip::named("sapphire-rapids").unwrap()),
            "l2_miss_latency",
        ),
        100.0,
    );
    let text = "1.5,Joules,uncore_imc/cas_count_read/,10,100.00,,\n1,,cycles,1,100.00,,";
    let odd = derived(text, Chip::named("sapphire-rapids").unwrap());
    assert_eq!(odd.unused[0].0, "uncore_imc/cas_count_read/");
    assert!(odd.unused[0].1.contains("its unit Joules"));
}

/// A frequency uses the time of its counter, which perf prints to the ns, and not task-clock, which
/// perf rounds. The clock is used only if the input has no other time.
#[test]
fn a_frequency_is_over_the_time_of_its_counter() {
    let clock = "0.51,msec,task-clock,512345,100.00,,";
    for (cycles, nanos) in [
        ("1000000,,cycles,500000,100.00,,", 500_000.0),
        ("1000000,,cycles,250000,50.00,,", 500_000.0),
    ] {
        let text = format!("{clock}\n{cycles}");
        let derived = derived(&text, Chip::named("other").unwrap());
        near(value(&derived, "frequency"), 1e6 / nanos);
    }
    for time in ["task-clock=500000", "counter_time=500000"] {
        let text = format!("{time}\ncycles=1000000");
        let derived = derived(&text, Chip::named("other").unwrap());
        near(value(&derived, "frequency"), 2.0);
    }
}

/// The kernel's clock is an event of the software PMU, and gives the time that a core ran.
#[test]
fn task_clock_is_an_event_and_the_time_of_the_core() {
    let text = "500,msec,task-clock,500000000,100.00,,\n\
        1000,,cycles,500000000,100.00,,\n\
        250000000,ns,duration_time,250000000,100.00,,";
    for chip in ["epyc-zen5", "grace-cpu-superchip", "other"] {
        let derived = derived(text, Chip::named(chip).unwrap());
        near(value(&derived, "cpus_used"), 2.0);
        near(value(&derived, "frequency"), 1000.0 / 5e8);
        assert_eq!(derived.unused, []);
    }
}

#[test]
fn units_are_added_up_and_counted() {
    let unit = |number: u32, occupancy: u32| {
        format!(
            "uncore_cha_{number}/event=0x36,umask=0xc8f3ff04/={occupancy}\n\
             uncore_cha_{number}/event=0x35,umask=0xc8f3ff04/=5\nuncore_cha_{number}/event=0x01,umask=0x00/=10\n"
        )
    };
    let text = format!("{}{}duration_time=5", unit(0, 50), unit(1, 10));
    let units = derived(&text, Chip::named("sapphire-rapids").unwrap());
    near(value(&units, "io_read_tor_depth"), 60.0 / 20.0);
    // 60 / 10 is 6 cycles. Each of the two units has 10 cycles in 5 ns, so these are 3 ns.
    near(value(&units, "io_read_tor_latency"), 3.0);
    // If perf summed them, their number is unknown, unless the input gives it.
    let text = "UNC_CHA_TOR_OCCUPANCY.IO_PCIRDCUR=60\nUNC_CHA_TOR_INSERTS.IO_PCIRDCUR=10\nUNC_CHA_CLOCKTICKS=20\nduration_time=5";
    let summed = derived(text, Chip::named("sapphire-rapids").unwrap());
    assert_eq!(
        rows(&summed, "io_read_tor_latency")[0].value,
        Err(NoValue::NotKnown(Implicit::NumUnits))
    );
    near(
        value(
            &derived(
                &format!("{text}\nnum_units=2"),
                Chip::named("sapphire-rapids").unwrap(),
            ),
            "io_read_tor_latency",
        ),
        3.0,
    );
}

#[test]
fn cycles_apply_to_every_peer_and_filter() {
    let text = "nvidia_scf_pmu_0/socket_1_rd_access/=25\nnvidia_scf_pmu_0/socket_2_rd_access/=50\nnvidia_scf_pmu_0/cycles/=50";
    let peers = derived(text, Chip::named("grace-hopper-multi").unwrap());
    let peers: Vec<(String, f64)> = rows(&peers, "remote_read_utilization")
        .iter()
        .map(|row| (row.place.to_string(), row.value.as_ref().unwrap().value))
        .collect();
    assert_eq!(
        peers,
        [
            ("socket 0 to socket 1".to_owned(), 25.0),
            ("socket 0 to socket 2".to_owned(), 50.0)
        ]
    );
    let text = "nvidia_pcie_pmu_0/rd_req_loc,root_port=0x3/=60\nnvidia_pcie_pmu_0/rd_req_rem,root_port=0x3/=40\nnvidia_pcie_pmu_0/cycles/=200";
    near(
        value(
            &derived(text, Chip::named("grace-hopper").unwrap()),
            "pcie_read_utilization",
        ),
        25.0,
    );
}

#[test]
fn a_bare_name_of_several_pmus_is_not_guessed() {
    let derived = derived(
        "CYCLES=100\nRD_BYTES_LOC=5\nCMEM_RD_DATA=1\nduration_time=1",
        Chip::named("grace-hopper").unwrap(),
    );
    // `CYCLES` is taken as an event of the core.
    assert_eq!(derived.unused.len(), 1);
    let (event, why) = &derived.unused[0];
    assert_eq!(event, "RD_BYTES_LOC");
    assert!(
        why.contains("nvidia_pcie_pmu_*") && why.ends_with("write pmu/event/"),
        "{why}"
    );
    let frequency = &rows(&derived, "scf_frequency")[0].value;
    assert_eq!(*frequency, Err(NoValue::Missing(vec!["CYCLES".to_owned()])));
}

#[test]
fn counts_with_different_modifiers_have_separate_values() {
    let text = "4,,instructions:u,1,100.00,,\n2,,cycles:u,1,100.00,,\n9,,instructions:k,1,100.00,,\n3,,cycles:k,1,100.00,,";
    let derived = derived(text, Chip::named("other").unwrap());
    let ipc: Vec<_> = rows(&derived, "ipc")
        .iter()
        .map(|row| (&*row.place, row.value.as_ref().unwrap().value))
        .collect();
    assert_eq!(ipc, [(":k", 3.0), (":u", 2.0)]);
}

#[test]
fn nothing_known_is_an_error() {
    let error = derive(
        &CATALOGUE,
        &Hardware::of_platform(Platform::named("vera").unwrap()),
        &readings("inst_retire=1\nx=2"),
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "none of the 2 events can be used on vera, the first is inst_retire: no event of this \
         platform"
    );
}

#[test]
fn every_metric_of_the_platform_has_a_row() {
    let derived = derived(
        &fixture("scf-local-read.csv"),
        Chip::named("grace-hopper").unwrap(),
    );
    for metric in CATALOGUE.on(&Hardware::of_chip(Chip::named("grace-hopper").unwrap())) {
        assert!(!rows(&derived, &metric.name).is_empty(), "{}", metric.name);
    }
}

#[test]
fn the_table_has_values_reasons_and_unused_events() {
    let text = "nvidia_scf_pmu_0/cmem_rd_data/=100\nnvidia_scf_pmu_0/cycles/=4000\nduration_time=1600\nbogus=1";
    let mut out = Vec::new();
    table(
        &mut out,
        &derived(text, Chip::named("grace-hopper").unwrap()),
    )
    .unwrap();
    let out = String::from_utf8(out).unwrap();
    let lines: Vec<Vec<&str>> = out
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0], ["metric", "for", "value", "unit", "live"]);
    let expected: &[&str] = &[
        "cmem_read_bandwidth",
        "socket",
        "0",
        "2.0000",
        "GB/s",
        "100",
        "%",
    ];
    assert!(lines.iter().any(|line| line == expected), "{out}");
    for line in [
        "  gmem_read_bandwidth (socket 0): not counted: GMEM_RD_DATA",
        "  remote_read_bandwidth (socket 0): not on grace-hopper: \
         a one-socket Grace Hopper has no remote socket",
        "  l1d_tlb_mpki: not counted: L1D_TLB_REFILL, INST_RETIRED",
    ] {
        assert!(out.lines().any(|known| known == line), "{line}\n{out}");
    }
    assert!(
        out.ends_with("\nnot used:\n  bogus: no event of this platform\n"),
        "{out}"
    );
}

#[test]
fn a_value_over_its_threshold_is_marked() {
    let files = tempfile::tempdir().unwrap();
    for (name, text) in [
        (
            "events.json",
            r#"[{"EventName": "OPS.DONE", "EventCode": "0xc2"},
                {"EventName": "CLK", "EventCode": "0x3c"}]"#,
        ),
        (
            "metrics.json",
            r#"[{"MetricName": "high", "MetricExpr": "OPS.DONE / CLK",
                 "MetricThreshold": "high > 0.5 & twice < 3"},
                {"MetricName": "twice", "MetricExpr": "2 * high",
                 "MetricThreshold": "twice > 2"}]"#,
        ),
    ] {
        std::fs::write(files.path().join(name), text).unwrap();
    }
    let platform = Platform::named("generic").unwrap();
    let hardware = Hardware::of_platform(platform);
    let mut catalogue = Catalogue::builtin().unwrap();
    let processor = Processor::of_platform(&catalogue, platform);
    let merged = catalogue.merge_path(files.path(), &hardware, &processor);
    merged.unwrap();
    for (done, expected) in [
        ("50", &[][..]),
        ("51", &["high"]),
        ("101", &["high", "twice"]),
    ] {
        let counted = readings(&format!(
            "{done},,OPS.DONE,1,100.00,,\n100,,CLK,1,100.00,,\n"
        ));
        let derived = derive(&catalogue, &hardware, &counted).unwrap();
        let marked = derived.rows.iter().filter(|row| row.over_threshold);
        let marked: Vec<&str> = marked.map(|row| row.metric.name.as_str()).collect();
        assert_eq!(marked, expected, "{done}");
    }
}

#[test]
fn json_has_values_reasons_and_unused_events() {
    let text = "nvidia_scf_pmu_0/cmem_rd_data/=100\nduration_time=1600\nbogus=1";
    let mut out = Vec::new();
    json(
        &mut out,
        &derived(text, Chip::named("grace-hopper").unwrap()),
    )
    .unwrap();
    let out: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let metric = |name: &str| {
        let metrics = out["metrics"].as_array().unwrap().iter();
        metrics
            .clone()
            .find(|metric| metric["metric"] == name)
            .unwrap()
    };
    let read = metric("cmem_read_bandwidth");
    assert_eq!(read["value"], 2.0);
    assert_eq!(read["unit"], "GB/s");
    assert_eq!(read["place"], "socket 0");
    assert_eq!(read["live"], 1.0);
    assert!(read.get("reason").is_none());
    let latency = metric("cmem_read_latency");
    assert!(latency["value"].is_null());
    assert_eq!(latency["missing"][0], "CMEM_RD_OUTSTANDING");
    assert_eq!(out["unused"][0]["event"], "bogus");
}
