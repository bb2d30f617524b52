//! `count.sample`: estimates from samples next to exact counts.

use std::path::Path;

use rustix::process::Signal;
use test_harness::{
    TestCgroup,
    agent::{Agent, AgentOptions, Series, assert_no_step_back, container_id, find, own},
    machine, shared_machine,
};

use crate::bpffs::Bpffs;

/// With a period of 1 each fault is a sample.
const SAMPLED: &str = "sample = \"page-faults/period=1/\"\nsample_budget = \"100%\"\n";

fn config(events: &str, bpffs: &Bpffs, state: &Path) -> String {
    let pins = bpffs.place().0;
    format!(
        "interval = \"200ms\"\n[count]\nevents = [\"{events}\"]\n{SAMPLED}\
         [pins]\npath = {pins:?}\n[state]\npath = {state:?}\n"
    )
}

/// Estimate of a container's faults, and the number of samples behind it.
fn sampled(series: &Series, id: &str) -> Option<(f64, f64)> {
    let name = format!("name=\"{id}\"");
    let value = |family: &str| find(series, &[family, &name]);
    Some((
        value("pmuscope_sampled_page_faults_estimated_total{")?,
        value("pmuscope_sampled_page_faults_samples_total{")?,
    ))
}

fn counted(series: &Series, id: &str) -> f64 {
    let name = format!("name=\"{id}\"");
    let family = "pmuscope_events_estimated_total{";
    find(series, &[family, &name, "event=\"page-faults\""]).unwrap()
}

/// Totals of samples continue in a new session, after a time off and after a kill. They are close
/// to the exact counts.
#[test]
fn totals_of_samples_continue() {
    const PROCESSES: u32 = 20;
    const PAGES: u32 = 100;
    let Some(_machine) = machine() else { return };
    let bpffs = Bpffs::mount();
    let state = tempfile::tempdir().unwrap();
    let id = container_id(70);
    let pods = TestCgroup::new("samples");
    let container = pods.child(&format!("docker-{id}.scope"));
    let text = config("page-faults,task-clock", &bpffs, state.path());
    let other = config("page-faults,context-switches", &bpffs, state.path());
    let options = |text| AgentOptions {
        config: text,
        ..AgentOptions::default()
    };
    let mut agent = Agent::with(&options(&text), |_| {});
    let mut before = Series::new();
    for step in 0..4 {
        match step {
            1 => agent.reload(&other),
            2 => {
                let off = agent.run_file("off");
                std::fs::write(&off, "").unwrap();
                agent.wait_for("/readyz", 503);
                std::fs::remove_file(&off).unwrap();
                agent.wait_for("/readyz", 200);
            }
            3 => {
                agent.signal(Signal::KILL);
                agent.ended();
                agent = Agent::with(&options(&other), |_| {});
                before.retain(|name, _| !name.starts_with("pmuscope_self_"));
            }
            _ => {}
        }
        // Many processes, because a process with missed switches has its faults attributed
        // elsewhere.
        for _ in 0..PROCESSES {
            container.load(&format!("touch {PAGES}")).finish();
        }
        agent.next_window();
        let last = sampled(&before, &id).unwrap_or_default();
        let now = agent.series();
        assert_no_step_back(&before, &now);
        let (estimated, samples) = sampled(&now, &id).unwrap();
        let exact = counted(&now, &id);
        println!("step {step}: {estimated} by {samples} samples, {exact} counted");
        assert!(
            (estimated / exact - 1.0).abs() < 0.1,
            "{estimated}, {exact}"
        );
        // Each fault is one sample. The estimate is scaled by the counts of the whole CPU.
        assert!(samples > last.1 && samples <= exact, "{samples}, {exact}");
        let gained = estimated - last.0;
        assert!(gained >= 0.9 * f64::from(PROCESSES * PAGES), "{gained}");
        before = now;
    }
    assert_eq!(own(&before, "failures_total"), 0.0);
    // JSON uses the names of `stat --sample`.
    let line = agent.line();
    let rows = line["rows"].as_array().unwrap();
    let system = rows.iter().find(|row| row["kind"] == "system").unwrap();
    assert!(
        system["events"]["sampled_page-faults"].is_object(),
        "{system}"
    );
}

/// Sampling is reduced last, and returns when the budget allows it.
#[test]
fn sampling_is_reduced_last() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let id = container_id(71);
    let pods = TestCgroup::new("given-up");
    let container = pods.child(&format!("docker-{id}.scope"));
    let count = format!("[count]\nevents = [\"page-faults,task-clock\"]\n{SAMPLED}");
    let config =
        |budget: &str| format!("interval = \"100ms\"\nmax_overhead = \"{budget}\"\n{count}");
    let text = config("100%");
    let options = AgentOptions {
        config: &text,
        ..AgentOptions::default()
    };
    let mut agent = Agent::with(&options, |_| {});
    container.load("touch 1000").finish();
    let before = agent.wait_until(|series| sampled(series, &id).is_some());
    agent.reload(&config("0.001%"));
    let exceeded = agent.wait_until(|series| own(series, "overhead_exceeded") == 1.0);
    assert_no_step_back(&before, &exceeded);
    agent.next_window();
    assert_eq!(sampled(&agent.series(), &id), None, "absent, not zero");
    let log = agent.log();
    let given_up = "software counters, windows 8 times as long instead of ";
    assert!(log.contains(given_up), "{log}");

    agent.reload(&config("off"));
    container.load("touch 1000").finish();
    let again = agent.wait_until(|series| sampled(series, &id).is_some());
    assert_no_step_back(&before, &again);
}

/// A reload with an event that cannot be sampled is refused, with the reason and what to do.
#[test]
fn an_event_that_cannot_be_sampled_is_reported() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let mut agent = Agent::start();
    for (sample, why) in [
        ("no-such-event", "count.sample: "),
        (
            "{cpu-clock,page-faults}",
            "events are sampled each by itself",
        ),
        ("cpu-clock/period=1/", "is below the 10000 ns"),
    ] {
        agent.reload(&format!("[count]\nsample = \"{sample}\"\n"));
        let log = agent.log();
        let is_logged = log.contains(why) && log.contains("the settings stay as they are");
        assert!(is_logged, "{sample}: {log}");
    }
    agent.next_window();
    assert_eq!(own(&agent.series(), "refused_reloads_total"), 3.0);
}
