//! Hidden switches: the kernel does not run the program at `sched_switch` for them. Some kernels
//! hide the switches of tasks such as init from any program.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use probe_user::snapshot::Health;
use test_harness::{Counting, Load, TestCgroup, machine, online_cpus, plan, pmuscope};

/// Timeout for a change of [`Health`].
const TIMEOUT: Duration = Duration::from_secs(10);

/// Whether hidden switches can be detected here. If not, prints that the test is skipped.
pub(crate) fn exits_can_be_watched() -> bool {
    let mut grep = Command::new("grep");
    grep.args(["-q", "btf_trace_sched_exit_tp", "/sys/kernel/btf/vmlinux"]);
    let has_tracepoint = grep.status().is_ok_and(|status| status.success());
    if !has_tracepoint {
        println!("skipped: this kernel has no tracepoint sched_exit_tp");
    }
    has_tracepoint
}

/// Pulls until a condition is true. None after the timeout.
fn pull_until(
    counting: &mut Counting,
    other: &TestCgroup,
    condition: impl Fn(&Health) -> bool,
) -> Option<Health> {
    let began = Instant::now();
    while began.elapsed() < TIMEOUT {
        // A missed switch causes no event, so the load only lets time pass.
        other.load("burst 0 1000 1000 100").finish();
        let health = counting.session.pull().unwrap().health;
        if condition(&health) {
            return Some(health);
        }
    }
    None
}

#[test]
fn after_the_first_missed_switch_all_are_seen() {
    let Some(_machine) = machine().filter(|_| exits_can_be_watched()) else {
        return;
    };
    let other = TestCgroup::new("other");
    let mut counting = Counting::plain(plan("task-clock"), |_| {});
    let Some(first) = pull_until(&mut counting, &other, |health| {
        health.sum.missed_switches > 0
    }) else {
        println!("skipped: this kernel hid no switch in {TIMEOUT:?}");
        return;
    };
    assert_eq!(first.sum.late, 0);
    // More switches may have been missed before the pull loaded the second program. The next switch
    // of each CPU reveals them.
    for cpu in online_cpus() {
        other.load(&format!("burst {cpu} 1000 1000 10")).finish();
    }
    let before = counting.session.pull().unwrap().health;
    let after = pull_until(&mut counting, &other, |health| health.sum.late > 2)
        .expect("the kernel hides switches again");
    assert_eq!(after.sum.missed_switches, before.sum.missed_switches);
    assert_eq!(after.sum.missed_nanos, before.sum.missed_nanos);
}

/// The kernel notifies `stat` of the first missed switch, so the second program is attached
/// within the only window.
#[test]
fn switches_are_seen_in_the_window_of_the_first_missed_one() {
    let Some(_machine) = machine().filter(|_| exits_can_be_watched()) else {
        return;
    };
    let mut command = pmuscope();
    command.args(["stat", "--self", "--format", "csv", "--output-fd", "1"]);
    command.args(["--", "sleep", "3"]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let value = |name: &str| -> u64 {
        let mut fields = text.lines().map(|line| line.split(','));
        fields
            .find_map(|mut fields| {
                fields.find(|field| *field == name)?;
                fields.next()?.parse().ok()
            })
            .unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    println!("{text}");
    if value("missed_switches") + value("late_switches") < 4 {
        println!("skipped: this kernel hid none or few switches in 3 s");
        return;
    }
    assert!(value("late_switches") > value("missed_switches"), "{text}");
}

/// Some kernels hide the switches of init. The end of each orphan wakes init, and init switches to
/// the next orphan: the whole last slice of that orphan follows a hidden switch.
#[test]
fn a_last_slice_after_a_hidden_switch_is_charged_to_its_task() {
    const ORPHANS: u64 = 300;
    const EACH_US: u64 = 1_000;
    let Some(_machine) = machine() else { return };
    let (other, orphans) = (TestCgroup::new("other"), TestCgroup::new("orphans"));
    // All CPUs are busy.
    let cpus = online_cpus().into_iter();
    let mut busy: Vec<_> = cpus
        .map(|cpu| other.load(&format!("burn {cpu} 60000")))
        .collect();
    busy.iter_mut().for_each(Load::go);
    let mut counting = Counting::plain(plan("task-clock"), |_| {});
    // No pull happens during the load, so the second program is not attached.
    orphans
        .load(&format!("orphans {ORPHANS} {EACH_US}"))
        .finish();
    let window = counting.window();
    if window.health.sum.missed_switches < 5 {
        println!("skipped: this kernel hid few switches");
        return;
    }
    let counted = counting.count(&window, "task-clock", orphans.id).unwrap();
    let expected = ORPHANS * EACH_US * 1_000;
    println!("counted {counted}, at least {expected}");
    assert!(
        counted >= expected - expected / 100,
        "{counted}, {expected}"
    );
}
