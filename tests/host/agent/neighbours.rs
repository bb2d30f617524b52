//! The verdict on a container that waits for CPUs behind another one.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use test_harness::{
    Load, TestCgroup,
    agent::{Agent, AgentOptions, Series, container_id, find},
    machine,
};

fn signal(load: &Load, signal: Signal) {
    let pid = Pid::from_raw(load.pid().cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
    if signal == Signal::STOP {
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).unwrap();
    }
}

/// The verdict on a container; None while its usual waits are not known.
fn verdict(series: &Series, container: &str) -> Option<f64> {
    find(series, &["pmuscope_noisy_neighbour_cpu{", container])
}

#[test]
fn the_verdict_is_set_while_a_container_waits_behind_another_one() {
    let Some(_machine) = machine() else { return };
    let pod = TestCgroup::new("neighbours");
    let [victim, loud] = [1, 2].map(container_id);
    let cgroups = [&victim, &loud].map(|id| pod.child(id));
    // Real-time tasks of one priority wait for each other alone, whatever else the machine does.
    let mut loads = [
        cgroups[0].load("burst 0 1000 1000 600000 fifo"),
        cgroups[1].load("burst 0 8000 2000 600000 fifo"),
    ];
    loads.iter_mut().for_each(Load::go);
    signal(&loads[1], Signal::STOP);
    let options = AgentOptions {
        config: "interval = \"200ms\"\n[count]\nmetrics = [\"group:wait\"]\n",
        ..AgentOptions::default()
    };
    let agent = Agent::with(&options, |_| {});
    agent.wait_until(|series| verdict(series, &victim) == Some(0.0));
    signal(&loads[1], Signal::CONT);
    let series = agent.wait_until(|series| verdict(series, &victim) == Some(1.0));
    let behind = [
        "pmuscope_cpu_wait_behind_seconds_total{",
        &format!("name=\"{victim}\""),
        &format!("behind_name=\"{loud}\""),
    ];
    assert!(find(&series, &behind).is_some_and(|seconds| seconds > 0.1));
    let log = agent.log();
    let start = format!("noisy neighbour: {}", &victim[..12]);
    let lines: Vec<_> = log.lines().filter(|line| line.contains(&start)).collect();
    let [line] = lines.as_slice() else {
        panic!("{log}")
    };
    let (who, suspects) = line.split_once("mostly for ").unwrap();
    assert!(who.contains("% of its time"), "{line}");
    assert!(suspects.contains(&loud[..12]), "{line}");
    signal(&loads[1], Signal::STOP);
    agent.wait_until(|series| verdict(series, &victim) == Some(0.0));
}
