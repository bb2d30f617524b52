//! The forms of the input other than tables, line by line.

use super::super::{CountedValue, ImportError, IntervalEnd, Reading, ReadingSet, read};

/// The only reading of a text.
fn one(text: &str) -> Reading {
    match &read(text).unwrap_or_else(|error| panic!("{text}: {error}"))[..] {
        [reading] => reading.clone(),
        readings => panic!("{text}: {readings:?}"),
    }
}

fn set(nanos: Option<u64>, scope: Option<&str>) -> ReadingSet {
    ReadingSet {
        interval: nanos.map(IntervalEnd),
        scope: scope.map(str::to_owned),
        ..ReadingSet::default()
    }
}

/// What perf 6.1 prints.
#[test]
fn lines_of_perf_stat_x_are_read() {
    for (line, expected, event, count, unit) in [
        (
            "1,,context-switches,823047,100.00,1.215,K/sec",
            set(None, None),
            "context-switches",
            1.0,
            "",
        ),
        (
            "0.82,msec,task-clock,823047,100.00,0.453,CPUs utilized",
            set(None, None),
            "task-clock",
            0.82,
            "msec",
        ),
        (
            "1818852,ns,duration_time,1818852,100.00,2.210,G/sec",
            set(None, None),
            "duration_time",
            1_818_852.0,
            "ns",
        ),
        (
            "     0.100268289,201.09,msec,task-clock,201089473,100.00,2.011,CPUs utilized",
            set(Some(100_268_289), None),
            "task-clock",
            201.09,
            "msec",
        ),
        (
            "     0.100268289,38,,context-switches,201090985,100.00,188.970,/sec",
            set(Some(100_268_289), None),
            "context-switches",
            38.0,
            "",
        ),
        (
            "S0,2,11,,context-switches,3571076,100.00,3.079,K/sec",
            set(None, Some("S0")),
            "context-switches",
            11.0,
            "",
        ),
        (
            "S0-D1-C2,2,11,,cs,3571076,100.00,,",
            set(None, Some("S0-D1-C2")),
            "cs",
            11.0,
            "",
        ),
        (
            "CPU1,5,,context-switches,1492185,100.00,3.348,K/sec",
            set(None, Some("CPU1")),
            "context-switches",
            5.0,
            "",
        ),
        (
            "     1.5,CPU12,5,,cs,1492185,100.00,,",
            set(Some(1_500_000_000), Some("CPU12")),
            "cs",
            5.0,
            "",
        ),
        (
            "     1.5,S1,2,3.5,msec,task-clock,1492185,100.00,,",
            set(Some(1_500_000_000), Some("S1")),
            "task-clock",
            3.5,
            "msec",
        ),
        (
            "10,,cs,/kube/pod,1473696361448,100.00,,",
            set(None, Some("/kube/pod")),
            "cs",
            10.0,
            "",
        ),
        (
            "7,,nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x100/,735100000,100.00,,",
            set(None, None),
            "nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x100/",
            7.0,
            "",
        ),
        (
            "S1,1,7,,uncore_iio_0/event=0x84,umask=0x01,ch_mask=0x1,fc_mask=0x7/,10,100.00,,",
            set(None, Some("S1")),
            "uncore_iio_0/event=0x84,umask=0x01,ch_mask=0x1,fc_mask=0x7/",
            7.0,
            "",
        ),
        (
            "1.5,MiB,uncore_imc/cas_count_read/,10,100.00,,",
            set(None, None),
            "uncore_imc/cas_count_read/",
            1.5,
            "MiB",
        ),
        // Without the last columns, as older versions print.
        ("5,,cs", set(None, None), "cs", 5.0, ""),
    ] {
        let reading = one(line);
        assert_eq!(reading.set, expected, "{line}");
        assert_eq!(reading.event, event, "{line}");
        assert_eq!(reading.count, CountedValue::Value(count), "{line}");
        assert_eq!(reading.unit, unit, "{line}");
        assert_eq!(reading.running_ratio, 1.0, "{line}");
    }
}

#[test]
fn running_ratios_and_uncounted_events_are_read() {
    let half = one("4000,,cpu_cycles,100,50.00,,");
    assert_eq!((half.running_ratio, half.enabled), (0.5, Some(200.0)));
    let never = one("<not counted>,,cpu_cycles,0,0.00,,");
    assert_eq!(
        (never.count, never.running_ratio, never.enabled),
        (CountedValue::NotCounted, 0.0, None)
    );
    let unsupported = one("0.1,<not supported>,,cycles,0,100.00,,");
    assert_eq!(unsupported.count, CountedValue::NotSupported);
    assert_eq!(unsupported.set.interval, Some(IntervalEnd(100_000_000)));
}

#[test]
fn lines_of_perf_stat_j_are_read() {
    let line = r#"{"counter-value" : "0.722337", "unit" : "msec", "event" : "task-clock", "event-runtime" : 722337, "pcnt-running" : 50.00, "metric-value" : 0.529027, "metric-unit" : "CPUs utilized"}"#;
    let reading = one(line);
    assert_eq!(reading.count, CountedValue::Value(0.722_337));
    assert_eq!(
        (reading.unit.as_str(), reading.event.as_str()),
        ("msec", "task-clock")
    );
    assert_eq!(
        (reading.running_ratio, reading.enabled),
        (0.5, Some(1_444_674.0))
    );
    let line = r#"{"interval" : 0.100259085, "cpu" : "1", "counter-value" : "7", "unit" : "", "event" : "cs"}"#;
    assert_eq!(one(line).set, set(Some(100_259_085), Some("cpu 1")));
    let line = r#"{"socket" : "S0", "aggregate-number" : 2, "counter-value" : "<not counted>", "event" : "cs"}"#;
    assert_eq!(one(line).set, set(None, Some("S0")));
    assert_eq!(one(line).count, CountedValue::NotCounted);
    // perf's further metrics of an event are lines without a count.
    let two = format!(
        "{line}\n{}",
        r#"{"metric-value" : 1.0, "metric-unit" : "insn per cycle"}"#
    );
    assert_eq!(read(&two).unwrap().len(), 1);
}

/// perf aligns the unit of a metric of AMD's memory controllers with two spaces.
#[test]
fn a_metric_with_spaces_in_its_unit_is_no_column() {
    let reading = one("52300,,umc_cas_cmd.wr,1000,100.00,3.3,MB/s  umc_mem_write_bandwidth");
    assert_eq!(reading.event, "umc_cas_cmd.wr");
    let reading =
        one("     1.001000000,52300,,umc_cas_cmd.wr,1000,100.00,3.3,MB/s  umc_mem_write_bandwidth");
    assert_eq!(reading.set, set(Some(1_001_000_000), None));
    let line = [
        r#"{"counter-value" : "52300.000000", "unit" : "", "event" : "umc_cas_cmd.wr""#,
        r#""event-runtime" : 1000, "pcnt-running" : 100.00, "metric-value" : 3.3"#,
        r#""metric-unit" : "MB/s  umc_mem_write_bandwidth"}"#,
    ];
    let line = line.join(", ");
    assert_eq!(one(&line).count, CountedValue::Value(52_300.0));
}

#[test]
fn lines_of_event_and_value_are_read() {
    for (line, event, count) in [
        ("CMEM_RD_DATA=35572420", "CMEM_RD_DATA", 35_572_420.0),
        (" CMEM_RD_DATA = 35,572,420 ", "CMEM_RD_DATA", 35_572_420.0),
        ("seconds=0.127496157", "seconds", 0.127_496_157),
        (
            "nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x100/=7",
            "nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x100/",
            7.0,
        ),
        ("x=1e9", "x", 1e9),
    ] {
        let reading = one(line);
        assert_eq!(reading.event, event);
        assert_eq!(reading.count, CountedValue::Value(count));
    }
}

#[test]
fn comments_and_empty_lines_are_skipped() {
    assert_eq!(
        read("# started on Sat\n\n  # more\nx=1\n\n").unwrap().len(),
        1
    );
    assert!(matches!(read("# nothing\n\n"), Err(ImportError::Empty)));
    assert!(matches!(read(""), Err(ImportError::Empty)));
    assert!(matches!(
        read("{\"metric-value\": 1}"),
        Err(ImportError::Empty)
    ));
}

#[test]
fn a_wrong_line_is_named() {
    for (text, sentence) in [
        (
            "x=1\ny=2\n# c\nz=two",
            "line 4 is not event=value: two is no count",
        ),
        ("x=1\nnothing", "line 2 is not event=value: it has no `=`"),
        ("x=1\n=5", "line 2 is not event=value: it has no event"),
        ("x=1\ny=-5", "line 2 is not event=value: -5 is no count"),
        ("x=1\ny=1,23", "line 2 is not event=value: 1,23 is no count"),
        (
            "1,,cs,1,100.00,,\nhello",
            "line 2 is not a line of `perf stat -x,`: it has no count where one should be",
        ),
        (
            "hello, world",
            "line 1 is not a line of `perf stat -x,`: it has no count where one should be",
        ),
        (
            "1,,cs,1,100.00,,\n5",
            "line 2 is not a line of `perf stat -x,`: it ends before the unit",
        ),
        (
            "# c\nfoo bar",
            "line 2 is not a line of `perf stat -x,` or `perf stat -j`, nor event=value: it has \
             neither a comma nor `=`",
        ),
        ("x=abc", "line 1 is not event=value: abc is no count"),
        ("x=-5\ny=1", "line 1 is not event=value: -5 is no count"),
        ("x=nan", "line 1 is not event=value: nan is no count"),
        (
            "5,ns",
            "line 1 is not a line of `perf stat -x,`: it has no event",
        ),
        (
            "5,,a/b,c",
            "line 1 is not a line of `perf stat -x,`: the event's slash is not closed",
        ),
        (
            "{\"counter-value\": \"x\", \"event\": \"cs\"}",
            "line 1 is not a line of `perf stat -j`: x is no count",
        ),
    ] {
        let error = read(text).err().unwrap_or_else(|| panic!("taken: {text}"));
        assert_eq!(error.to_string(), sentence, "{text}");
    }
    let error = read("{\"event\": ").unwrap_err().to_string();
    assert!(
        error.starts_with("line 1 is not a line of `perf stat -j`: EOF"),
        "{error}"
    );
}
