//! A recording of the default events has the columns of the live run in tables, and every count in
//! the formats for programs.

use clap::ValueEnum as _;
use probe_user::{
    recording::{RecordingFile, Replay},
    report::{Run, Selection, json},
};
use test_harness::texts;

use super::*;

/// A replay of events of a core PMU. With `rates_only` these are treated as the default events.
fn replay(rates_only: bool) -> Replay {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("recording");
    let mut recording = Recording::open(&fixture("hotplug")).unwrap();
    let mut head = recording.head.clone();
    head.plan.rates_only = rates_only;
    let first = recording.next().unwrap().unwrap();
    let mut file = RecordingFile::begin(&path, &head, &first).unwrap();
    recording.for_each(|snapshot| file.add(&snapshot.unwrap()).unwrap());
    file.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    let view = recording.head.view.clone();
    Replay::begin(recording, view).unwrap()
}

fn reports(mut replay: Replay) -> Vec<Report> {
    let next = || replay.advance().unwrap().cloned();
    std::iter::from_fn(next).collect()
}

#[test]
fn only_tables_show_rates_in_place_of_default_counts() {
    let [counts, rates] = [false, true].map(|rates_only| texts(&reports(replay(rates_only))));
    let formats = OutputFormat::value_variants().iter();
    for ((format, counts), rates) in formats.zip(&counts).zip(&rates) {
        if *format != OutputFormat::Table {
            assert_eq!(rates, counts);
            continue;
        }
        for column in ["ipc", "cpus_used"] {
            assert!(rates.contains(column), "{rates}");
        }
        for event in ["task-clock", "cycles"] {
            assert!(counts.contains(&format!(" {event} ")), "{counts}");
            assert!(!rates.contains(&format!(" {event} ")), "{rates}");
        }
    }
}

#[test]
fn a_report_has_the_columns_of_the_live_run() {
    let run = |rates_only| Run::read("hotplug", [], replay(rates_only)).unwrap();
    let [counts, rates] = [false, true].map(run);
    assert_eq!(
        json(&rates, &Selection::default()),
        json(&counts, &Selection::default())
    );
    let replaced_by_rates = |run: &Run| -> Vec<String> {
        let metrics = run.metrics.iter().filter(|metric| metric.replaced_by_rates);
        metrics.map(|metric| metric.name.clone()).collect()
    };
    assert_eq!(replaced_by_rates(&counts), [""; 0]);
    assert_eq!(replaced_by_rates(&rates), ["task-clock", "cycles"]);
}
