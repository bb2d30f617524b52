//! The table of `perf stat` as people paste it. perf.rs has perf's own output.

use super::{
    super::{CountedValue, ImportError, Reading, read, table},
    derived, fixture, rows,
};
use crate::catalogue::Chip;

/// The only reading of a text.
fn one(text: &str) -> Reading {
    match &read(text).unwrap_or_else(|error| panic!("{text}: {error}"))[..] {
        [reading] => reading.clone(),
        readings => panic!("{text}: {readings:?}"),
    }
}

/// Values of a metric by run and place.
fn values(name: &str) -> Vec<(String, f64)> {
    let text = fixture("documents/grace-performance-tuning.txt");
    let derived = derived(&text, Chip::named("grace-hopper-multi").unwrap());
    let with_value = |row: &&super::DerivedRow<'_>| row.value.is_ok();
    let rows = rows(&derived, name).into_iter().filter(with_value);
    let rows = rows.map(|row| {
        let name = format!("{} {}", row.set.name(), row.place);
        (name, row.value.as_ref().unwrap().value)
    });
    rows.collect()
}

/// The nine outputs of the Grace guide, with prompts, output of the commands and emphasis. The
/// guide states the bytes, here over the time elapsed.
#[test]
fn the_outputs_of_the_grace_guide_give_the_values_it_states() {
    for (metric, name, bytes, nanos) in [
        (
            "cmem_write_bandwidth",
            "run 2 socket 0",
            1_009_299_148.0,
            127_496_157.0,
        ),
        (
            "cmem_read_bandwidth",
            "run 3 socket 0",
            1_138_317_440.0,
            88_826_372.0,
        ),
        (
            "cmem_write_bandwidth",
            "run 4 socket 0",
            993_278_696.0,
            172_847_464.0,
        ),
        (
            "remote_write_bandwidth",
            "run 4 socket 1",
            961_728_219.0,
            172_847_464.0,
        ),
        (
            "cmem_read_bandwidth",
            "run 5 socket 0",
            1_073_375_488.0,
            134_526_031.0,
        ),
        (
            "remote_read_bandwidth",
            "run 5 socket 1",
            1_158_050_784.0,
            134_526_031.0,
        ),
        (
            "pcie_read_bandwidth",
            "run 6 socket 0 root_port=0x100",
            1_168_472_064.0 + 49_152.0,
            1_966_391_711.0,
        ),
        (
            "pcie_read_bandwidth",
            "run 7 socket 1 root_port=0x100",
            1_073_762_304.0 + 6_398_720.0,
            735_201_612.0,
        ),
        (
            "c2c0_read_bandwidth",
            "run 7 socket 0",
            1_074_057_216.0,
            735_201_612.0,
        ),
        (
            "c2c0_write_bandwidth",
            "run 8 socket 0",
            4_026_531_840.0,
            777_059_774.0,
        ),
        (
            "c2c0_read_bandwidth",
            "run 9 socket 0",
            4_234_927_104.0,
            771_266_524.0,
        ),
        (
            "scf_frequency",
            "run 1 socket 0",
            10_515_321.0,
            168_225_760.0,
        ),
    ] {
        let values = values(metric);
        let value = values.iter().find(|(place, _)| place == name);
        let (_, value) = value.unwrap_or_else(|| panic!("{metric} of {name}: {values:?}"));
        let expected: f64 = bytes / nanos;
        assert!(
            (value / expected - 1.0).abs() < 1e-9,
            "{metric} of {name}: {value}, not {expected}"
        );
    }
}

/// The second output in NVIDIA's tuning guide has 27,496,157 ns beside 0.127496157 s.
#[test]
fn a_duration_that_the_time_elapsed_contradicts_is_reported() {
    let text = fixture("documents/grace-performance-tuning.txt");
    let derived = derived(&text, Chip::named("grace-cpu-superchip").unwrap());
    let sentences: Vec<&str> = derived.times.iter().map(String::as_str).collect();
    assert_eq!(
        sentences,
        [
            "the duration_time of run 2 is 0.027496 s, and the time elapsed is 0.127496 s: one of \
             them is wrong, and rates are over the time elapsed"
        ]
    );
    let mut out = Vec::new();
    table(&mut out, &derived).unwrap();
    assert!(String::from_utf8(out).unwrap().contains(sentences[0]));
}

#[test]
fn rows_of_old_versions_and_documents_are_read() {
    for (line, event, count, unit, scope) in [
        (
            "  0.823047 task-clock  # 0.4 CPUs utilized",
            "task-clock",
            0.823_047,
            "msec",
            None,
        ),
        (
            "  1.25 task-clock (msec) # 0.4 CPUs",
            "task-clock",
            1.25,
            "msec",
            None,
        ),
        (
            "**4,026,531,840 cycles**",
            "cycles",
            4_026_531_840.0,
            "",
            None,
        ),
        ("^C 1,234 cycles", "cycles", 1_234.0, "", None),
        (
            "\t1,23,45,678\tcycles\t# 2 GHz",
            "cycles",
            12_345_678.0,
            "",
            None,
        ),
        (
            "S0-D0 8 1.234.567 cycles",
            "cycles",
            1_234_567.0,
            "",
            Some("S0-D0"),
        ),
        ("CPU11  5 cs", "cs", 5.0, "", Some("CPU11")),
        ("Web Content-4 7 cs", "cs", 7.0, "", Some("Web Content-4")),
        (
            "S1 4 1.50 MiB uncore_imc/cas_count_read/",
            "uncore_imc/cas_count_read/",
            1.5,
            "MiB",
            Some("S1"),
        ),
        ("5 cycles [cpu_core]", "cycles [cpu_core]", 5.0, "", None),
        (
            "5 cs /kube/pod #  1 K/sec",
            "cs",
            5.0,
            "",
            Some("/kube/pod"),
        ),
        (
            "18446744073709551615 cycles",
            "cycles",
            18_446_744_073_709_551_615.0,
            "",
            None,
        ),
    ] {
        let reading = one(line);
        assert_eq!(reading.event, event, "{line}");
        assert_eq!(reading.count, CountedValue::Value(count), "{line}");
        assert_eq!(reading.unit, unit, "{line}");
        assert_eq!(reading.set.scope.as_deref(), scope, "{line}");
    }
    let half = one("  7 cycles  #  3.00 GHz  ( +-  0.33% )  (83,33%)");
    assert!((half.running_ratio - 0.8333).abs() < 1e-9);
}

/// Text around a table is skipped, and a prompt below intervals ends them; lines may end as on
/// Windows.
#[test]
fn what_surrounds_a_table_is_skipped() {
    let heading = " Performance counter stats for 'system wide':";
    let rows = "  1,234 cycles\n  2,468 instructions\n\n  0.5 seconds time elapsed";
    let text =
        format!("$ perf stat -a work\n5 apples\n{heading}\n\n{rows}\n\nSome text: 5 apples\n");
    assert_eq!(read(&text).unwrap().len(), 3);
    assert_eq!(read(&text), read(&text.replace('\n', "\r\n")));
    let text = "me@host:~# perf stat -I 1000\n#  time  counts unit events\n\
                1.000123456 7 cycles\n2.000123456 8 cycles\nme@host:~# ls\n5 apples\n";
    assert_eq!(read(text).unwrap().len(), 2);
}

#[test]
fn ambiguous_and_damaged_rows_are_refused() {
    let heading = "Performance counter stats for 'x':";
    let form = "is not a row of the table of `perf stat`:";
    for (rows, why) in [
        (
            "5 cycles\ncut",
            "line 3 {}: it has no count, as a table of --metric-only or a cut line",
        ),
        ("5", "line 2 {}: it has no event"),
        (
            "5 nvidia_scf_pmu_0/cmem_rd",
            "line 2 {}: the event's slash is not closed",
        ),
        (
            "1.4 2.00 98%",
            "line 2 {}: it has metrics and no counts: run `perf stat` without --metric-only",
        ),
        (
            "1 234 cycles",
            "line 2 {}: spaces separate the thousands of its count: run perf with LC_ALL=C",
        ),
        (
            "CPU0 1 234 cycles",
            "line 2 {}: spaces separate the thousands of its count: run perf with LC_ALL=C",
        ),
        (
            "1.234 MiB uncore_imc/cas_count_read/",
            "line 2 {}: 1.234 is one number if its mark separates thousands and another if it is a \
             decimal mark: run perf with LC_ALL=C",
        ),
        (
            "1,234 cycles\n0,5 seconds time elapsed",
            "line 2 {}: 1,234 is one number if its mark separates thousands and another if it is \
             a decimal mark: run perf with LC_ALL=C",
        ),
        ("1,23,4 cycles", "line 2 {}: 1,23,4 is no count"),
    ] {
        let error = read(&format!("{heading}\n{rows}")).unwrap_err().to_string();
        assert_eq!(error, why.replace(" {}:", &format!(" {form}")));
    }
    assert!(matches!(read(heading), Err(ImportError::Empty)));
}

/// If only the time is missing, the message names the remedy.
#[test]
fn an_unknown_time_names_its_remedy() {
    let derived = derived(
        "CMEM_RD_DATA=100",
        Chip::named("grace-cpu-superchip").unwrap(),
    );
    let mut out = Vec::new();
    table(&mut out, &derived).unwrap();
    let out = String::from_utf8(out).unwrap();
    let line = "duration_time is not known: count with `-e duration_time` too, or add a line \
                seconds=value";
    assert!(out.contains(line), "{out}");
}
