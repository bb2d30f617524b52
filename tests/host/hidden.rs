//! Switches that the kernel does not show to the program at `sched_switch`: some kernels hide a
//! task, such as init, from every program.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use probe_user::snapshot::Health;

use crate::support::{Counting, Load, TestCgroup, machine, online_cpus, plan, pmuscope};

/// How long to wait for a change of [`Health`].
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether hidden switches can be seen; else says that the test is skipped.
pub(crate) fn exits_can_be_watched() -> bool {
    let mut grep = Command::new("grep");
    grep.args(["-q", "btf_trace_sched_exit_tp", "/sys/kernel/btf/vmlinux"]);
    let can = grep.status().is_ok_and(|status| status.success());
    if !can {
        println!("skipped: this kernel has no tracepoint sched_exit_tp");
    }
    can
}

/// Pulls until something is so; None where it never was.
fn pull_until(
    counting: &mut Counting,
    other: &TestCgroup,
    so: impl Fn(&Health) -> bool,
) -> Option<Health> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        // No event tells of a missed switch: time passes in a load.
        other.load("burst 0 1000 1000 100").finish();
        let health = counting.session.pull().unwrap().health;
        if so(&health) {
            return Some(health);
        }
    }
    None
}

#[test]
fn after_the_first_that_is_missed_all_are_seen() {
    let Some(_machine) = machine().filter(|_| exits_can_be_watched()) else {
        return;
    };
    let other = TestCgroup::new("other");
    let mut counting = Counting::plain(plan("task-clock"), |_| {});
    let Some(first) = pull_until(&mut counting, &other, |health| {
        health.sum.missed_switches > 0
    }) else {
        println!("skipped: this kernel hid no switch in {PATIENCE:?}");
        return;
    };
    assert_eq!(first.sum.late, 0);
    // More may have been missed while that pull had the second program loaded.
    let before = counting.session.pull().unwrap().health;
    let after = pull_until(&mut counting, &other, |health| health.sum.late > 2)
        .expect("what was missed before comes again");
    assert_eq!(after.sum.missed_switches, before.sum.missed_switches);
    assert_eq!(after.sum.missed_nanos, before.sum.missed_nanos);
}

/// `stat` hears of the first one from the kernel: its only window is not over by then.
#[test]
fn within_the_window_in_which_the_first_is_missed() {
    let Some(_machine) = machine().filter(|_| exits_can_be_watched()) else {
        return;
    };
    let mut command = pmuscope();
    command.args(["stat", "--self", "--format", "csv", "--", "sleep", "3"]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let of = |name: &str| -> u64 {
        let mut fields = text.lines().map(|line| line.split(','));
        fields
            .find_map(|mut fields| {
                fields.find(|field| *field == name)?;
                fields.next()?.parse().ok()
            })
            .unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    println!("{text}");
    if of("missed_switches") + of("late_switches") < 4 {
        println!("skipped: this kernel hid none or few switches in 3 s");
        return;
    }
    assert!(of("late_switches") > of("missed_switches"), "{text}");
}

/// Init, which some kernels hide, is woken at the end of each orphan, and leaves while the next one
/// waits: all of that one's last slice comes after a hidden switch.
#[test]
fn a_last_slice_after_a_hidden_switch_is_its_tasks() {
    const ORPHANS: u64 = 300;
    const EACH_US: u64 = 1_000;
    let Some(_machine) = machine() else { return };
    let (other, orphans) = (TestCgroup::new("other"), TestCgroup::new("orphans"));
    // No CPU is idle.
    let cpus = online_cpus().into_iter();
    let mut busy: Vec<_> = cpus
        .map(|cpu| other.load(&format!("burn {cpu} 60000")))
        .collect();
    busy.iter_mut().for_each(Load::go);
    let mut counting = Counting::plain(plan("task-clock"), |_| {});
    // Nobody hears of a missed switch meanwhile, so that the second program is not attached.
    orphans
        .load(&format!("orphans {ORPHANS} {EACH_US}"))
        .finish();
    let window = counting.window();
    if window.health.sum.missed_switches < 5 {
        println!("skipped: this kernel hid few switches");
        return;
    }
    let counted = counting.count(&window, "task-clock", orphans.id).unwrap();
    let truth = ORPHANS * EACH_US * 1_000;
    println!("counted {counted}, at least {truth}");
    assert!(counted >= truth - truth / 100, "{counted}, {truth}");
}
