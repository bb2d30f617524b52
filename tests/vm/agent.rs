//! The agent while CPUs go offline and online, the wall clock is set, and drivers are unloaded and
//! loaded.

use std::{collections::BTreeMap, time::Duration};

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};
use test_harness::{
    Load, TestCgroup,
    agent::{
        Agent, AgentOptions, Series, assert_no_step_back, container_id, find, nanos, own,
        uncertain_time,
    },
    assert_within,
    collector::{Collector, Point, unix_time},
    machine,
};

use crate::{
    hotplug::{Cpu1Offline, go_until_it_works},
    testpmu::TestPmu,
};

const DAY: i64 = 86_400;

/// Sets the wall clock ahead by `seconds`.
fn set_ahead(seconds: i64) {
    let now = clock_gettime(ClockId::Realtime);
    let time = Timespec {
        tv_sec: now.tv_sec + seconds,
        ..now
    };
    clock_settime(ClockId::Realtime, time).unwrap();
}

/// Sets the wall clock a day ahead when it is dropped.
struct SetAheadOnDrop;

impl Drop for SetAheadOnDrop {
    fn drop(&mut self) {
        set_ahead(DAY);
    }
}

/// Asserts that the CPU time of a container is within 1% of the kernel's accounting.
fn assert_cpu_time(series: &Series, what: &str, (container, id): (&TestCgroup, &str)) {
    let name = format!("name=\"{id}\"");
    let family = "pmuscope_events_estimated_seconds_total{";
    let seconds = find(series, &[family, &name, "event=\"task-clock\""]);
    let (counted, expected) = (nanos(seconds.unwrap_or(0.0)), container.cpu_time());
    let uncertain = uncertain_time(series);
    println!("{what}: {counted} of {expected} ns, uncertain {uncertain}");
    let nearest = counted.clamp(expected.saturating_sub(uncertain), expected + uncertain);
    assert_within(what, counted, nearest, 1.0);
}

/// Estimated operations of a container, of all classes.
fn sampled(series: &Series, id: &str) -> f64 {
    let name = format!("name=\"{id}\"");
    let container = series.iter().filter(|(series, _)| {
        series.starts_with("pmuscope_memory_accesses_estimated_total{") && series.contains(&name)
    });
    container.map(|(_, value)| value).sum()
}

/// Start times of totals by name and labels.
type Starts = BTreeMap<(String, String), Duration>;

/// Asserts that pushed points have the present wall-clock time and earlier start times. Returns the
/// start times.
fn assert_times(agent: &Agent, collector: &Collector, what: &str) -> Starts {
    const NEAR: Duration = Duration::from_secs(60);
    let is_off = |point: &&Point| unix_time().abs_diff(point.time) > NEAR;
    // Windows from before the clock was set may be pushed first.
    let points = loop {
        let points = collector.next_points();
        if !points.iter().all(|point| is_off(&point)) {
            break points;
        }
    };
    let now = unix_time();
    assert_eq!(
        points.iter().find(is_off).map(|it| format!("{it:?}")),
        None,
        "{what}: {now:?}"
    );
    let series_starts = points.iter().filter_map(|point| {
        let start = point.start?;
        assert!(
            start <= point.time + Duration::from_secs(1),
            "{what}: {point:?}"
        );
        let (name, labels) = point.series();
        Some(((name.to_owned(), labels.to_owned()), start))
    });
    let starts: Starts = series_starts.collect();
    assert!(starts.len() > 10, "{what}: {starts:?}");
    let line = agent.line();
    let time = humantime::parse_rfc3339(line["time"].as_str().unwrap()).unwrap();
    let time = time.duration_since(std::time::SystemTime::UNIX_EPOCH);
    assert!(now.abs_diff(time.unwrap()) < NEAR, "{what}: {line}");
    starts
}

/// Asserts that all totals started within the last hour.
fn assert_recent(starts: &Starts, what: &str) {
    let now = unix_time();
    let age = starts
        .values()
        .map(|start| now.saturating_sub(*start))
        .max();
    assert!(age.unwrap() < Duration::from_secs(3600), "{what}: {age:?}");
}

#[test]
fn container_cpu_time_survives_cpu_hotplug_and_clock_changes() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    let collector = Collector::start();
    let config = format!(
        "interval = \"200ms\"\n[otlp]\nendpoint = \"http://{}\"\n[spe]\nenabled = true\n",
        collector.address
    );
    let options = AgentOptions {
        config: &config,
        ..AgentOptions::default()
    };
    let agent = Agent::with(&options, |_| {});
    let id = container_id(1);
    let pods = TestCgroup::new("pods");
    let container = pods.child(&format!("docker-{id}.scope"));
    let work = || {
        let mut loads = ["burst 0 300 300 200", "burn 1 100"].map(|words| container.load(words));
        loads.iter_mut().for_each(Load::go);
        for load in loads {
            load.finish();
        }
    };
    let mut last = Series::new();
    let mut check = |what: &str, has_new_samples: bool| {
        agent.next_window();
        let now = agent.series();
        assert_no_step_back(&last, &now);
        assert_cpu_time(&now, what, (&container, &id));
        if has_new_samples {
            let grew = sampled(&now, &id) > sampled(&last, &id);
            assert!(grew, "{what}: no new samples");
        }
        last = now;
    };
    work();
    check("at first", true);
    for round in 0..2 {
        // Runs on CPU 0 while CPU 1 is offline.
        let mut displaced = container.load("burn 1 300");
        go_until_it_works(&mut displaced, &container);
        let offline = Cpu1Offline::new();
        agent.next_window();
        displaced.finish();
        check(&format!("CPU 1 is offline, {round}"), false);
        drop(offline);
        // Time on CPU 1 is not counted until the agent has opened counters there.
        agent.wait_for_log("CPU 1 came online", round + 1);
        agent.next_window();
        work();
        check(&format!("CPU 1 is back, {round}"), true);
    }
    let before = assert_times(&agent, &collector, "before the clock is set");
    assert_recent(&before, "before the clock is set");
    set_ahead(DAY);
    // Start times must not change: for receivers that would be a counter reset.
    let ahead = assert_times(&agent, &collector, "a day ahead");
    let start_pairs = ahead
        .iter()
        .filter_map(|(series, start)| Some((start, before.get(series)?)));
    assert!(start_pairs.clone().count() > 10);
    assert!(
        start_pairs.clone().all(|(ahead, before)| ahead == before),
        "{ahead:?}, {before:?}"
    );
    work();
    check("a day ahead", true);
    set_ahead(-2 * DAY);
    let behind = SetAheadOnDrop;
    let back = assert_times(&agent, &collector, "two days back");
    assert_recent(&back, "two days back");
    work();
    check("two days back", true);
    drop(behind);
    let series = agent.series();
    assert_eq!(own(&series, "failures_total"), 0.0, "{}", agent.log());
    assert_eq!(own(&series, "sessions_total"), 1.0);
    drop((agent, pmu));
}

#[test]
fn a_reloaded_driver_is_counted_again() {
    let Some(_machine) = machine() else { return };
    let options = AgentOptions {
        config: "interval = \"200ms\"\n[count]\nchip = \"grace-cpu-superchip\"\nevents = \"task-clock\"\n\
                 metrics = \"cmem_read_bandwidth\"\n",
        ..AgentOptions::default()
    };
    let agent = Agent::with(&options, |_| {});
    let id = container_id(2);
    let pods = TestCgroup::new("pods");
    let container = pods.child(&format!("docker-{id}.scope"));
    let counted = |series: &Series| {
        let mut names = series.keys();
        names.any(|name| name.starts_with("pmuscope_cmem_read_bandwidth"))
    };
    let mut last = Series::new();
    for round in 0..2 {
        container.load("burn 0 50").finish();
        agent.next_window();
        let without = agent.series();
        assert!(!counted(&without), "absent, not zero");
        assert_no_step_back(&last, &without);
        let pmu = TestPmu::load("set=grace");
        let with = agent.wait_until(counted);
        assert_no_step_back(&without, &with);
        assert!(agent.log().contains("PMUs came: "), "{}", agent.log());
        // The module cannot be unloaded while its events are counted.
        let off = agent.run_file("off");
        std::fs::write(&off, "").unwrap();
        agent.wait_for("/readyz", 503);
        drop(pmu);
        std::fs::remove_file(&off).unwrap();
        agent.wait_for("/readyz", 200);
        println!("round {round}: {} sessions", own(&with, "sessions_total"));
        last = with;
    }
    container.load("burn 0 50").finish();
    agent.next_window();
    let series = agent.series();
    assert_no_step_back(&last, &series);
    assert_cpu_time(&series, "over all sessions", (&container, &id));
    assert_eq!(own(&series, "failures_total"), 0.0, "{}", agent.log());
}
