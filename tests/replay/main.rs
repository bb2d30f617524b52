//! Recorded sessions (tests/fixtures/recordings) pass through window, join, derive and every
//! format, without a kernel. The output is compared with golden files.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod look;
mod measured;
mod page;
mod rates;
mod recorded;
mod sampled;
mod sampling;
mod single;
mod verified;

use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use probe_user::{
    derive::{Report, Stages},
    emit::OutputFormat,
    recording::{Recording, RecordingHead},
};
use test_harness::texts;

fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/recordings");
    fixtures.join(name).with_extension("jsonl")
}

/// The reports of a recording's windows, as a live session makes them.
fn reports(name: &str) -> Vec<Report> {
    read_reports(Recording::open(&fixture(name)).unwrap())
}

fn read_reports(mut recording: Recording) -> Vec<Report> {
    let RecordingHead { plan, view, .. } = recording.head.clone();
    // As in a session, each report reuses the memory of the previous one.
    let mut stages = Stages::new(view, recording.next().unwrap().unwrap());
    let windows = recording.map(Result::unwrap).map(|now| {
        stages.advance(&plan, now);
        stages.report().clone()
    });
    windows.collect()
}

/// Compares the text in every format with the golden file.
fn assert_golden(name: &str) {
    let reports = reports(name);
    assert!(reports.len() >= 2, "{name} has {} windows", reports.len());
    for (format, text) in OutputFormat::value_variants().iter().zip(texts(&reports)) {
        let format = format.to_possible_value().unwrap();
        let text = histograms_as_lines(&text);
        insta::assert_snapshot!(format!("{name}.{}", format.get_name()), text);
    }
}

/// The text of `OpenMetrics` with all buckets of a histogram in one line. Other formats stay as
/// they are.
fn histograms_as_lines(text: &str) -> String {
    const BOUND: &str = ",le=\"";
    let mut lines = String::new();
    let mut histogram = "";
    for line in text.split_inclusive('\n') {
        match line
            .split_once(BOUND)
            .filter(|(series, _)| series.contains("_bucket{"))
        {
            Some((series, bucket)) if series == histogram => {
                lines.truncate(lines.trim_end().len());
                lines += " ";
                lines += bucket;
            }
            bucket => {
                histogram = bucket.map_or("", |(series, _)| series);
                lines += line;
            }
        }
    }
    lines
}

#[test]
fn grace_by_container() {
    assert_golden("grace");
}

#[test]
fn waits_by_container() {
    assert_golden("waits");
}

#[test]
fn vera_by_cgroup() {
    assert_golden("vera");
}

#[test]
fn sapphire_rapids_by_pod() {
    assert_golden("sapphire-rapids");
}

#[test]
fn turns_by_process() {
    assert_golden("turns");
}

#[test]
fn samples_by_container_with_pages() {
    assert_golden("spe");
}

#[test]
fn hotplug_by_cgroup() {
    assert_golden("hotplug");
}
