//! `max_overhead`: what the agent reduces to stay within it, and that totals continue.

use test_harness::{
    TestCgroup,
    agent::{Agent, AgentOptions, Series, assert_no_step_back, container_id, find, own},
    machine, shared_machine,
};

/// Estimated count of an event in a container.
fn counted(series: &Series, id: &str, event: &str) -> Option<f64> {
    let (name, event) = (format!("name=\"{id}\""), format!("event=\"{event}\""));
    let mut matching = series.iter().filter(|(series, _)| {
        let parts = ["pmuscope_events_estimated_", "total{", &name, &event];
        parts.iter().all(|part| series.contains(part))
    });
    let first = matching.next().map(|(_, value)| *value);
    assert!(
        matching.next().is_none(),
        "{event} of {id} is not one series"
    );
    first
}

/// A budget that is too small to be met: the agent reduces all that it can, reports that in the log
/// and the metrics, and continues with the minimum. Without the budget it counts everything again,
/// and totals continue.
#[test]
fn an_impossible_limit_is_reported_and_the_minimum_is_counted() {
    let Some(_machine) = machine() else { return };
    let options = AgentOptions {
        config: "interval = \"100ms\"\nmax_overhead = \"0.001%\"\n",
        ..AgentOptions::default()
    };
    let mut agent = Agent::with(&options, |_| {});
    let pods = TestCgroup::new("overhead");
    let [id, other] = [1, 2].map(|at| container_id(500 + at));
    let [container, peer] = [&id, &other].map(|id| pods.child(&format!("docker-{id}.scope")));
    // As many switches between two containers as the machine can do.
    let work = || {
        let rounds = format!("pingpong 0 2000 {}", peer.directory.display());
        drop(container.load(&rounds).finish());
        drop(container.load("touch 100").finish());
    };
    work();
    let first = agent.wait_until(|series| {
        [&id, &other].map(|id| counted(series, id, "task-clock")) != [None; 2]
            && series.contains_key("pmuscope_self_agent_overhead_ratio")
    });
    assert!((own(&first, "overhead_budget_ratio") - 1e-5).abs() < 1e-12);

    let mut last = first;
    loop {
        work();
        let now = agent.series();
        assert_no_step_back(&last, &now);
        last = now;
        if own(&last, "overhead_exceeded") == 1.0 {
            break;
        }
    }
    assert!(own(&last, "overhead_level") >= 4.0, "{last:?}");
    assert!(own(&last, "overhead_ratio") > 1e-5);
    let log = agent.log();
    assert_eq!(
        log.matches("max_overhead cannot be held").count(),
        1,
        "{log}"
    );
    let changes = own(&last, "overhead_changes_total");
    assert!(changes >= 1.0);
    let lines = log.matches(" max_overhead: counting takes ").count();
    assert_eq!(lines as f64, changes, "{log}");
    assert!(log.contains("windows 8 times as long"), "{log}");

    // Series of events that are no longer counted are absent, not zero.
    work();
    agent.next_window();
    let least = agent.series();
    assert_no_step_back(&last, &least);
    let faults = ["page-faults", "context-switches"];
    assert_eq!(faults.map(|event| counted(&least, &id, event)), [None; 2]);
    let clock = |series: &Series| counted(series, &id, "task-clock").unwrap();
    assert!(clock(&least) > 0.0);
    let windows = own(&least, "windows_total");

    agent.reload("interval = \"100ms\"\nmax_overhead = \"off\"\n");
    work();
    agent.next_window();
    let all = agent.series();
    assert_no_step_back(&least, &all);
    assert!(own(&all, "windows_total") > windows);
    assert!(clock(&all) > clock(&least));
    assert!(counted(&all, &id, "page-faults").unwrap() >= 100.0);
    for name in ["budget_ratio", "level", "exceeded", "ratio"] {
        let name = format!("pmuscope_self_agent_overhead_{name}");
        assert_eq!(find(&all, &[&name]), None);
    }
}

/// A sufficient budget reduces nothing.
#[test]
fn nothing_is_reduced_within_the_budget() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let options = AgentOptions {
        flags: &["--max-overhead", "100%"],
        ..AgentOptions::default()
    };
    let agent = Agent::with(&options, |_| {});
    let series = agent.wait_until(|series| own(series, "windows_total") >= 8.0);
    assert_eq!(own(&series, "overhead_level"), 0.0);
    assert_eq!(own(&series, "overhead_exceeded"), 0.0);
    assert_eq!(own(&series, "overhead_changes_total"), 0.0);
    assert_eq!(own(&series, "sessions_total"), 1.0);
    assert!(own(&series, "overhead_ratio") > 0.0);
}
