//! Switches that the kernel does not show to the program at `sched_switch`: the machines that test this
//! hide their init, which runs about once a second, from every program.

use std::time::{Duration, Instant};

use probe_user::pull::Health;

use crate::support::{Counting, TestCgroup, machine, plan};

/// What of [`Health`] is awaited, and for how long.
const PATIENCE: Duration = Duration::from_secs(10);

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
    let Some(_machine) = machine() else { return };
    let other = TestCgroup::new("other");
    let mut counting = Counting::plain(plan("task-clock"), |_| {});
    let Some(before) = pull_until(&mut counting, &other, |health| health.missed_switches > 0)
    else {
        println!("skipped: this kernel hid no switch in {PATIENCE:?}");
        return;
    };
    assert_eq!(before.late_switches, 0);
    let after = pull_until(&mut counting, &other, |health| health.late_switches > 2)
        .expect("what was missed before comes again");
    assert_eq!(after.missed_switches, before.missed_switches);
    assert_eq!(after.estimated_nanos, before.estimated_nanos);
}
