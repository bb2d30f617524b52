//! Timestamps of the agent's own counters, also in a time namespace and while counting is off.

use std::{collections::BTreeMap, fs, process::Stdio, time::Duration};

use test_harness::{
    agent::{Agent, AgentOptions},
    collector::{Collector, Point, unix_time},
    pmuscope, shared_machine,
};

/// Tolerance for two clocks that are read one after the other on a busy machine.
const TOLERANCE: Duration = Duration::from_secs(2);

/// Asserts that all points are recent, and that the agent's own counters started between the two
/// times.
#[track_caller]
fn assert_times(points: &[Point], [before, after]: [Duration; 2]) {
    let now = unix_time();
    let is_own = |point: &&Point| {
        point.name.starts_with("pmuscope.self.agent")
            || point.name.starts_with("pmuscope_self_agent")
    };
    assert!(points.iter().filter(is_own).count() > 10, "{points:?}");
    for point in points {
        let age = now.abs_diff(point.time);
        assert!(age < Duration::from_secs(60), "{point:?} at {now:?}");
    }
    for point in points.iter().filter(is_own) {
        let Some(start) = point.start else { continue };
        assert!(
            start + TOLERANCE >= before && start <= after + TOLERANCE,
            "{point:?}"
        );
    }
}

/// Counters that continue in a new session, and the agent's own counters while it is off, keep
/// their start time. A collector takes a new start time for a reset.
#[test]
fn counters_keep_their_start() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let collector = Collector::start();
    let config = |events: &str| {
        format!(
            "interval = \"100ms\"\n[otlp]\nendpoint = \"http://{}\"\n\
             [count]\nevents = [\"{events}\"]\n",
            collector.address
        )
    };
    let before = unix_time();
    let text = config("task-clock,page-faults");
    let options = AgentOptions {
        config: &text,
        ..AgentOptions::default()
    };
    let mut agent = Agent::with(&options, |_| {});
    let started = [before, unix_time()];
    let mut starts = BTreeMap::new();
    let mut check = |points: Vec<Point>| {
        assert_times(&points, started);
        for point in &points {
            let Some(start) = point.start else { continue };
            // Counters of the BPF programs start with each session.
            if point.name.contains("self") && !point.name.contains("self_agent") {
                continue;
            }
            let (name, labels) = point.series();
            let key = (name.to_owned(), labels.to_owned());
            let first = *starts.entry(key).or_insert(start);
            // Receivers would take another start time for a reset of the total.
            assert_eq!(start, first, "{point:?}");
        }
    };
    check(collector.next_points());
    agent.reload(&config("task-clock,minor-faults"));
    check(collector.next_points());
    fs::write(agent.run_file("off"), "").unwrap();
    agent.wait_for("/readyz", 503);
    check(collector.next_points());
    fs::remove_file(agent.run_file("off")).unwrap();
    agent.wait_for("/readyz", 200);
    check(collector.next_points());
}

/// In a time namespace, `CLOCK_MONOTONIC` of the agent differs from the clock of the BPF programs.
#[test]
fn timestamps_are_right_in_a_time_namespace() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let collector = Collector::start();
    let directory = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("unshare");
    command
        .args(["--time", "--monotonic", "100000", "--fork", "--kill-child"])
        .arg(pmuscope().get_program())
        .args(["agent", "--interval", "100ms", "--listen", "off"])
        .arg("--run-directory")
        .arg(directory.path())
        .env(
            "PMUSCOPE_AGENT_OTLP_ENDPOINT",
            format!("http://{}", collector.address),
        )
        .stdin(Stdio::null());
    let unshared = std::process::Command::new("unshare")
        .args(["--time", "--monotonic", "100000", "--fork", "true"])
        .status();
    if !unshared.is_ok_and(|status| status.success()) {
        println!("skipped: this process may not make time namespaces");
        return;
    }
    let before = unix_time();
    let mut agent = command.spawn().unwrap();
    let first = collector.points();
    let started = [before, unix_time()];
    assert_times(&first, started);
    fs::write(directory.path().join("off"), "").unwrap();
    // While the agent is off it exports only its own metrics.
    let off = loop {
        let points = collector.points();
        let is_own = |point: &Point| {
            point.name.contains("self_agent") || point.name == "pmuscope_absent_values"
        };
        if points.iter().all(is_own) {
            break points;
        }
    };
    assert_times(&off, started);
    agent.kill().unwrap();
    agent.wait().unwrap();
}
