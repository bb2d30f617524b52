//! `count.top_processes`: rows of the processes with the highest counts of the first event, in
//! addition to the rows of containers.

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;
use test_harness::{
    TestCgroup,
    agent::{Agent, AgentOptions, Series, assert_no_step_back, container_id, find, own},
    load_binary, shared_machine,
};

/// A process that echoes each byte, and so is switched in once for each byte.
struct Pong {
    child: Child,
    rounds: u64,
}

impl Pong {
    fn start(cgroup: &TestCgroup) -> Self {
        let mut command = Command::new(load_binary());
        command.arg("pong").stdin(Stdio::piped());
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        cgroup.adopt(child.id());
        let mut pong = Self { child, rounds: 0 };
        // An answer shows that the process has executed its binary.
        pong.answer(1);
        pong
    }

    fn answer(&mut self, rounds: u64) {
        let (to, from) = (&mut self.child.stdin, &mut self.child.stdout);
        let (to, from) = (to.as_mut().unwrap(), from.as_mut().unwrap());
        for _ in 0..rounds {
            to.write_all(&[0]).unwrap();
            from.read_exact(&mut [0]).unwrap();
        }
        self.rounds += rounds;
    }

    /// Sends bytes until the process is among those that are shown.
    fn until_shown(&mut self, agent: &Agent, container: &str) -> (Series, f64) {
        loop {
            self.answer(500);
            let series = agent.wait_until(|_| true);
            if let Some(switches) = switches(&series, container) {
                return (series, switches);
            }
        }
    }

    /// Sends bytes until the process replaces the one of the other container.
    fn until_gone(&mut self, agent: &Agent, other_id: &str) -> Series {
        loop {
            self.answer(500);
            let series = agent.wait_until(|_| true);
            if switches(&series, other_id).is_none() {
                return series;
            }
        }
    }
}

/// Number of times that a container's process was switched in, as the agent shows it. None where
/// the process is not shown. The series has the id of the initial pid namespace, which the test may
/// not know, so the container identifies the process.
fn switches(series: &Series, container: &str) -> Option<f64> {
    let labels = [
        "pmuscope_process_events_estimated_total{kind=\"process\",name=\"load ",
        "event=\"context-switches\"",
        &format!("container_id=\"{container}\""),
    ];
    find(series, &labels)
}
impl Drop for Pong {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The ids of the processes that are shown.
fn shown(series: &Series) -> BTreeSet<&str> {
    let processes = series.keys();
    let processes = processes.filter(|name| name.starts_with("pmuscope_process_"));
    processes
        .filter_map(|name| name.split_once("pid=\"")?.1.split('"').next())
        .collect()
}

/// Two processes replace each other among those shown. No total decreases or is counted twice while
/// a process is not shown, in a new session, or after a kill. Each total has all counts of its
/// process.
#[test]
fn totals_of_a_process_continue_when_it_is_shown_again() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    let config = |events: &str| {
        format!(
            "interval = \"100ms\"\n[count]\nevents = [\"{events}\"]\ntop_processes = 2\n\
             [state]\npath = {state:?}\n"
        )
    };
    let first_config = config("context-switches,task-clock");
    let options = AgentOptions {
        config: &first_config,
        ..AgentOptions::default()
    };
    let mut agent = Agent::with(&options, |_| {});
    let pods = TestCgroup::new("top");
    let ids = [60, 61].map(container_id);
    let cgroups = ids
        .each_ref()
        .map(|id| pods.child(&format!("docker-{id}.scope")));
    // This process, which sends the bytes, is switched in as often as the other two together, so it
    // is always one of the two that are shown.
    let [mut one, mut other] = cgroups.each_ref().map(Pong::start);
    let [id, other_id] = &ids;

    let (mut series, mut last) = one.until_shown(&agent, id);
    for round in 0..3 {
        let gone = other.until_gone(&agent, id);
        // A process that is not shown is still counted.
        one.answer(20);
        assert_no_step_back(&series, &gone);
        let (_, other_before) = other.until_shown(&agent, other_id);
        match round {
            // A new session in round 1, a new agent in round 2.
            1 => agent.reload(&config("context-switches,page-faults")),
            2 => {
                agent.signal(Signal::KILL);
                agent.ended();
                let text = config("context-switches,page-faults");
                let options = AgentOptions {
                    config: &text,
                    ..AgentOptions::default()
                };
                agent = Agent::with(&options, |_| {});
                series.retain(|name, _| !name.starts_with("pmuscope_self_"));
            }
            _ => {}
        }
        let before = one.rounds;
        let (now, switches) = one.until_shown(&agent, id);
        assert!(shown(&now).len() <= 2, "{:?}", shown(&now));
        assert_no_step_back(&series, &now);
        assert!(switches >= last, "{switches} after {last}");
        if round == 0 {
            let all = one.rounds as f64;
            assert!(switches >= before as f64 - 1.0, "{switches} of {all}");
        }
        // The row of the container contains the counts of its process.
        let name = format!("kind=\"container\",name=\"{id}\"");
        let events = "event=\"context-switches\"";
        let family = "pmuscope_events_estimated_total{";
        let container_switches = find(&now, &[family, &name, events]).unwrap();
        assert!(
            container_switches >= switches - last,
            "{container_switches}"
        );
        let (_, other_after) = other.until_shown(&agent, other_id);
        assert!(other_after >= other_before);
        (series, last) = one.until_shown(&agent, id);
        assert!(last >= switches);
    }
    assert_eq!(own(&series, "left_out_processes"), 0.0);

    // A container with no processes left keeps its row and its totals.
    drop((one, other));
    agent.next_window();
    agent.next_window();
    agent.next_window();
    let after = agent.series();
    assert_no_step_back(&series, &after);
    let name = format!("kind=\"container\",name=\"{id}\"");
    assert!(after.keys().any(|series| series.contains(&name)), "{id}");

    // `series.max` applies to the series of processes too.
    let all = own(&after, "series");
    let fewer = format!(
        "{}[series]\nmax = {}\n",
        config("context-switches,page-faults"),
        all - 6.0
    );
    agent.reload(&fewer);
    let fewer = agent.wait_until(|series| own(series, "left_out_processes") > 0.0);
    assert!(shown(&fewer).len() < 2, "{:?}", shown(&fewer));
}

/// By default no processes are shown, neither in metrics nor in JSON.
#[test]
fn no_processes_are_shown_by_default() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let agent = Agent::start();
    agent.next_window();
    assert_eq!(shown(&agent.series()), BTreeSet::new());
    assert!(agent.line().get("processes").is_none());
}
