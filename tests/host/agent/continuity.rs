//! Counters continue over reloads, new sessions and the off switch.

use std::fs;

use test_harness::{
    TestCgroup,
    agent::{Agent, Series, assert_no_step_back, container_id, find, own},
    shared_machine,
};

/// CPU time of a container in seconds, as the agent shows it.
fn used(series: &Series, id: &str) -> Option<f64> {
    let name = format!("name=\"{id}\"");
    let family = "pmuscope_events_estimated_seconds_total{";
    find(series, &[family, &name, "event=\"task-clock\""])
}

#[test]
fn totals_continue_across_a_reload_and_an_off_period() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let mut agent = Agent::start();
    let id = container_id(2);
    let pods = TestCgroup::new("agent");
    let container = pods.child(&format!("docker-{id}.scope"));
    let work = || drop(container.load("burn 0 50").finish());
    work();
    agent.next_window();
    let first = agent.series();
    let mut last = used(&first, &id).unwrap();
    assert!(last > 0.04, "{last}");

    // A new event needs a new session.
    agent.reload("interval = \"150ms\"\n[count]\nevents = [\"task-clock,minor-faults\"]\n");
    work();
    agent.next_window();
    let mut reloaded = agent.series();
    // The first switch that the kernel hides splits the slice of the work, and its faults, by time.
    // At most one such switch is missed here, so the work is repeated once.
    let missed = |series| find(series, &["pmuscope_self_missed_switches_total"]).unwrap();
    if missed(&reloaded) > missed(&first) {
        work();
        agent.next_window();
        reloaded = agent.series();
    }
    assert_no_step_back(&first, &reloaded);
    assert_eq!(
        (
            own(&reloaded, "sessions_total"),
            own(&reloaded, "reloads_total")
        ),
        (2.0, 1.0)
    );
    let name = format!("name=\"{id}\"");
    let faults = ["pmuscope_events_total{", &name, "event=\"minor-faults\""];
    assert!(find(&reloaded, &faults).unwrap() > 0.0);
    let now = used(&reloaded, &id).unwrap();
    assert!(now > last + 0.04, "{now} after {last}");
    last = now;
    // The group is new: counts, time enabled and time running begin together.
    let group = |series: &Series, event: &str| {
        let event = format!("event=\"{event}\"");
        let parts = ["pmuscope_events_", "total{", &name, &event, "group="];
        let mut names = series.keys();
        let name = names.find(|it| parts.iter().all(|part| it.contains(part)));
        let label = name.unwrap().split_once("group=\"").unwrap().1;
        label.split_once('"').unwrap().0.to_owned()
    };
    let clock_group = group(&reloaded, "task-clock");
    assert_ne!(group(&first, "task-clock"), clock_group);
    assert_eq!(group(&reloaded, "minor-faults"), clock_group);
    let group_label = format!("group=\"{clock_group}\"");
    let time = |family: &str, event: &str| {
        let value = find(&reloaded, &[family, &name, &group_label, event]);
        value.unwrap_or_else(|| panic!("no {family} in {reloaded:?}"))
    };
    let raw = time("pmuscope_events_seconds_total{", "event=\"task-clock\"");
    let enabled = time("_enabled_seconds_total{", "");
    let running = time("_running_seconds_total{", "");
    for (what, seconds) in [("enabled", enabled), ("running", running)] {
        let error = (raw / seconds - 1.0).abs();
        println!("{raw} s counted in {seconds} s {what}");
        assert!(error < 0.02, "{raw} s counted in {seconds} s {what}");
    }

    // A change of labels or of the interval keeps the session.
    let labelled = "interval = \"200ms\"\n[count]\nevents = [\"task-clock,minor-faults\"]\n\
                    [series.labels]\ncluster = \"a \\\"b\\\"\\n\\\\😀\"\n";
    agent.reload(labelled);
    agent.next_window();
    let labels = agent.series();
    // The agent writes a newline as `\n`, and the exposition format escapes that backslash.
    let label = r#"cluster="a \"b\"\\n\\😀""#;
    assert!(labels.keys().all(|name| name.contains(label)), "{labels:?}");
    agent.reload("interval = \"150ms\"\n[count]\nevents = [\"task-clock,minor-faults\"]\n");
    agent.next_window();
    let unlabelled = agent.series();
    assert_no_step_back(&reloaded, &unlabelled);
    assert_eq!(own(&unlabelled, "sessions_total"), 2.0);

    // The agent is switched off, and on again.
    fs::write(agent.run_file("off"), "").unwrap();
    let why = agent.wait_for("/readyz", 503).text();
    assert!(
        why.starts_with("off, since ") && why.contains("/run/off"),
        "{why}"
    );
    assert_eq!(agent.get("/healthz").status, 200);
    let off = agent.series();
    assert_eq!(own(&off, "off"), 1.0);
    assert_eq!(used(&off, &id), None, "absent, not zero");
    let descriptors = |pid| fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let counters = descriptors(agent.pid()).filter(|fd| {
        let target = fs::read_link(fd.as_ref().unwrap().path());
        target.is_ok_and(|target| target.ends_with("anon_inode:[perf_event]"))
    });
    assert_eq!(counters.count(), 0, "the counters are free");
    fs::remove_file(agent.run_file("off")).unwrap();
    agent.wait_for("/readyz", 200);
    work();
    agent.next_window();
    let on = agent.series();
    assert_no_step_back(&unlabelled, &on);
    assert_no_step_back(&off, &on);
    assert_eq!(own(&on, "sessions_total"), 3.0);
    let now = used(&on, &id).unwrap();
    assert!(now > last + 0.04, "{now} after {last}");
}

#[test]
fn an_invalid_reload_changes_nothing() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let mut agent = Agent::start();
    agent.next_window();
    let before = agent.series();
    for wrong in [
        "interval = \"100ms\"\n[count]\nevnts = []\n",
        "interval = \"100ms\"\n[count]\nevents = [\"no-such-event\"]\n",
        "interval = \"100ms\"\n[count]\nmetrics = [\"no-such-metric\"]\n",
        "[otlp]\nendpoint = \"http://127.0.0.1:1\"\n[count]\nevents = [\"no-such-event\"]\n",
        "interval = \"100ms\"\n[http]\nweb_config = \"/etc/other.yml\"\n",
    ] {
        agent.reload(wrong);
    }
    agent.next_window();
    let after = agent.series();
    assert_no_step_back(&before, &after);
    assert_eq!(own(&after, "refused_reloads_total"), 5.0);
    // A refused configuration starts no pushes to its collector.
    agent.next_window();
    assert_eq!(own(&agent.series(), "failed_pushes_total"), 0.0);
    assert_eq!(own(&after, "reloads_total"), 0.0);
    let log = agent.log();
    for why in [
        "agent.toml:3: count.evnts: there is no such key; the nearest are count.events",
        "no-such-event",
        "no-such-metric",
        "http.listen, http.web_config and run.directory change with a restart only",
    ] {
        assert!(log.contains(why), "{why} is missing:\n{log}");
    }
    // Two scrapes in the same window return the same text: a scrape does not end a window.
    let [one, other] = agent.metrics_of_one_window(["", ""]);
    assert_eq!(one.text(), other.text());
}
