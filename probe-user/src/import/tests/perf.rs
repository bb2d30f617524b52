//! Output of the real perf in each of its forms (tests/fixtures/derive/perf).

use std::{collections::BTreeSet, fmt::Write as _, fs};

use super::{
    super::{CountedValue, Reading, ReadingSet, read},
    derived, fixture, rows, value,
};
use test_support::fixture as fixture_path;

use crate::catalogue::Chip;

/// The files of a version of perf: names and texts.
fn forms(version: &str) -> Vec<(String, String)> {
    let directory = fixture_path("derive").join("perf").join(version);
    let files = fs::read_dir(&directory).unwrap();
    let names: BTreeSet<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    let text = |name: String| {
        let text = fs::read_to_string(directory.join(&name)).unwrap();
        (name, text)
    };
    names.into_iter().map(text).collect()
}

fn golden(name: &str) -> String {
    fixture(&format!("perf/6.1/{name}"))
}

fn chip(name: &str) -> Chip {
    Chip::named(name).unwrap()
}

/// What is read from a file: its parts, and the counts of each.
fn summary(readings: &[Reading]) -> String {
    let mut text = String::new();
    let mut sets: Vec<&ReadingSet> = Vec::new();
    for reading in readings {
        if !sets.contains(&&reading.set) {
            sets.push(&reading.set);
        }
    }
    for set in sets {
        let interval = set.interval.map(|it| it.to_string()).unwrap_or_default();
        let scope = set.name();
        write!(text, "  [{interval} {scope}]").unwrap();
        for reading in readings.iter().filter(|reading| reading.set == *set) {
            let Reading {
                event, count, unit, ..
            } = reading;
            match count {
                CountedValue::Value(count) => write!(text, " {event}={count}{unit}").unwrap(),
                CountedValue::NotCounted => write!(text, " {event}=not-counted").unwrap(),
                CountedValue::NotSupported => write!(text, " {event}=not-supported").unwrap(),
            }
        }
        text.push('\n');
    }
    text
}

fn every_form(version: &str) -> String {
    let mut text = String::new();
    for (name, form) in forms(version) {
        let (command, _) = form.split_once('\n').unwrap();
        writeln!(text, "{name}: {}", command.trim_start_matches("# ")).unwrap();
        match read(&form) {
            Ok(readings) => text.push_str(&summary(&readings)),
            Err(error) => writeln!(text, "  refused: {error}").unwrap(),
        }
    }
    text
}

#[test]
fn every_form_of_6_1_is_read_or_refused_by_name() {
    insta::assert_snapshot!(every_form("6.1"));
}

#[test]
fn every_form_of_6_12_is_read_or_refused_by_name() {
    insta::assert_snapshot!(every_form("6.12"));
}

/// The number of counts equals the number of lines that have a count, judged by their text alone.
#[test]
fn no_count_is_lost() {
    for version in ["6.1", "6.12"] {
        for (name, form) in forms(version) {
            let Ok(readings) = read(&form) else { continue };
            if name.ends_with(".txt") {
                assert_eq!(readings.len(), rows_of_table(&form), "{version}/{name}");
                continue;
            }
            let lines = form.lines().filter(|line| !line.starts_with('#'));
            let counts = lines.filter(|line| {
                let json = line.starts_with('{') && line.contains("counter-value");
                // A further metric has no event, so four separators follow each other.
                let metric = [",,,,", ";;;;"].iter().any(|empty| line.contains(empty));
                json || !line.starts_with('{') && !metric
            });
            assert_eq!(readings.len(), counts.count(), "{version}/{name}");
        }
    }
}

/// The number of lines of a table that are a count or the time elapsed, judged by their words
/// alone.
fn rows_of_table(form: &str) -> usize {
    let no_count = ["Performance counter stats", "seconds user", "seconds sys"];
    let lines = form.lines().map(str::trim);
    let rows = lines.filter(|line| {
        let heading = line.starts_with('#') || no_count.iter().any(|it| line.contains(it));
        // A row of one run, which --table adds.
        let run = line.contains(" (+") || line.contains(" (-");
        !heading && !run
    });
    rows.count()
}

/// Only files that cannot be read without a guess are rejected.
#[test]
fn few_forms_are_refused() {
    let refused: Vec<String> = forms("6.1")
        .into_iter()
        .filter(|(_, form)| read(form).is_err())
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        refused,
        [
            "locale-comma-interval.csv",
            "locale-comma.csv",
            "locale.json",
            "metric-only-interval.csv",
            "metric-only.csv",
            "metric-only.json",
            "table-metric-only.txt",
        ]
    );
}

/// perf prints instructions per cycle after the instructions: derive computes the same for each
/// part.
#[test]
fn instructions_per_cycle_are_those_that_perf_prints() {
    let mut compared = 0;
    for (name, form) in forms("6.1") {
        // perf divides by the mean of the cycles over all groups, and over the runs.
        let uses_mean = name.starts_with("groups-") || name.contains("repeat");
        if uses_mean || !name.ends_with(".csv") || read(&form).is_err() {
            continue;
        }
        let printed: Vec<(ReadingSet, f64)> = form
            .lines()
            .filter(|line| line.ends_with("insn per cycle"))
            .map(|line| {
                let set = read(line).unwrap()[0].set.clone();
                let line = line
                    .replace([';', '\t', '|'], ",")
                    .replace(",00,2,", ",00,2.00,");
                let mut fields = line.rsplit(',');
                (set, fields.nth(1).unwrap().parse().unwrap())
            })
            .collect();
        if printed.is_empty() {
            continue;
        }
        let derived = derived(&form, chip("other"));
        let ipc = rows(&derived, "ipc");
        for (set, printed) in printed {
            let own = ipc
                .iter()
                .filter(|row| *row.set == set && row.value.is_ok());
            let own: Vec<f64> = own.map(|row| row.value.as_ref().unwrap().value).collect();
            let [own] = own[..] else {
                panic!("{name}: {set:?} has {own:?}");
            };
            // perf's intervals divide by a mean of the cycles of earlier intervals.
            let tolerance = if name.contains("interval") {
                0.15
            } else {
                0.005_1
            };
            assert!(
                (own - printed).abs() <= tolerance,
                "{name}: {own}, perf: {printed}"
            );
            compared += 1;
        }
    }
    assert!(compared > 40, "only {compared} were compared");
}

/// As above, for the metrics in tables of any locale.
#[test]
fn instructions_per_cycle_of_tables_are_those_that_perf_prints() {
    let mut compared = 0;
    for (name, form) in forms("6.1") {
        // perf divides by the mean of the cycles over all groups, over runs, and over intervals.
        // The tables of the platform's metric have events of their own.
        let skipped = [
            "turns",
            "repeat",
            "interval",
            "fr",
            "cgroup",
            "table-metric",
            "units",
        ];
        let is_skipped = skipped.iter().any(|word| name.contains(word));
        if is_skipped || !name.ends_with(".txt") || read(&form).is_err() {
            continue;
        }
        let printed = form.lines().filter_map(|line| {
            let (before, _) = line.split_once("insn per cycle")?;
            let number = before.split_whitespace().last()?;
            number.replace([',', '\u{66b}'], ".").parse::<f64>().ok()
        });
        let mut printed: Vec<f64> = printed.collect();
        let derived = derived(&form, chip("other"));
        let ipc = rows(&derived, "ipc").into_iter();
        let mut ipc: Vec<f64> = ipc
            .filter_map(|row| Some(row.value.as_ref().ok()?.value))
            .collect();
        // A file in which perf does not print every ratio is left out.
        if printed.len() != ipc.len() {
            continue;
        }
        printed.sort_by(f64::total_cmp);
        ipc.sort_by(f64::total_cmp);
        for (own, printed) in ipc.iter().zip(printed) {
            assert!(
                (own - printed).abs() <= 0.005_1,
                "{name}: {own}, perf: {printed}"
            );
            compared += 1;
        }
    }
    assert!(compared > 15, "only {compared} were compared");
}

/// perf appends runs to a file: each is a separate part.
#[test]
fn runs_in_one_file_are_separate_parts() {
    let readings = read(&golden("append.csv")).unwrap();
    let runs = readings.iter().map(|it| it.set.name());
    assert_eq!(runs.collect::<Vec<_>>(), ["run 1", "run 2"]);
}

/// Here the heading of the first run was not copied.
#[test]
fn counts_above_the_first_heading_are_a_run() {
    let line = "100,,page-faults,1,100.00,,\n";
    let text = format!("{line}# started on b\n{line}# started on c\n{line}");
    let readings = read(&text).unwrap();
    let runs = readings.iter().map(|it| it.set.run);
    assert_eq!(runs.collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
}

/// Cycles of another group do not belong to these instructions: summed, they would halve the ratio.
#[test]
fn an_event_belongs_to_its_group() {
    for name in [
        "groups.csv",
        "groups.json",
        "groups-turns.csv",
        "groups-turns.json",
    ] {
        let derived = derived(&golden(name), chip("other"));
        let ipc = value(&derived, "ipc");
        // The test PMU counts two instructions per cycle.
        assert!((ipc - 2.0).abs() < 1e-6, "{name}: {ipc}");
        assert_eq!(derived.repeated.iter().collect::<Vec<_>>(), ["cycles"]);
    }
}

/// Intervals of appended runs begin at the stamps of their own run.
#[test]
fn intervals_of_two_runs_have_their_own_time() {
    let line = |stamp, faults: u32| format!("{stamp},{faults},,page-faults,1,100.00,,\n");
    let first = line("1.000000000", 100) + &line("2.000000000", 200);
    let text = format!(
        "# started on a\n{first}# started on b\n{}",
        line("1.500000000", 150)
    );
    let derived = derived(&text, chip("other"));
    let rates = rows(&derived, "page_faults_per_second").into_iter();
    let rates = rates.map(|row| (row.set.run, row.value.as_ref().unwrap().value));
    let expected = [(Some(1), 100.0), (Some(1), 200.0), (Some(2), 100.0)];
    assert_eq!(rates.collect::<Vec<_>>(), expected);
}
