//! Small directories in the format of perf and in that of perfmon.

use std::{fs, path::PathBuf};

use super::Counts;
use crate::catalogue::{Catalogue, CatalogueError, Hardware, Platform, Processor};

/// A temporary directory, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("pmuscope-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        for (file, text) in files {
            let file = path.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        Self(path)
    }

    fn load(&self, platform: &str) -> Result<(Catalogue, Hardware), CatalogueError> {
        let platform = Platform::named(platform).unwrap();
        let hardware = Hardware::of_platform(platform);
        let mut catalogue = Catalogue::builtin().unwrap();
        let processor = Processor::of_platform(&catalogue, platform);
        catalogue.merge_path(&self.0, &hardware, &processor)?;
        Ok((catalogue, hardware))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const EVENTS: &str = r#"[
    {"EventName": "OPS.DONE", "EventCode": "0xc2", "UMask": "0x2", "Counter": "0,1",
     "CounterMask": "1"},
    {"EventName": "OPS.OTHER", "EventCode": "0x2A,0x2B", "MSRIndex": "0x1a6,0x1a7",
     "MSRValue": "0x10001"},
    {"EventName": "CLK", "EventCode": "0x3c", "Counter": "Fixed counter 1"},
    {"EventName": "UNC_M_RD", "EventCode": "0x05", "UMask": "0xcf", "Unit": "iMC"},
    {"Unit": "core", "CountersNumGeneric": "8"}
]"#;

const METRICS: &str = r#"[
    {"MetricName": "Done_Rate", "MetricExpr": "OPS.DONE / CLK", "ScaleUnit": "100%",
     "MetricGroup": "G1;G2",
     "MetricThreshold": "Done_Rate > 0.5 & (twice < 3 | ipc > 9)", "BriefDescription": "Share."},
    {"MetricName": "twice", "MetricExpr": "2 * Done_Rate"},
    {"MetricName": "edges", "MetricExpr": "cpu@OPS.DONE\\,edge@ / OPS.OTHER"},
    {"MetricName": "ipc", "MetricExpr": "OPS.OTHER / CLK"},
    {"MetricName": "read_bw", "MetricExpr": "UNC_M_RD * 64 / 1e6 / duration_time",
     "ScaleUnit": "1MB/s"},
    {"MetricName": "mixed", "MetricExpr": "UNC_M_RD / CLK"},
    {"MetricName": "loop_a", "MetricExpr": "loop_b + 1"},
    {"MetricName": "loop_b", "MetricExpr": "loop_a + 1"},
    {"MetricName": "unknown", "MetricExpr": "NOTHING / CLK"},
    {"MetricName": "literal", "MetricExpr": "CLK / #num_cores"},
    {"MetricName": "guarded", "MetricExpr": "CLK if has_event(CLK) else NOTHING"}
]"#;

#[test]
fn a_directory_of_perf_is_merged_like_a_catalogue_file() {
    let table = "Family-model,Version,Filename,EventType\nGenuineIntel-6-8[DF],v1,model,core\n";
    let files = [
        ("x86/mapfile.csv", table),
        ("x86/model/events.json", EVENTS),
        ("x86/model/metrics.json", METRICS),
    ];
    let directory = Directory::new("perf", &files);
    let (catalogue, hardware) = directory.load("spr").unwrap();
    let counts = Counts::named(&[
        ("OPS.DONE", 30.0),
        ("CLK", 60.0),
        ("OPS.OTHER", 5.0),
        ("UNC_M_RD", 1e6),
        ("cpu_OPS.DONE_edge", 10.0),
    ]);
    for (name, expected, unit) in [
        ("done_rate", 50.0, "%"),
        ("twice", 1.0, "1"),
        ("edges", 2.0, "1"),
        // The catalogue has an `ipc` already.
        ("perf_ipc", 5.0 / 60.0, "1"),
        ("read_bw", 32.0, "MB/s"),
        ("guarded", 60.0, "1"),
    ] {
        let metric = catalogue.select(name, &hardware).unwrap()[0];
        let value = metric.evaluate(&hardware, &counts).unwrap().value;
        assert!((value - expected).abs() < 1e-9, "{name} = {value}");
        assert_eq!(metric.unit, unit, "{name}");
    }
    let done = catalogue.select("done_rate", &hardware).unwrap()[0];
    assert!(done.is_in("G1") && done.is_in("G2"));
    let help = done.help();
    assert!(help.contains("A value is marked if Done_Rate > 0.5 & "));
    assert!(help.contains("Marked where this is not 0: 1 if "), "{help}");
    for (values, is_over) in [
        // done_rate is in %: the threshold's 0.5 is 50%.
        ([Some(50.1), Some(2.0), Some(1.0)], true),
        ([Some(49.9), Some(2.0), Some(1.0)], false),
        ([Some(50.1), Some(3.0), Some(1.0)], false),
        ([Some(50.1), Some(3.0), Some(10.0)], true),
        ([Some(50.1), Some(2.0), None], false),
    ] {
        let names = ["done_rate", "twice", "perf_ipc"];
        let value_of = |name: &str| values[names.iter().position(|it| *it == name).unwrap()];
        assert_eq!(done.is_over_threshold(value_of), is_over, "{values:?}");
    }
    let event = &done.pmu.events["OPS.DONE"];
    assert_eq!(event.perf, "{pmu}/event=0xc2,cmask=0x1,umask=0x2/");
    assert_eq!(event.counters, Some(vec![0, 1]));
    assert!(done.pmu.events["CLK"].fixed);
    assert_eq!(done.pmu.counters, Some(8));
    let other = &done.pmu.events["OPS.OTHER"];
    assert_eq!(other.perf, "{pmu}/event=0x2a,offcore_rsp=0x10001/");
    let edges = &done.pmu.events["cpu_OPS.DONE_edge"];
    assert_eq!(edges.perf, "{pmu}/event=0xc2,cmask=0x1,umask=0x2,edge=0x1/");
    let refused: Vec<String> = catalogue
        .refused()
        .iter()
        .map(|refused| format!("{}: {}", refused.name, refused.reason))
        .collect();
    assert_eq!(
        refused,
        [
            "loop_a: its expression needs its own value: loop_a -> loop_b -> loop_a",
            "loop_b: its expression needs its own value: loop_a -> loop_b -> loop_a",
            "unknown: NOTHING is no event and no metric of the directory",
            "literal: pmuscope does not have perf's #num_cores",
            "mixed: its events are of two PMUs, imc and core: they cannot be in one group",
        ]
    );
    let error = catalogue
        .select("mixed", &hardware)
        .unwrap_err()
        .to_string();
    assert!(error.contains("they cannot be in one group"), "{error}");
    // The directory of a model, given alone, is loaded on every CPU.
    let model = Directory(directory.0.join("x86/model"));
    assert!(model.load("generic").is_ok());
}

#[test]
fn formulas_of_perfmon_name_events_by_letters() {
    let metrics = r#"{"Header": {}, "Metrics": [
        {"MetricName": "Done", "UnitOfMeasure": "percent", "BriefDescription": "Share",
     "MetricGroup": "",
         "Events": [{"Name": "OPS.DONE:c2", "Alias": "a"}, {"Name": "CLK", "Alias": "b"}],
         "Constants": [{"Name": "HYPERTHREADING_ON", "Alias": "smt_on"}],
         "Formula": "100 * ( a / ( b if smt_on else 1 ) )", "LegacyName": "metric_..Done(%)",
         "Threshold": {"Formula": "( a > 10 )", "BaseFormula": "( metric_..Done(%) > 10 )",
          "ThresholdMetrics": [{"Alias": "a", "Value": "metric_..Done(%)"}]}},
        {"MetricName": "Late", "UnitOfMeasure": "", "Constants": [],
         "Events": [{"Name": "OPS.DONE:retire_latency", "Alias": "a"}], "Formula": "a"}]}"#;
    let events = format!("{{\"Header\": {{}}, \"Events\": {EVENTS}}}");
    let table = "F,V,F,E\nGenuineIntel-6-8F,V1,/SPR/events/core.json,core,,,\n\
                 GenuineIntel-6-8F,V1,/SPR/metrics/metrics.json,metrics,,,\n";
    let files = [
        ("mapfile.csv", table),
        ("SPR/events/core.json", events.as_str()),
        ("SPR/metrics/metrics.json", metrics),
    ];
    let directory = Directory::new("perfmon", &files);
    let (catalogue, hardware) = directory.load("spr").unwrap();
    let done = catalogue.select("done", &hardware).unwrap()[0];
    assert_eq!(done.unit, "%");
    assert_eq!(
        [10.0, 10.1].map(|it| done.is_over_threshold(|name| (name == "done").then_some(it))),
        [false, true]
    );
    let perf: Vec<&str> = done
        .events()
        .iter()
        .map(|it| done.pmu.events[*it].perf.as_str())
        .collect();
    assert!(
        perf.contains(&"{pmu}/event=0xc2,cmask=0x2,umask=0x2/"),
        "{perf:?}"
    );
    assert_eq!(
        catalogue.refused()[0].reason,
        "it needs the retirement latency of OPS.DONE, which is sampled and not counted"
    );
}

#[test]
fn mistakes_in_a_directory_are_reported() {
    let table = "GenuineIntel-6-8F,v1,model,core\n";
    for (name, platform, files, expected) in [
        (
            "none",
            "zen4",
            &[("mapfile.csv", table)][..],
            "has no row for AuthenticAMD-25-10",
        ),
        (
            "empty",
            "spr",
            &[("x.txt", "")][..],
            "no JSON file of events or metrics",
        ),
        (
            "broken",
            "spr",
            &[("x.json", "[{")][..],
            "is no JSON that perf reads",
        ),
        (
            "events",
            "spr",
            &[("x.json", EVENTS)][..],
            "have no metrics",
        ),
        (
            "deep",
            "spr",
            &[("x.json", &*"[".repeat(100_000))][..],
            "is no JSON that perf reads",
        ),
    ] {
        let directory = Directory::new(name, files);
        let error = directory.load(platform).err().unwrap().to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
}

/// Each metric names the previous one twice, so that its formula is at least twice as long.
#[test]
fn formulas_that_grow_exponentially_are_refused() {
    let mut metrics = vec![r#"{"MetricName": "m0", "MetricExpr": "CLK + OPS.DONE"}"#.to_owned()];
    for n in 1..60 {
        let previous = n - 1;
        metrics.push(format!(
            r#"{{"MetricName": "m{n}", "MetricExpr": "m{previous} / (1 + m{previous})"}}"#
        ));
    }
    let metrics = format!("[{}]", metrics.join(","));
    let directory = Directory::new("growth", &[("e.json", EVENTS), ("m.json", &metrics)]);
    let (catalogue, _) = directory.load("spr").unwrap();
    assert!(!catalogue.refused().is_empty());
}
