//! Capabilities that a running agent keeps.

use std::{fs, os::unix::process::CommandExt as _};

use test_harness::{
    agent::{Agent, AgentOptions, own},
    shared_machine,
};

use crate::{hidden::exits_can_be_watched, nobody::Programs};

/// `CAP_IPC_LOCK`, `CAP_PERFMON` and `CAP_BPF` of `linux/capability.h`.
const NEEDED: u64 = 1 << 14 | 1 << 38 | 1 << 39;

/// The number of threads that communicate with others: they serve `/metrics`, write lines of JSON,
/// and push to a collector.
const UNPRIVILEGED_THREADS: usize = 3;

/// The capability sets of every thread: permitted, effective, inheritable, ambient.
fn capabilities(agent: &Agent) -> Vec<[u64; 4]> {
    let tasks = fs::read_dir(format!("/proc/{}/task", agent.pid())).unwrap();
    let sets = |task: std::io::Result<fs::DirEntry>| {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        ["CapPrm", "CapEff", "CapInh", "CapAmb"].map(|name| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
        })
    };
    tasks.map(sets).collect()
}

#[test]
fn the_agent_keeps_only_the_capabilities_that_counting_needs() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let options = AgentOptions {
        config: "interval = \"200ms\"\n[otlp]\nendpoint = \"http://127.0.0.1:1\"\n",
        ..AgentOptions::default()
    };
    let agent = Agent::with(&options, |_| {});
    agent.next_window();
    let all = capabilities(&agent);
    assert!(all.len() >= 2, "the server has a thread of its own");
    // Threads that query container runtimes have no capabilities.
    let has_only_needed = |[permitted, effective, rest @ ..]: &[u64; 4]| {
        permitted & !NEEDED == 0 && effective == permitted && *rest == [0, 0]
    };
    assert!(all.iter().all(has_only_needed), "{all:x?}");
    assert!(all.contains(&[NEEDED, NEEDED, 0, 0]), "{all:x?}");
    // Only the main thread counts, so only it keeps capabilities.
    let without_capabilities = all.iter().filter(|sets| **sets == [0; 4]).count();
    assert!(without_capabilities >= UNPRIVILEGED_THREADS, "{all:x?}");
    assert_eq!(without_capabilities, all.len() - 1, "{all:x?}");
}

#[test]
fn drop_all_drops_all_capabilities() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let options = AgentOptions {
        flags: &["--drop-all"],
        ..AgentOptions::default()
    };
    let mut agent = Agent::with(&options, |_| {});
    agent.next_window();
    let all = capabilities(&agent);
    assert!(all.iter().all(|sets| *sets == [0; 4]), "{all:x?}");
    // After that, the events cannot change, but the interval can.
    agent.reload("interval = \"150ms\"\n[count]\nevents = [\"minor-faults\"]\n");
    agent.reload("interval = \"150ms\"\n");
    agent.next_window();
    let series = agent.series();
    assert_eq!(own(&series, "refused_reloads_total"), 1.0);
    assert_eq!(own(&series, "reloads_total"), 1.0);
    assert!(
        agent
            .log()
            .contains("all capabilities were given up (--drop-all)")
    );
}

/// Names of the programs with a link that the agent holds.
fn attached(agent: &Agent) -> Vec<String> {
    let directory = fs::read_dir(format!("/proc/{}/fdinfo", agent.pid())).unwrap();
    let id = |file: std::io::Result<fs::DirEntry>| {
        let text = fs::read_to_string(file.unwrap().path()).ok()?;
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<u32>().ok()
        };
        value("link_id:").and(value("prog_id:"))
    };
    let ids: Vec<u32> = directory.filter_map(id).collect();
    let programs = aya::programs::loaded_programs().map(Result::unwrap);
    let linked = programs.filter(|program| ids.contains(&program.id()));
    let name = |program: aya::programs::ProgramInfo| program.name_as_str().unwrap().to_owned();
    linked.map(name).collect()
}

/// Without rights the agent could not attach these programs later, after a missed switch.
#[test]
fn without_rights_hidden_switches_are_seen_from_the_start() {
    let Some(_machine) = shared_machine().filter(|_| exits_can_be_watched()) else {
        return;
    };
    let options = AgentOptions {
        flags: &["--drop-all"],
        ..AgentOptions::default()
    };
    let agent = Agent::with(&options, |_| {});
    agent.next_window();
    let attached = attached(&agent);
    for name in ["sched_switch", "sched_exit"] {
        assert!(attached.iter().any(|it| it == name), "{attached:?}");
    }
}

/// An unprivileged user with only `CAP_BPF` and `CAP_PERFMON` can count.
#[test]
fn two_capabilities_suffice() {
    const NOBODY: u32 = 65534;
    use rustix::thread::{
        CapabilitySet, CapabilitySets, configure_capability_in_ambient_set, set_capabilities,
    };

    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(directory.path(), Some(NOBODY), None).unwrap();
    let programs = Programs::new();
    let mut command = programs.pmuscope();
    command
        .args([
            "agent",
            "--listen",
            "off",
            "--interval",
            "50ms",
            "--json",
            "-",
        ])
        .arg("--run-directory")
        .arg(directory.path().join("run"))
        .stdout(std::process::Stdio::piped())
        .stderr(fs::File::create(directory.path().join("log")).unwrap());
    let become_nobody = || {
        let two = CapabilitySet::BPF | CapabilitySet::PERFMON;
        let sets = |extra| CapabilitySets {
            effective: two | extra,
            permitted: two | extra,
            inheritable: two | extra,
        };
        // The permitted set survives the change of the user, and is then reduced to the two
        // capabilities.
        rustix::thread::set_keep_capabilities(true)?;
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(NOBODY))?;
        set_capabilities(None, sets(CapabilitySet::empty()))?;
        for capability in [CapabilitySet::BPF, CapabilitySet::PERFMON] {
            configure_capability_in_ambient_set(capability, true)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls only.
    unsafe { command.pre_exec(become_nobody) };
    let mut agent = command.spawn().unwrap();
    let mut line = String::new();
    let lines = std::io::BufReader::new(agent.stdout.take().unwrap());
    let read = std::io::BufRead::read_line(&mut { lines }, &mut line);
    agent.kill().unwrap();
    agent.wait().unwrap();
    let log = fs::read_to_string(directory.path().join("log")).unwrap();
    assert!(read.unwrap() > 0, "{log}");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(
        line["rows"].as_array().is_some_and(|rows| !rows.is_empty()),
        "{log}"
    );
}
