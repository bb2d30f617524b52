//! Counting while CPUs go offline and online.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use probe_user::{
    event::{self},
    machine::Pmus,
    plan::Plan,
    snapshot::Snapshot,
    window::Owner,
};
use test_harness::{
    Counting, Load, TestCgroup, machine, plan,
    waits::{Account, Waits, assert_is_the_kernels, run_to_the_ends},
};

use crate::{
    accounting::{assert_exact, group, run, watched},
    spe_support,
    testpmu::{TestPmu, core, event as code},
};

pub(crate) fn set_online(cpu: u32, online: bool) {
    fs::write(
        format!("/sys/devices/system/cpu/cpu{cpu}/online"),
        if online { "1" } else { "0" },
    )
    .unwrap();
}

/// Starts a load and waits until it works: by then it has chosen its CPU, which must be online.
pub(crate) fn go_until_it_works(load: &mut Load, cgroup: &TestCgroup) {
    let before = cgroup.cpu_time();
    load.go();
    while cgroup.cpu_time() < before + 10_000_000 {
        thread::yield_now();
    }
}

/// CPU 1 is offline until this is dropped.
pub(crate) struct Cpu1Offline;

impl Cpu1Offline {
    pub(crate) fn new() -> Self {
        set_online(1, false);
        Self
    }
}

impl Drop for Cpu1Offline {
    fn drop(&mut self) {
        set_online(1, true);
    }
}

#[test]
fn a_cpu_counts_again_after_it_was_offline() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=core");
    let [a, b] = ["a", "b"].map(|name| watched(&pmu, name));
    let mut counting = Counting::start(&group(&pmu));
    for round in 0..3 {
        run(&[
            (&a, "burst 1 300 300 200"),
            (&b, "burn 1 50"),
            (&b, "burn 0 50"),
        ]);
        // Runs on CPU 0 while CPU 1 is offline.
        let mut displaced = a.load("burn 1 150");
        go_until_it_works(&mut displaced, &a);
        set_online(1, false);
        // In one round there is no pull while CPU 1 is offline.
        if round != 1 {
            counting.session.pull().unwrap();
        }
        displaced.finish();
        set_online(1, true);
        counting.session.drain().unwrap();
    }
    run(&[(&a, "burst 1 300 300 200"), (&b, "burn 1 50")]);

    assert_exact(&pmu, &mut counting, &[&a, &b]);
}

/// The kernel lists a CPU as online shortly before perf can count there, and still lists it shortly
/// after perf can no longer count there. Drains during these moments must not fail.
#[test]
fn a_cpu_in_transition_causes_no_error() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=core,spe");
    let a = watched(&pmu, "a");
    let mut counting = Counting::with_plan(plan("task-clock,page-faults"), |config| {
        config.spe = spe_support::config().spe;
    });
    let toggling = thread::spawn(|| {
        for _ in 0..5 {
            set_online(1, false);
            set_online(1, true);
        }
    });
    let mut drained = 0;
    while !toggling.is_finished() {
        counting.session.drain().unwrap();
        drained += 1;
    }
    toggling.join().unwrap();
    println!("{drained} drains");
    counting.session.drain().unwrap();
    run(&[(&a, "burst 1 300 300 200")]);
    let window = counting.window();
    let owner = Owner {
        cgroup: a.id,
        tgid: 0,
    };
    let counted = window.usage[&owner][0].as_ref().unwrap().counts[0];
    counting.assert_cpu_time(&window, "on the CPU that came back", counted, a.cpu_time());
}

/// Threads on CPU 0 have all of their waits while CPU 1 goes offline and online. Threads that chose
/// CPU 1 have the waits that ended while CPU 1 was counted, and the ledger agrees with these waits.
#[test]
fn waits_go_on_while_another_cpu_is_offline() {
    let Some(_machine) = machine() else { return };
    let [stays, leaves] = ["stays", "leaves"].map(TestCgroup::new);
    let mut loads: Vec<Load> = ["bursts 0 3000 500 60"; 3].map(|it| stays.load(it)).into();
    loads.extend(["burn 1 200"; 3].map(|it| leaves.load(it)));
    // These run on CPU 0 while CPU 1 is offline.
    let pids: Vec<u32> = loads[3..].iter().map(Load::pid).collect();
    let (waits, truth) = Waits::during(|counting| {
        thread::scope(|scope| {
            let running = scope.spawn(|| run_to_the_ends(&mut loads));
            // After 10 ms of CPU time they have chosen their CPU.
            while pids.iter().any(|pid| Account::of(*pid).ran < 10_000_000) {
                thread::yield_now();
            }
            while !running.is_finished() {
                for online in [false, true] {
                    set_online(1, online);
                    counting.session.drain().unwrap();
                    thread::sleep(Duration::from_millis(50));
                }
            }
            running.join().unwrap()
        })
    });
    let [stayed, displaced] = [&truth[..3], &truth[3..]].map(Account::sum);
    assert_is_the_kernels(&waits, &[&stays], 3, stayed);
    let [wait, ended, unknown] = ["cpu-wait", "cpu-waits", "unknown-cpu-waits"]
        .map(|event| waits.count(event, &leaves).unwrap());
    println!("{ended} waits of {wait} ns, {unknown} unknown; the kernel: {displaced:?}");
    // The kernel's account of each of the three zombies may lack its last switch.
    assert!(ended > 0 && ended <= displaced.runs + 3);
    waits.assert_adds_up(&leaves);
}

/// Counts per ns of the events in the two multiplexed groups.
const RATES: [u64; 12] = [1, 2, 3, 5, 7, 11, 2, 4, 6, 8, 10, 12];

/// Groups are still multiplexed on a CPU that was offline, and all counts of a group cover the same
/// time.
#[test]
fn groups_take_turns_on_a_cpu_that_comes_back() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=core");
    let (name, _) = core();
    let group = |from: usize| {
        let events = (from..from + 6).map(|n| {
            let code = code(n as u64);
            pmu.control(&format!(
                "rate {name} {code:#x} 0 0 {}",
                RATES[n] * 1_000_000
            ));
            format!("{name}/config={code:#x},name=e{n}/")
        });
        format!("{{{}}}", events.collect::<Vec<_>>().join(","))
    };
    let pmus = Pmus::read(Path::new("/sys")).unwrap();
    let events = event::parse(&format!("{},{}", group(0), group(6)), &pmus).unwrap();
    let mut plan = Plan::new(&events).unwrap();
    plan.rotated = 2;
    let a = watched(&pmu, "a");
    let mut counting = Counting::with_plan(plan, |_| {});
    for round in 0..2 {
        let mut loads = [a.load("burn 1 600"), a.load("burst 0 700 300 600")];
        loads.iter_mut().for_each(Load::go);
        for step in 0..30 {
            if step == 8 {
                set_online(1, false);
            }
            if step == 16 {
                set_online(1, true);
                // In the other round the rotation is the first to find the CPU online.
                if round == 0 {
                    counting.session.drain().unwrap();
                }
            }
            thread::sleep(Duration::from_millis(20));
            counting.session.rotate().unwrap();
        }
        loads.into_iter().for_each(|load| drop(load.finish()));
        counting.session.pull().unwrap();
    }
    // Rotates further: on a busy host there were few exchanges so far.
    while counting.session.pull().unwrap().health.exchanges <= 60 {
        thread::sleep(Duration::from_millis(20));
        counting.session.rotate().unwrap();
    }
    let window = counting.window();
    let owner = Owner {
        cgroup: a.id,
        tgid: 0,
    };
    let time = pmu.core_time(a.id);
    let mut counted = 0;
    for (group, rates) in RATES.chunks(6).enumerate() {
        let row = window.usage[&owner][group].as_ref().unwrap();
        let nanos: Vec<u64> = row
            .counts
            .iter()
            .zip(rates)
            .map(|(count, rate)| count / rate)
            .collect();
        println!(
            "group {group}: {nanos:?} ns, running {} of {}",
            row.running, row.enabled
        );
        assert!(
            nanos[0] > 0 && nanos.iter().all(|ns| *ns == nanos[0]),
            "{nanos:?}"
        );
        counted += nanos[0];
    }
    println!(
        "{counted} ns of {time} counted, {} exchanges",
        window.health.exchanges
    );
    assert!(counted <= time && counted > time / 2);
    assert_eq!(window.health.sum.rebased, 0);
}

/// Nanoseconds for which some multiplexed group was enabled on a CPU, over all owners.
fn multiplexed_ns(snapshot: &Snapshot, cpu: u16) -> u64 {
    let rows = snapshot.rows.iter();
    rows.filter(|(key, _)| key.cpu == cpu && key.group > 0)
        .map(|(_, row)| row.enabled)
        .sum()
}

/// The time for which a CPU was offline has no owner, not even idle, and the CPU's last and first
/// switch do not count as missed.
#[test]
fn the_time_of_an_offline_cpu_has_no_owner() {
    let Some(_machine) = machine() else { return };
    // With software events, open slices of idle are part of every snapshot.
    let mut plan = plan("task-clock,{cpu-clock,context-switches},{page-faults,migrations}");
    plan.rotated = 2;
    let a = TestCgroup::new("a");
    let mut counting = Counting::with_plan(plan, |_| {});
    // A pull reads the snapshot's time after it has flushed, so the length of the pull is slack.
    let mut pull_ns = 0;
    let mut pull = |counting: &mut Counting| {
        let began = Instant::now();
        let snapshot = counting.session.pull().unwrap();
        pull_ns += nanos(began);
        snapshot
    };
    let first = pull(&mut counting);
    let (mut offline_ns, mut transition_ns) = (0, 0);
    for round in 0..3 {
        run(&[(&a, "burst 1 300 300 50"), (&a, "burn 0 20")]);
        let leaves = Instant::now();
        set_online(1, false);
        transition_ns += nanos(leaves);
        let gone = Instant::now();
        // In one round there is no pull while CPU 1 is offline.
        if round != 1 {
            counting.session.pull().unwrap();
        }
        counting.session.rotate().unwrap();
        run(&[(&a, "burst 0 300 300 200")]);
        offline_ns += nanos(gone);
        let returns = Instant::now();
        set_online(1, true);
        transition_ns += nanos(returns);
        // In one round the rotation is the first to find the CPU online.
        if round != 2 {
            counting.session.drain().unwrap();
        }
        counting.session.rotate().unwrap();
        run(&[(&a, "burst 1 300 300 50")]);
        counting.session.rotate().unwrap();
    }
    let last = pull(&mut counting);
    let length = u64::try_from((last.at - first.at).as_nanos()).unwrap();
    for (cpu, offline_ns, transition_ns) in [(0, 0, 0), (1, offline_ns, transition_ns)] {
        let counted = multiplexed_ns(&last, cpu) - multiplexed_ns(&first, cpu);
        let expected = length - offline_ns;
        println!(
            "CPU {cpu}: {counted} of {length} ns, {offline_ns} offline, {transition_ns} in \
             transition, pulls {pull_ns}"
        );
        assert!(counted <= expected + pull_ns, "{}", counted - expected);
        assert!(
            counted + transition_ns + pull_ns >= expected,
            "{}",
            expected - counted
        );
    }
    assert_eq!(
        last.health.sum.missed_switches,
        first.health.sum.missed_switches
    );
    assert_eq!(last.health.sum.rebased, 0);
}

fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap()
}
