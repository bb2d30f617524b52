//! The programs continue to count while no agent runs, and totals continue after a kill.

use std::{fs, path::Path};

use rustix::process::{Pid, Signal, kill_process};
use test_harness::{
    TestCgroup,
    agent::{Agent, AgentOptions, Series, assert_no_step_back, container_id, find, own},
    pmuscope, shared_machine,
};

use crate::bpffs::Bpffs;

fn config(bpffs: &Bpffs, state: &Path) -> String {
    let pins = bpffs.place().0;
    format!("interval = \"200ms\"\n[pins]\npath = {pins:?}\n[state]\npath = {state:?}\n")
}

/// The series without the agent's own metrics.
fn counted(agent: &Agent) -> Series {
    let mut series = agent.series();
    series.retain(|name, _| !name.starts_with("pmuscope_self_"));
    series
}

/// CPU time of a container in seconds.
fn used(series: &Series, id: &str) -> f64 {
    let name = format!("name=\"{id}\"");
    let family = "pmuscope_events_estimated_seconds_total{";
    find(series, &[family, &name, "event=\"task-clock\""]).unwrap()
}

#[test]
fn totals_continue_after_a_kill() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let bpffs = Bpffs::mount();
    let state = tempfile::tempdir().unwrap();
    let config = config(&bpffs, state.path());
    let options = AgentOptions {
        config: &config,
        ..AgentOptions::default()
    };
    let id = container_id(7);
    let pods = TestCgroup::new("restart");
    let container = pods.child(&format!("docker-{id}.scope"));
    let work = || drop(container.load("burn 0 50").finish());

    let mut agent = Agent::with(&options, |_| {});
    work();
    agent.next_window();
    let mut before = counted(&agent);
    for _ in 0..3 {
        agent.signal(Signal::KILL);
        agent.ended();
        assert!(!bpffs.is_empty(), "the programs count on");
        // This work runs while no agent does.
        work();
        agent = Agent::with(&options, |_| {});
        agent.next_window();
        let after = counted(&agent);
        assert_no_step_back(&before, &after);
        let gained = used(&after, &id) - used(&before, &id);
        assert!((0.045..0.1).contains(&gained), "{gained}: {}", agent.log());
        before = after;
    }
    assert_eq!(self_metric(&agent, "handovers_total"), 3.0);
    agent.signal(Signal::TERM);
    agent.ended();
    assert!(bpffs.is_empty(), "an orderly end removes the pins");

    // Only the saved totals are left, so work without an agent is not counted.
    work();
    let agent = Agent::with(&options, |_| {});
    agent.next_window();
    let after = counted(&agent);
    assert_no_step_back(&before, &after);
    let gained = used(&after, &id) - used(&before, &id);
    assert!(gained < 0.045, "{gained}");
}

/// The last saved totals are older than the last exported ones. A new session does not continue
/// from the saved ones.
#[test]
fn nothing_is_counted_twice_after_failed_saves() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let state = tempfile::tempdir().unwrap();
    let config = |events: &str| {
        let path = state.path();
        format!("interval = \"200ms\"\n[count]\nevents = [{events:?}]\n[state]\npath = {path:?}\n")
    };
    let options = AgentOptions {
        config: &config("task-clock"),
        ..AgentOptions::default()
    };
    let id = container_id(8);
    let pods = TestCgroup::new("unsaved");
    let container = pods.child(&format!("docker-{id}.scope"));
    let work = || drop(container.load("burn 0 50").finish());
    let agent = Agent::with(&options, |_| {});
    work();
    agent.wait_until(|_| state.path().join("totals").exists());
    // A directory with the name of the temporary file makes each save fail.
    fs::create_dir(state.path().join("totals.new")).unwrap();
    agent.wait_until(|series| own(series, "failed_saves_total") > 0.0);
    work();
    agent.next_window();
    agent.next_window();
    let before = agent.series();
    // Off and on again: a new session with the same events.
    fs::write(agent.run_file("off"), "").unwrap();
    agent.wait_until(|series| find(series, &["pmuscope_self_agent_off"]) == Some(1.0));
    fs::remove_file(agent.run_file("off")).unwrap();
    agent.next_window();
    work();
    agent.next_window();
    agent.next_window();
    let after = agent.series();
    let gained = used(&after, &id) - used(&before, &id);
    assert!((0.045..0.1).contains(&gained), "{gained}: {}", agent.log());
}

/// The folded row continues too, with the counts of containers that have ended.
#[test]
fn the_folded_row_continues_after_a_kill() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let state = tempfile::tempdir().unwrap();
    let config = format!(
        "interval = \"200ms\"\n[state]\npath = {:?}\n[series]\nmax = 1\n",
        state.path()
    );
    let options = AgentOptions {
        config: &config,
        ..AgentOptions::default()
    };
    let pods = TestCgroup::new("folded");
    let container = |at| pods.child(&format!("docker-{}.scope", container_id(at)));
    let (stays, ends) = (container(20), container(21));
    let others = |series: &Series| {
        let family = "pmuscope_events_estimated_seconds_total{";
        find(series, &[family, "kind=\"other\"", "event=\"task-clock\""])
    };
    let mut agent = Agent::with(&options, |_| {});
    stays.load("burn 0 30").finish();
    ends.load("burn 0 60").finish();
    let mut before = agent.wait_until(|series| others(series).is_some_and(|it| it >= 0.085));
    drop(ends);
    agent.next_window();
    agent.next_window();
    for _ in 0..2 {
        let last = others(&before).unwrap();
        agent.signal(Signal::KILL);
        agent.ended();
        agent = Agent::with(&options, |_| {});
        stays.load("burn 0 30").finish();
        let after = agent.wait_until(|series| others(series).is_some_and(|it| it > last + 0.02));
        before.retain(|name, _| !name.starts_with("pmuscope_self_"));
        assert_no_step_back(&before, &after);
        before = after;
    }
    // 30 ms for each of three runs, and the 60 ms of the container that ended. Containers of other
    // tests may add to that.
    assert!(others(&before).unwrap() >= 0.14);
}

fn self_metric(agent: &Agent, name: &str) -> f64 {
    let series = agent.series();
    find(&series, &[&format!("pmuscope_self_{name}")]).unwrap()
}

#[test]
fn keep_pins_leaves_the_pins_and_unpin_removes_them() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let bpffs = Bpffs::mount();
    let state = tempfile::tempdir().unwrap();
    let config = config(&bpffs, state.path());
    let options = AgentOptions {
        config: &config,
        flags: &["--keep-pins"],
        ..AgentOptions::default()
    };
    let unpin = || {
        let mut pmuscope = pmuscope();
        pmuscope.args(["agent", "--unpin"]);
        pmuscope.env("PMUSCOPE_AGENT_PINS_PATH", bpffs.place().0);
        let output = pmuscope.output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    };
    let agent = Agent::with(&options, |_| {});
    let (code, text) = unpin();
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("another pmuscope keeps its pins in "),
        "{text}"
    );
    agent.signal(Signal::TERM);
    agent.ended();
    assert!(!bpffs.is_empty());
    let (code, text) = unpin();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("removed the pins in "), "{text}");
    assert!(bpffs.is_empty());
    let (code, text) = unpin();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("there are no pins in "), "{text}");
}

/// Where neither pins nor the state can be saved, the agent counts anyway, and logs both.
#[test]
fn the_agent_counts_without_a_bpffs_or_a_state_directory() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let pins = directory.path().join("pins");
    let config =
        format!("interval = \"200ms\"\n[pins]\npath = {pins:?}\n[state]\npath = {file:?}\n");
    let options = AgentOptions {
        config: &config,
        ..AgentOptions::default()
    };
    let agent = Agent::with(&options, |_| {});
    agent.next_window();
    let log = agent.log();
    assert!(log.contains("counting ends with the agent now"), "{log}");
    assert_eq!(log.matches("cannot save totals").count(), 1, "{log}");
    let series = agent.series();
    assert!(own(&series, "failed_saves_total") > 0.0);
    assert!(find(&series, &["pmuscope_self_handovers_total"]).is_none());
}

/// The process that saves the totals of an agent.
fn saver(agent: &Agent) -> Option<Pid> {
    let tasks = fs::read_dir(format!("/proc/{}/task", agent.pid())).unwrap();
    let children =
        tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("children")).ok());
    let children: Vec<String> = children.collect();
    let mut children = children.iter().flat_map(|line| line.split_whitespace());
    let child = children.find(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline"));
        line.is_ok_and(|line| line.contains("--save-state"))
    });
    Pid::from_raw(child?.parse().unwrap())
}

/// A file system that does not respond, for example a frozen one, blocks the process that saves
/// totals, and such a process cannot be killed. Windows continue, the agent can exit, and totals
/// are saved when the file system responds again.
#[test]
fn a_hanging_disk_delays_nothing() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let state = tempfile::tempdir().unwrap();
    let config = format!("interval = \"100ms\"\n[state]\npath = {:?}\n", state.path());
    let options = AgentOptions {
        config: &config,
        ..AgentOptions::default()
    };
    let agent = Agent::with(&options, |_| {});
    agent.next_window();
    let child = saver(&agent).unwrap();
    kill_process(child, Signal::STOP).unwrap();
    agent.wait_until(|series| own(series, "failed_saves_total") >= 3.0);
    assert_eq!(agent.get("/readyz").status, 200);
    assert_eq!(agent.log().matches("cannot save totals").count(), 1);
    kill_process(child, Signal::CONT).unwrap();
    let mut failed = own(&agent.series(), "failed_saves_total");
    loop {
        agent.next_window();
        let now = own(&agent.series(), "failed_saves_total");
        if std::mem::replace(&mut failed, now) == now {
            break;
        }
    }
    assert!(
        agent.log().contains("totals are saved again"),
        "{}",
        agent.log()
    );
    kill_process(child, Signal::STOP).unwrap();
    agent.signal(Signal::TERM);
    assert!(agent.ended().success());
    kill_process(child, Signal::KILL).unwrap();
    // The saved totals are continued, and the lock of the state is free.
    let agent = Agent::with(&options, |_| {});
    agent.next_window();
}

/// A disk becomes full and later has space again. Counting continues, each change is logged once,
/// and totals saved before a kill are continued.
#[test]
fn a_kill_on_a_full_disk_keeps_the_saved_totals() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let _private = Bpffs::mount();
    let disk = tempfile::tempdir().unwrap();
    let none = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", disk.path(), "tmpfs", none, Some(c"size=1m")).unwrap();
    let state = disk.path().join("state");
    let config = format!("interval = \"100ms\"\n[state]\npath = {state:?}\n");
    let options = AgentOptions {
        config: &config,
        ..AgentOptions::default()
    };
    let id = container_id(30);
    let pods = TestCgroup::new("full");
    let container = pods.child(&format!("docker-{id}.scope"));
    let agent = Agent::with(&options, |_| {});
    container.load("burn 0 50").finish();
    agent.next_window();
    let saved = counted(&agent);
    assert_eq!(own(&agent.series(), "failed_saves_total"), 0.0);
    // Fill the disk.
    let rest = disk.path().join("rest");
    let error = fs::write(&rest, vec![0; 2 << 20]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    agent.wait_until(|series| own(series, "failed_saves_total") >= 3.0);
    assert_eq!(agent.log().matches("cannot save totals").count(), 1);
    let on_a_full_disk = counted(&agent);
    assert_no_step_back(&saved, &on_a_full_disk);
    agent.signal(Signal::KILL);
    agent.ended();
    let agent = Agent::with(&options, |_| {});
    agent.next_window();
    assert_no_step_back(&saved, &counted(&agent));
    fs::remove_file(&rest).unwrap();
    agent.next_window();
    agent.next_window();
    let log = agent.log();
    assert!(log.contains("totals are saved again"), "{log}");
    drop(agent);
    let detach = rustix::mount::UnmountFlags::DETACH;
    rustix::mount::unmount(disk.path(), detach).unwrap();
}
