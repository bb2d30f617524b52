//! Shares compared with resctrl's counts in a recording: `pmuscope verify shares`.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Output,
    sync::Arc,
};

use probe_user::machine::resctrl::{GroupBytes, MonitoringGroup};
use serde_json::Value;
use test_harness::pmuscope;

use super::*;
use crate::recorded::{record, record_with};

/// The traffic that resctrl counts for each cgroup, in GB/s.
const COUNTED: f64 = 2.0;

fn verify(file: &Path) -> Output {
    let mut command = pmuscope();
    let command = command.args(["verify", "shares", "--format", "json"]);
    command.arg(file).output().unwrap()
}

/// For each container by name, the sum of its shares in reads and in writes in each window: 0
/// without a share, NaN if a share has no value.
fn shares(file: &Path) -> BTreeMap<String, Vec<f64>> {
    let mut command = pmuscope();
    let replay = command.args(["stat", "--format", "json", "--replay"]);
    let out = replay.arg(file).output().unwrap();
    let mut by_name: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for line in String::from_utf8(out.stdout).unwrap().lines() {
        let window: Value = serde_json::from_str(line).unwrap();
        let rows = window["rows"].as_array().unwrap().iter();
        let containers = rows.filter(|row| row["kind"] == "container");
        let mut sums: BTreeMap<&str, f64> = containers
            .map(|row| (row["name"].as_str().unwrap(), 0.0))
            .collect();
        for share in window["shares"].as_array().unwrap() {
            let metric = share["metric"].as_str().unwrap();
            if metric.starts_with("cmem_") && share["kind"] == "container" {
                let sum = sums.entry(share["name"].as_str().unwrap()).or_default();
                *sum += share["value"].as_f64().unwrap_or(f64::NAN);
            }
        }
        for (name, sum) in sums {
            by_name.entry(name.to_owned()).or_default().push(sum);
        }
    }
    by_name
}

#[test]
fn shares_are_compared_with_resctrl() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.jsonl.gz");
    let mut cgroups = BTreeSet::new();
    for snapshot in Recording::open(&fixture("demo")).unwrap() {
        cgroups.extend(snapshot.unwrap().rows.iter().map(|(key, _)| key.cgroup));
    }
    record_with("demo", &file, |snapshot| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "bytes of minutes"
        )]
        let bytes = (COUNTED * 1e9 * snapshot.at.as_secs_f64()) as u64;
        let monitored = cgroups.iter().map(|cgroup| GroupBytes {
            group: Arc::new(MonitoringGroup {
                path: format!("/sys/fs/resctrl/mon_groups/{}", cgroup.0).into(),
                cgroups: [*cgroup].into(),
            }),
            bytes: [(0, bytes)].into(),
        });
        snapshot.sources.resctrl = Some(monitored.collect());
    });
    let out = verify(&file);
    assert!(out.status.success(), "{out:?}");
    let verified: Value = serde_json::from_slice(&out.stdout).unwrap();
    let shares = shares(&file);
    let mut compared = 0;
    for row in verified["rows"].as_array().unwrap() {
        let Some(shares) = row["labels"]["name"]
            .as_str()
            .and_then(|name| shares.get(name))
        else {
            continue;
        };
        compared += 1;
        let counted = row["counted"].as_f64().unwrap();
        assert!((counted / COUNTED - 1.0).abs() < 1e-6, "{row}");
        let known: Vec<f64> = shares.iter().copied().filter(|it| it.is_finite()).collect();
        assert_eq!(row["windows"], known.len(), "{row}");
        let mut errors: Vec<f64> = known.iter().map(|it| (it / COUNTED - 1.0).abs()).collect();
        errors.sort_by(f64::total_cmp);
        let median = row["median_error"].as_f64().unwrap();
        assert!((median - errors[errors.len() / 2]).abs() < 1e-6, "{row}");
    }
    assert!(compared >= 3, "{verified}");
    assert_eq!(
        verified["methods"],
        serde_json::json!(["llc_read_misses", "write_backs"])
    );
}

#[test]
fn a_recording_without_monitors_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.jsonl.gz");
    record("demo", &file, false);
    let out = verify(&file);
    assert_eq!(out.status.code(), Some(1));
    let error = String::from_utf8(out.stderr).unwrap();
    assert!(
        error.contains("has no counts of resctrl: mount it"),
        "{error}"
    );
}
