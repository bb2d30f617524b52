//! For whom containers wait: what weights divide, and who is named.

use std::{thread, time::Duration};

use probe_user::{
    derive::{FindingSubject, Report, Subject},
    join::{By, Entity, View},
    snapshot::{Snapshot, WaitDelta},
    window::Window,
};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use test_harness::{Counting, Load, TestCgroup, machine};

use crate::controlled::Controlled;

const EVENTS: &str = "cpu-wait,cpu-waits,unknown-cpu-waits,task-clock";

fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn signal(load: &Load, signal: Signal) {
    let pid = Pid::from_raw(load.pid().cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Stops a load, and waits until it has stopped: it handles the signal when it runs next.
fn stop(load: &Load) {
    signal(load, Signal::STOP);
    let pid = Pid::from_raw(load.pid().cast_signed()).unwrap();
    let stopped = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).unwrap();
    assert!(stopped.is_some_and(|status| status.stopped()));
}

/// Of two loops on one CPU with weights 1:3, each waits as long as the other one runs.
#[test]
fn weights_divide_a_cpu_and_its_waits() {
    let Some(_machine) = machine() else { return };
    let pod = TestCgroup::new("weighed");
    let cgroups = ['1', '3'].map(|digit| pod.child(&id(digit)));
    let files = ["cpu.weight", "cpu.shares"];
    let [Some(light), Some(heavy)] = cgroups
        .each_ref()
        .map(|cgroup| Controlled::new("cpu", files, &pod, cgroup))
    else {
        return;
    };
    let weighed = [light, heavy];
    for (controlled, weight) in weighed.iter().zip([1000, 3000]) {
        controlled.set(weight);
    }
    let mut counting = Counting::start(EVENTS);
    let mut loads = cgroups.each_ref().map(|cgroup| cgroup.load("burn 0 60000"));
    for (controlled, load) in weighed.iter().zip(&loads) {
        controlled.adopt(load.pid());
    }
    loads.iter_mut().for_each(Load::go);
    // The first turns are not divided by weight: one of them begins first.
    thread::sleep(Duration::from_millis(100));
    let first = counting.session.pull().unwrap();
    thread::sleep(Duration::from_secs(2));
    let last = counting.session.pull().unwrap();
    for load in &loads {
        signal(load, Signal::KILL);
    }
    loads.into_iter().for_each(drop);
    let window = Window::between(&first, &last, counting.session.plan());
    let [ran_light, ran_heavy] = cgroups
        .each_ref()
        .map(|cgroup| counting.count(&window, "task-clock", cgroup.id).unwrap());
    println!("{ran_light} and {ran_heavy} ns");
    let share = permille(ran_light, ran_light + ran_heavy);
    assert!((240..=260).contains(&share), "{share} of 1000");
    let delta = waits(&first, &last);
    for (at, ran) in [(0, ran_heavy), (1, ran_light)] {
        let [waiting, running] = [at, 1 - at].map(|at| cgroups[at].id);
        let pairs = delta.pairs.iter();
        let behind: u64 = pairs
            .filter(|(pair, _)| pair.waiting == waiting && pair.running == running)
            .map(|(_, nanos)| nanos)
            .sum();
        println!("waited {behind} ns behind the other, which ran {ran} ns");
        // A wait counts when it ends: at both ends of the window one of them is waiting.
        assert!(behind.abs_diff(ran) <= ran / 100 + 20_000_000);
    }
}

fn permille(part: u64, whole: u64) -> u64 {
    part * 1000 / whole
}

fn waits(first: &Snapshot, last: &Snapshot) -> WaitDelta {
    let [first, last] = [first, last].map(|it| it.sources.waits.as_ref().unwrap());
    WaitDelta::between(first, last)
}

/// Whom the sentence about a container's waits names in a window.
fn named(counting: &Counting, window: &Window, victim: &str) -> Option<String> {
    let view = View {
        by: By::Container,
        ..View::default()
    };
    let plan = counting.session.plan();
    let joined = view.join(plan, window, None);
    let report = Report::new(plan, window, &joined, &view);
    let is_of_victim = |subject: &Subject| match subject {
        Subject::Entity(Entity::Container { id, .. }) => **id == *victim,
        _ => false,
    };
    let mut findings = report.findings.iter().filter_map(|finding| {
        let FindingSubject::Subject(subject) = finding.about else {
            return None;
        };
        let of_victim = is_of_victim(&report.subjects[subject as usize]);
        let Some(Subject::Entity(Entity::Container { id, .. })) = &finding.named else {
            return None;
        };
        of_victim.then(|| id.to_string())
    });
    findings.next()
}

/// Whether a container waited for another one for a hundredth of a window and half of its waits.
fn has_most(waits: &WaitDelta, window: Duration, victim: &TestCgroup, other: &TestCgroup) -> bool {
    let pairs = || {
        waits
            .pairs
            .iter()
            .filter(|(pair, _)| pair.waiting == victim.id)
    };
    let all: u64 = pairs().map(|(_, nanos)| nanos).sum();
    let behind: u64 = pairs()
        .filter(|(pair, _)| pair.running == other.id)
        .map(|(_, nanos)| nanos)
        .sum();
    Duration::from_nanos(all) * 100 >= window && 2 * behind >= all
}

/// A loop that disturbs a container in every other window is named in each of them, and in no
/// other. On a busy machine others may take more of the CPU than the loop: then it must not be
/// named.
#[test]
fn who_disturbs_a_container_is_named() {
    const EPISODES: usize = 200;
    let Some(_machine) = machine() else { return };
    let pod = TestCgroup::new("disturbed");
    let [victim, loud, calm] = ['a', 'b', 'c'].map(|digit| pod.child(&id(digit)));
    let mut counting = Counting::start(EVENTS);
    let mut loads = [
        victim.load("bursts 0 20000 1000 100000"),
        loud.load("burn 0 600000"),
        calm.load("bursts 1 100 5000 100000"),
    ];
    loads.iter_mut().for_each(Load::go);
    let name = id('b')[..12].to_owned();
    let (mut wrong, mut most) = (Vec::new(), 0);
    for episode in 0..2 * EPISODES {
        let is_loud = episode % 2 == 1;
        if is_loud {
            signal(&loads[1], Signal::CONT);
        } else {
            stop(&loads[1]);
        }
        // The wait that the change ends is of the window before.
        thread::sleep(Duration::from_millis(5));
        let first = counting.session.pull().unwrap();
        thread::sleep(Duration::from_millis(30));
        let last = counting.session.pull().unwrap();
        let window = Window::between(&first, &last, counting.session.plan());
        let found = named(&counting, &window, &id('a'));
        let is_named = found.as_ref().is_some_and(|it| it.contains(&name));
        let is_most = has_most(&waits(&first, &last), window.length, &victim, &loud);
        most += usize::from(is_most);
        if is_named != is_most || is_named && !is_loud {
            wrong.push((episode, is_loud, is_most, found));
        }
    }
    for load in &loads {
        signal(load, Signal::KILL);
    }
    loads.into_iter().for_each(drop);
    println!("most of the waits were for it in {most} of {EPISODES} windows");
    let of = 2 * EPISODES;
    assert!(wrong.is_empty(), "{} of {of}: {:?}", wrong.len(), wrong[0]);
}
