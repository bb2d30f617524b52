//! Which containers a container waits for: shares by weight, and the names in findings.

use std::{collections::BTreeMap, thread, time::Duration};

use probe_common::{CgroupId, WaitTimes};
use probe_user::{
    derive::{FindingKind, FindingSubject, Report, ReportFinding, Subject},
    join::{By, Entity, View},
    snapshot::{Snapshot, WaitDelta},
    window::Window,
};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use test_harness::{Counting, Load, TestCgroup, is_guest_of_ci, machine};

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
    // The first time slices do not follow the weights, because one load starts before the other.
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
        // A wait counts when it ends, and at either end of the window one of the two is waiting.
        let longest = longest_wait(&delta, waiting);
        println!("waited {behind} ns behind the other, which ran {ran} ns; at most {longest} once");
        assert!(behind.abs_diff(ran) <= ran / 100 + longest);
    }
}

/// The end of the last bucket that has a wait of a cgroup, in nanoseconds.
fn longest_wait(waits: &WaitDelta, cgroup: CgroupId) -> u64 {
    let mut owners = waits.owners.iter();
    let own = owners.find(|owner| owner.cgroup == cgroup).unwrap();
    let last = own.lengths.counts.iter().rposition(|count| *count > 0);
    let end = WaitTimes::end(last.unwrap()).unwrap();
    u64::try_from(Duration::from_secs_f64(end).as_nanos()).unwrap()
}

fn permille(part: u64, whole: u64) -> u64 {
    part * 1000 / whole
}

fn waits(first: &Snapshot, last: &Snapshot) -> WaitDelta {
    let [first, last] = [first, last].map(|it| it.sources.waits.as_ref().unwrap());
    WaitDelta::between(first, last)
}

/// A container in a pod of its own.
struct Container {
    // Dropped before its pod.
    cgroup: TestCgroup,
    _pod: TestCgroup,
    digit: char,
}

impl Container {
    fn new(root: &TestCgroup, digit: char) -> Self {
        let pod = root.child(&format!("pod{}", Self::uid(digit)));
        Self {
            cgroup: pod.child(&id(digit)),
            _pod: pod,
            digit,
        }
    }

    fn uid(digit: char) -> String {
        let digits = |count: usize| digit.to_string().repeat(count);
        [8, 4, 4, 4, 12].map(digits).join("-")
    }

    /// Its entity in a view. Findings name a container also where rows are processes.
    fn entity(&self, by: By) -> Entity {
        let uid = Self::uid(self.digit).into();
        match by {
            By::Pod => Entity::Pod(uid),
            _ => Entity::Container {
                id: id(self.digit).into(),
                pod: Some(uid),
            },
        }
    }
}

/// The subject that the finding about the waits of a container, or of its process, names in a
/// window. `Some(None)` if no finding names anybody. None if all findings are about others, which
/// waited longer.
fn named(
    counting: &Counting,
    window: &Window,
    by: By,
    (victim, process): (&Container, u32),
) -> Option<Option<Subject>> {
    /// Maximum number of findings about waits.
    const FINDINGS: usize = 3;
    let view = View {
        by,
        ..View::default()
    };
    let plan = counting.session.plan();
    let joined = view.join(plan, window, None);
    let report = Report::new(plan, window, &joined, &view);
    let is_of_victim = |subject: &Subject| match subject {
        Subject::Entity(Entity::Process { tgid, .. }) => *tgid == process,
        Subject::Entity(entity) => *entity == victim.entity(by),
        _ => false,
    };
    let is_about_waits =
        |finding: &&ReportFinding| matches!(finding.kind, FindingKind::Waits { .. });
    let all: Vec<&ReportFinding> = report.findings.iter().filter(is_about_waits).collect();
    let own = all.iter().find(|finding| {
        matches!(finding.about, FindingSubject::Subject(subject)
            if is_of_victim(&report.subjects[subject as usize]))
    });
    match own {
        Some(finding) => Some(finding.named.clone()),
        None => (all.len() < FINDINGS).then_some(None),
    }
}

/// The cgroup that a container waited for most. None unless it caused at least a quarter of the
/// waits, and the waits take at least 1% of the window, as a finding requires. 0 stands for all
/// cgroups that are no containers: these are one row unless rows are processes.
fn most_awaited(by: By, waits: &WaitDelta, window: &Window, victim: &TestCgroup) -> Option<u64> {
    let pairs = waits
        .pairs
        .iter()
        .filter(|(pair, _)| pair.waiting == victim.id);
    let mut behind: BTreeMap<u64, u64> = BTreeMap::new();
    let mut all = 0;
    for (pair, nanos) in pairs {
        all += nanos;
        let special = [
            CgroupId::IDLE,
            CgroupId::EARLIER,
            CgroupId::OTHER_CPU,
            victim.id,
        ];
        if special.contains(&pair.running) {
            continue;
        }
        let path = window.names.cgroups.get(&pair.running);
        let is_id = |part: &str| part.len() >= 64;
        let is_row = by == By::Process || path.is_some_and(|path| path.split('/').any(is_id));
        let owner = if is_row { pair.running.0 } else { 0 };
        *behind.entry(owner).or_default() += nanos;
    }
    let (owner, nanos) = behind.into_iter().max_by_key(|(_, nanos)| *nanos)?;
    let is_long = Duration::from_nanos(all) * 100 >= window.length && 4 * nanos >= all;
    is_long.then_some(owner)
}

/// A loop disturbs a container in every other window. With rows by container, pod and process, the
/// loop is named in these windows, and nobody is named in the windows between them. Where other
/// tasks take more of the CPU than the loop, it must not be named.
#[test]
fn who_disturbs_a_container_is_named() {
    let Some(_machine) = machine() else { return };
    let episodes = if is_guest_of_ci() { 25 } else { 200 };
    let root = TestCgroup::new("kubepods");
    let [victim, loud, calm] = ['a', 'b', 'c'].map(|digit| Container::new(&root, digit));
    let mut counting = Counting::with(EVENTS, |config| config.by_process = true.into());
    let mut loads = [
        victim.cgroup.load("bursts 0 20000 1000 100000"),
        loud.cgroup.load("burn 0 600000"),
        calm.cgroup.load("bursts 1 100 5000 100000"),
    ];
    loads.iter_mut().for_each(Load::go);
    let mut counts = [By::Container, By::Pod, By::Process].map(|by| (by, 0, 0));
    let mut wrong = Vec::new();
    for episode in 0..2 * episodes {
        let is_loud = episode % 2 == 1;
        if is_loud {
            signal(&loads[1], Signal::CONT);
        } else {
            stop(&loads[1]);
        }
        // The wait that the change ends counts before this window.
        thread::sleep(Duration::from_millis(5));
        let first = counting.session.pull().unwrap();
        thread::sleep(Duration::from_millis(30));
        let last = counting.session.pull().unwrap();
        let window = Window::between(&first, &last, counting.session.plan());
        let waits = waits(&first, &last);
        for (by, loudest, nobody) in &mut counts {
            let by = *by;
            let expected = most_awaited(by, &waits, &window, &victim.cgroup);
            let is_loudest = expected == Some(loud.cgroup.id.0);
            *loudest += usize::from(is_loudest);
            *nobody += usize::from(expected.is_none());
            let Some(subject) = named(&counting, &window, by, (&victim, loads[0].pid())) else {
                continue;
            };
            let is_named = subject == Some(Subject::Entity(loud.entity(by)));
            let is_right = is_named == is_loudest && subject.is_some() == expected.is_some();
            if !is_right || is_named && !is_loud {
                wrong.push((episode, by, is_loud, expected, subject));
            }
        }
    }
    for load in &loads {
        signal(load, Signal::KILL);
    }
    loads.into_iter().for_each(drop);
    for (by, loudest, nobody) in counts {
        println!(
            "{by:?}: mostly for it in {loudest}, for nobody in {nobody} of {episodes} windows"
        );
    }
    assert!(wrong.is_empty(), "{}: {:?}", wrong.len(), wrong[0]);
}
