//! The files of the kernel and of intel/perfmon, if they are present: in `PMU_EVENTS`, or beside
//! the repository in shared/pmu-events.

use std::path::{Path, PathBuf};

use test_support::sysfs;

use super::Counts;
use crate::{
    catalogue::{Catalogue, Hardware, MetricSettings, Platform, Processor},
    machine::Pmus,
};

/// Directories, each with a platform that it has files for.
const MODELS: [(&str, &str); 12] = [
    ("linux-6.12/x86", "spr"),
    ("linux-6.12/x86", "emr"),
    ("linux-6.12/x86", "icx"),
    ("linux-6.12/x86", "zen4"),
    ("linux-6.12/x86", "zen5"),
    ("linux-6.12/arm64", "neoverse-n1"),
    ("linux-6.12/arm64", "neoverse-v1"),
    ("linux-6.12/arm64", "grace"),
    ("linux-7.3/arm64", "vera"),
    ("intel-perfmon", "spr"),
    ("intel-perfmon", "gnr"),
    ("intel-perfmon", "icx"),
];

/// The directory of the real files; `None`, with a printed line, if it is not here.
pub(super) fn root() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/pmu-events");
    let named = std::env::var_os("PMU_EVENTS").map(PathBuf::from);
    let root = named.unwrap_or_else(|| PathBuf::from(beside));
    if !root.join("linux-6.12").is_dir() {
        println!("skipped: no files of perf in {}", root.display());
        return None;
    }
    Some(root)
}

/// The [`MODELS`] whose directories exist.
pub(super) fn models(root: &Path) -> impl Iterator<Item = (&'static str, &'static str)> {
    MODELS.into_iter().filter(|(below, _)| {
        let exists = root.join(below).is_dir();
        if !exists {
            println!("skipped: {} is not in {}", below, root.display());
        }
        exists
    })
}

pub(super) fn with_directory(root: &Path, below: &str, platform: &str) -> (Catalogue, Hardware) {
    let platform = Platform::named(platform).expect("the catalogue has it");
    let hardware = Hardware::of_platform(platform);
    let mut catalogue = Catalogue::builtin().unwrap();
    let processor = Processor::of_platform(&catalogue, platform);
    catalogue
        .merge_path(&root.join(below), &hardware, &processor)
        .unwrap();
    (catalogue, hardware)
}

/// Prints the numbers for docs/reference/catalogue.md: run it with `--no-capture`.
#[test]
fn every_metric_of_the_real_files_has_a_value_or_a_reason() {
    let Some(root) = root() else { return };
    println!("| files | model | metrics | refused |");
    println!("|---|---|---|---|");
    let mut longest = 0;
    for (below, platform) in models(&root) {
        let (catalogue, hardware) = with_directory(&root, below, platform);
        let is_perf_family = |name: &str| name.starts_with("perf-");
        let theirs: Vec<_> = catalogue
            .metrics()
            .filter(|metric| is_perf_family(&metric.family.name))
            .collect();
        let mut without_value = Vec::new();
        for metric in &theirs {
            let is_marked = metric
                .notes
                .iter()
                .any(|it| it.starts_with("A value is marked"));
            assert_eq!(metric.threshold.is_some(), is_marked, "{}", metric.name);
            longest = longest.max(metric.formula.text().len());
            // Some counts make a denominator 0, such as a difference that is clamped at 0: several
            // seeds are tried.
            let values = (0..16).map(|seed| {
                let counts = Counts {
                    seed,
                    ..Counts::default()
                };
                metric.evaluate(&hardware, &counts)
            });
            let value = values.reduce(Result::or).unwrap();
            if let Err(reason) = value {
                without_value.push(format!("{}: {reason}", metric.name));
            }
        }
        let refused = catalogue.refused();
        let evaluated = theirs.len() - without_value.len();
        let all = theirs.len() + refused.len();
        let model = theirs.first().map_or("", |metric| &metric.family.name);
        println!("| {below} | {model} | {all} | {} |", refused.len());
        assert!(without_value.is_empty(), "{without_value:?}");
        for one in refused {
            println!("    {}: {}", one.name, one.reason);
            assert!(!one.reason.is_empty());
        }
        if platform == "spr" {
            assert!(evaluated * 10 >= all * 9, "{evaluated} of {all}");
        }
    }
    println!("longest formula: {longest}");
}

/// The encodings have terms that the drivers list. Metrics without groups need PMUs or events that
/// the recorded machine does not have.
#[test]
fn most_metrics_of_the_real_files_open_on_recorded_machines() {
    let Some(root) = root() else { return };
    for (below, platform) in [
        ("linux-6.12/x86", "spr"),
        ("intel-perfmon", "spr"),
        ("linux-6.12/x86", "zen4"),
        ("linux-6.12/arm64", "grace"),
    ] {
        let (catalogue, _) = with_directory(&root, below, platform);
        let pmus = Pmus::read(&sysfs(platform)).unwrap();
        let theirs = catalogue
            .metrics()
            .filter(|metric| metric.family.name.starts_with("perf-"));
        let (mut all, mut opened) = (0, 0);
        for metric in theirs {
            all += 1;
            match metric.groups(&pmus, &MetricSettings::default()) {
                Ok(_) => opened += 1,
                Err(reason) => println!("    {}: {reason}", metric.name),
            }
        }
        println!("{below} {platform}: {opened} of {all} have groups");
        assert!(opened * 2 >= all, "{below} {platform}: {opened} of {all}");
    }
}
