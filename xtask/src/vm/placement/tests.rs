//! Checks that every test runs in some guest of CI, and that there are not too many runs.

use std::{collections::BTreeSet, path::Path};

use super::*;

/// The paths of all tests of a binary, from its sources.
fn tests_of(binary: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests")
        .join(binary);
    let mut found = Vec::new();
    let mut folders = vec![(folder, String::new())];
    while let Some((folder, parent)) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let module = format!("{parent}{}::", path.file_stem().unwrap().to_string_lossy());
            if path.is_dir() {
                folders.push((path, module));
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            for test in text.split("#[test]\n").skip(1) {
                let name = test.split_once("fn ").unwrap().1;
                found.push(format!("{module}{}", name.split('(').next().unwrap()));
            }
        }
    }
    found
}

fn guests_of(binary: &str, test: &str, all: bool) -> Vec<&'static str> {
    let runs = |boot: &&Boot| {
        let mut groups = groups(boot, all).filter(|group| group.binary == binary);
        groups.any(|group| group.tests.iter().any(|start| test.starts_with(start)))
    };
    let boots = BOOTS.iter().filter(|boot| all || boot.ci);
    boots.filter(runs).map(|boot| boot.name).collect()
}

#[test]
fn every_test_runs_in_a_guest_of_ci() {
    for test in tests_of("vm") {
        let guests = guests_of("vm", &test, false);
        assert!(!guests.is_empty(), "no guest of CI runs {test}");
    }
}

/// A renamed test would silently run in no guest.
#[test]
fn every_prefix_selects_a_test() {
    for group in GROUPS {
        let tests = tests_of(group.binary);
        for start in group.tests {
            let selects = tests.iter().any(|test| test.starts_with(start));
            assert!(selects, "{} has no test {start}", group.binary);
        }
    }
}

/// An emulated test takes some seconds, and CI has a quarter of an hour for everything.
#[test]
fn the_number_of_runs_in_ci_is_bounded() {
    let tests = tests_of("vm");
    let runs: usize = (tests.iter())
        .map(|test| guests_of("vm", test, false).len())
        .sum();
    println!("{} tests run {runs} times", tests.len());
    assert!(runs <= 300, "{runs}");
}

#[test]
fn guests_of_ci_meet_the_needs_of_their_groups() {
    for group in GROUPS {
        let guests: Vec<_> = BOOTS
            .iter()
            .filter(|boot| group.runs.include(boot))
            .collect();
        assert!(!guests.is_empty(), "{:?}", group.tests);
        for boot in guests {
            let met = boot.ci && group.needs.are_met(boot);
            // The first guest of a series may count instructions, and so not meet the needs of a
            // group that runs on each kernel.
            let is_each = matches!(group.runs, Runs::Each);
            assert!(met || is_each, "{} {:?}", boot.name, group.tests);
        }
        if let Runs::In(names) = group.runs {
            let known: BTreeSet<_> = BOOTS.iter().map(|boot| boot.name).collect();
            assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
        }
    }
}

#[test]
fn ends_are_the_oldest_and_the_newest_kernel() {
    let spe = guests_of("vm", "spe_losses::x", false);
    assert_eq!(spe, ["arm64-7.3", "arm64-6.1"]);
    assert!(version("6.12") > version("6.1"));
}

#[test]
fn with_all_a_test_runs_in_every_guest_that_meets_its_needs() {
    let all = guests_of("vm", "spe_losses::x", true);
    assert!(all.contains(&"amd64-6.12-clock"), "{all:?}");
    assert!(!all.contains(&"arm64-7.3-exact"), "{all:?}");
}
