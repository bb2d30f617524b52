//! Single views of samples, roofline, estimates and calibration: CSV and pictures, compared with
//! the JSON of the same file.

use std::{collections::BTreeMap, path::Path};

use probe_user::report::{Selection, Single};
use serde_json::Value;

use super::{
    measured::run,
    recorded::record,
    sampled::{EVIL, json_report, report, stream},
    sampling::calibrated,
};

/// Rows of a CSV file by column.
fn rows(text: &[u8]) -> Vec<BTreeMap<String, String>> {
    let mut csv = csv::Reader::from_reader(text);
    csv.deserialize().map(Result::unwrap).collect()
}

fn selected(search: &str) -> Selection {
    Selection {
        search: Some(search.to_owned()),
        ..Selection::default()
    }
}

/// The text of a value in a CSV.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Asserts that an SVG is well-formed, with every mark inside.
#[track_caller]
fn assert_picture(svg: &str) {
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("<script"));
    for mark in svg.split("<circle ").skip(1) {
        let attribute = |name: &str| -> f64 {
            let rest = mark.split_once(name).unwrap().1;
            rest.split('"').nth(1).unwrap().parse().unwrap()
        };
        assert!((79.9..=925.1).contains(&attribute("cx")), "{mark:.60}");
        assert!((39.9..=360.1).contains(&attribute("cy")), "{mark:.60}");
    }
}

#[test]
fn samples_are_a_table_and_a_picture() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("samples.parquet");
    stream(&path, 20_000);
    let all = json_report(&path);
    let (points, sums) = (&all["samples"]["points"], &all["samples"]["sums"]);
    let view = |words: &[&str]| {
        let mut all = vec![path.as_path()];
        all.extend(words.iter().map(Path::new));
        report(&all)
    };
    // `--view samples` is the default for a file of samples.
    let csv = view(&["--format", "csv"]).unwrap();
    assert_eq!(
        csv,
        view(&["--format", "csv", "--view", "samples"]).unwrap()
    );
    let table = rows(csv.as_bytes());
    assert_eq!(table.len(), probe_user::report::POINTS);
    for (at, row) in table.iter().enumerate() {
        for key in [
            "seconds",
            "address",
            "latency_cycles",
            "operation",
            "source",
        ] {
            assert_eq!(row[key], text(&points[key][at]), "{key} of {at}");
        }
        let sum = usize::try_from(points["sum"][at].as_u64().unwrap()).unwrap();
        for key in ["region", "phase", "cgroup", "pid", "tid", "comm"] {
            assert_eq!(row[key], text(&sums[sum][key]), "{key} of {at}");
        }
    }
    let in_region = |name: &str| table.iter().filter(|row| row["region"] == name).count();
    let svg = view(&["--format", "svg"]).unwrap();
    assert_picture(&svg);
    if let Some(pages) = std::env::var_os("PMUSCOPE_PAGES") {
        std::fs::write(Path::new(&pages).join("samples.svg"), &svg).unwrap();
    }
    // Tagged memory, with a colour for each region, on shaded phases.
    let tagged: usize = ["a", "b", "c", EVIL].map(in_region).iter().sum();
    assert_eq!(svg.matches("<circle").count(), tagged);
    assert_eq!(svg.matches("opacity=\"0.12\"").count(), 5);
    assert!(svg.contains(">triad</text>") && svg.contains("&lt;/script&gt;"));
    let heap = view(&["--format", "svg", "--search", "[heap]"]).unwrap();
    assert_picture(&heap);
    assert_eq!(heap.matches("<circle").count(), in_region("[heap]"));
    let one = view(&["--format", "svg", "--top", "1"]).unwrap();
    assert_eq!(one.matches("<circle").count(), tagged);
    assert!(one.contains(">3 others</text>"), "a colour for one");
    let other = view(&[
        "--format",
        "json",
        "--view",
        "samples",
        "--search",
        "cri-other",
    ])
    .unwrap();
    let other: Value = serde_json::from_str(&other).unwrap();
    assert_eq!(other["drawn"], in_region(EVIL));
    for (words, sentence) in [
        (
            &["--format", "svg", "--search", "no such"][..],
            "nothing that --search finds",
        ),
        (
            &["--format", "csv", "-M", "ipc"],
            "-M names a metric over time",
        ),
        (&["--view", "samples"], "a page has all views"),
        (
            &["--format", "svg", "--view", "roofline"],
            "it needs FLOPS and FLOPs per byte",
        ),
        (
            &["--format", "csv", "--view", "estimates"],
            "has no such metric both estimated",
        ),
        (
            &["--format", "csv", "--view", "calibration"],
            "no calibration was given",
        ),
    ] {
        let message = view(words).unwrap_err();
        assert!(
            message.contains(sentence) && message.trim().lines().count() == 1,
            "{words:?}: {message}"
        );
    }
    let recording = directory.path().join("grace.jsonl.gz");
    record("grace", &recording, false);
    let words = ["--format", "csv", "--view", "samples"].map(Path::new);
    let message = report(&[&[recording.as_path()], &words[..]].concat()).unwrap_err();
    assert!(
        message.contains("has no samples: give a file of"),
        "{message}"
    );
}

#[test]
fn a_roofline_is_a_table_and_a_picture() {
    let run = run();
    let all = Selection::default();
    let view = Single::Roofline.json(&run, &all).unwrap();
    let table = rows(&Single::Roofline.csv(&run, &all).unwrap());
    assert_eq!(table.len(), 12);
    for (row, point) in table.iter().zip(view["points"].as_array().unwrap()) {
        for (key, value) in row {
            assert_eq!(*value, text(&point[key]), "{key}");
        }
    }
    let svg = Single::Roofline.svg(&run, &all).unwrap();
    assert_picture(&svg);
    // The ten largest containers; roofs of memory and two caches of both sockets.
    assert_eq!(svg.matches("<circle").count(), 10);
    assert_eq!(svg.matches("<polyline").count(), 3);
    assert!(svg.contains(">memory: 826GB/s</text>"), "{svg}");
    let one = Single::Roofline.svg(&run, &selected("WEB-3/")).unwrap();
    assert_eq!(one.matches("<circle").count(), 1);
    insta::assert_snapshot!("roofline.svg", one);
}

#[test]
fn estimates_are_a_table_and_a_picture() {
    let mut run = run();
    let all = Selection::default();
    let view = Single::Estimates.json(&run, &all).unwrap();
    let table = rows(&Single::Estimates.csv(&run, &all).unwrap());
    assert_eq!(table.len(), 12);
    for (row, point) in table.iter().zip(view[0]["points"].as_array().unwrap()) {
        assert_eq!(
            (&*row["estimated"], &*row["counted"]),
            ("memory_accesses", "mem_access")
        );
        for key in [
            "label", "windows", "estimate", "count", "low", "high", "ratio",
        ] {
            assert_eq!(row[key], text(&point[key]), "{key}");
        }
    }
    let svg = Single::Estimates.svg(&run, &all).unwrap();
    assert_picture(&svg);
    assert_eq!(svg.matches("<circle").count(), 10);
    assert_eq!(svg.matches("<polyline").count(), 1);
    let one = Single::Estimates.svg(&run, &selected("web-11/")).unwrap();
    insta::assert_snapshot!("estimates.svg", one);
    // With several pairs, one has to be named.
    let mut extra = run.metrics[3].clone();
    extra.name = "sampled_mem_access".to_owned();
    run.metrics.push(extra);
    let extra: Vec<_> = { run.lines.iter().filter(|it| it.metric == 2) }
        .map(|it| probe_user::report::RunLine {
            metric: 4,
            ..it.clone()
        })
        .collect();
    run.lines.extend(extra);
    let message = Single::Estimates.svg(&run, &all).unwrap_err();
    assert!(
        message.ends_with("name it with -M: memory_accesses, sampled_mem_access"),
        "{message}"
    );
    let by_metric = |metric: &str| Selection {
        metric: Some(metric.to_owned()),
        ..Selection::default()
    };
    assert_eq!(
        Single::Estimates.svg(&run, &by_metric("memory_accesses")),
        Ok(svg)
    );
    assert!(Single::Estimates.csv(&run, &by_metric("flops")).is_err());
}

#[test]
fn a_calibration_is_a_table_and_a_picture() {
    let mut run = run();
    let calibrated = calibrated("neoverse-v2");
    run.calibrated = Some(calibrated.clone());
    let all = Selection::default();
    let table = rows(&Single::Calibration.csv(&run, &all).unwrap());
    assert_eq!(table.len(), calibrated.settings.len());
    for (row, setting) in table.iter().zip(&calibrated.settings) {
        let number = |key: &str| row[key].parse::<f64>().unwrap().to_bits();
        assert_eq!(row["period"], setting.period.to_string());
        assert_eq!(number("accuracy"), setting.accuracy.mean.to_bits());
        assert_eq!(
            number("overhead_deviation"),
            setting.overhead.deviation.to_bits()
        );
        assert_eq!(row["threads"], "");
    }
    let svg = Single::Calibration.svg(&run, &all).unwrap();
    assert_eq!(svg, calibrated.svg());
}
