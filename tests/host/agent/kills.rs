//! SIGKILL at random delays under load: counters on /metrics never decrease, the programs in the
//! kernel continue to count, and no pins or programs are left at the end.

use std::{
    collections::BTreeSet,
    env, fs, thread,
    time::{Duration, Instant},
};

use aya::programs::loaded_programs;
use rustix::process::Signal;
use test_harness::{
    TestCgroup,
    agent::{
        Agent, AgentOptions, Series, assert_no_step_back, container_id, find, nanos, uncertain_time,
    },
    assert_within, machine, taken_time,
};

use crate::{bpffs::Bpffs, pins::program_id};

/// Returns a function that tells whether a number of kills is enough. `PMUSCOPE_KILLS` sets the
/// number. Without it the test stops after `KILLS`, or after 15 s and 10 kills.
fn enough() -> Box<dyn Fn(u32) -> bool> {
    const KILLS: u32 = 100;
    match env::var("PMUSCOPE_KILLS") {
        Ok(kills) => {
            let kills: u32 = kills.parse().unwrap();
            Box::new(move |done| done >= kills)
        }
        Err(_) => {
            let end = Instant::now() + Duration::from_secs(15);
            Box::new(move |done| done >= KILLS || (done >= 10 && Instant::now() >= end))
        }
    }
}

/// The ids of the loaded programs that a process has open.
fn programs(pid: u32) -> impl Iterator<Item = u32> {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    files.filter_map(|file| program_id(&file.unwrap().path()))
}

/// Random delays from a fixed seed: each run has the same sequence.
struct RandomDelays(u64);

impl RandomDelays {
    fn next(&mut self, most: u64) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_millis(self.0 % most)
    }
}

#[test]
fn counters_never_decrease_across_kills() {
    let Some(_machine) = machine() else { return };
    let mut program_ids = BTreeSet::new();
    let bpffs = Bpffs::mount();
    let state = tempfile::tempdir().unwrap();
    let pins = bpffs.place().0;
    let config = format!(
        "interval = \"20ms\"\n[pins]\npath = {pins:?}\n[state]\npath = {:?}\n",
        state.path()
    );
    let options = AgentOptions {
        config: &config,
        ..AgentOptions::default()
    };
    let id = container_id(80);
    let pods = TestCgroup::new("killed");
    let container = pods.child(&format!("docker-{id}.scope"));
    let name = format!("name=\"{id}\"");
    let used = |series: &Series| {
        let family = "pmuscope_events_estimated_seconds_total{";
        find(series, &[family, &name, "event=\"task-clock\""])
    };

    let mut agent = Agent::with(&options, |_| {});
    let mut load = container.load("burst 0 2000 1000 10000000");
    let taken = taken_time();
    load.go();
    let mut last = agent.wait_until(|series| used(series).is_some());
    let enough = enough();
    let mut delays = RandomDelays(0x9e37_79b9_7f4a_7c15);
    let (mut kills, mut during_start) = (0, 0);
    while !enough(kills) {
        program_ids.extend(programs(agent.pid()));
        if kills % 3 == 2 {
            // Kill the agent during its start or shortly after it.
            agent.signal(Signal::KILL);
            agent.ended();
            agent = Agent::spawn(&options, |_| {});
            thread::sleep(delays.next(400));
            during_start += 1;
        } else {
            thread::sleep(delays.next(60));
        }
        agent.signal(Signal::KILL);
        agent.ended();
        kills += 1;
        agent = Agent::with(&options, |_| {});
        let now = agent.wait_until(|series| used(series).is_some());
        last.retain(|name, _| !name.starts_with("pmuscope_self_"));
        assert_no_step_back(&last, &now);
        last = now;
    }
    println!("{kills} kills, {during_start} of them during or soon after a start");
    let least = container.cpu_time();
    agent.next_window();
    let series = agent.series();
    let most = container.cpu_time() + taken_time() - taken;
    // Events during a handover are attributed to no row: about 0.1 ms for each CPU and start, more
    // where the start is killed during the handover or waits for a CPU.
    let gap = nanos(series["pmuscope_self_handover_gap_seconds_total"]);
    let uncertain = uncertain_time(&series);
    let counted = nanos(used(&series).unwrap());
    println!("counted {counted} of {least} to {most}, gap {gap}, uncertain {uncertain}");
    let nearest = counted.clamp(least.saturating_sub(gap + uncertain), most + uncertain);
    assert_within("over all kills", counted, nearest, 1.0);
    agent.signal(Signal::TERM);
    assert!(agent.ended().success());
    drop(load);
    assert!(bpffs.is_empty(), "pins are left");
    // The kernel frees the programs asynchronously.
    assert!(!program_ids.is_empty());
    let loaded = || {
        let ids = loaded_programs().filter_map(|info| Some(info.ok()?.id()));
        ids.filter(|id| program_ids.contains(id)).count()
    };
    while loaded() > 0 {
        thread::yield_now();
    }
}
