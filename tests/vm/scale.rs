//! Thousands of cgroups.

use std::fs;

use test_harness::{Counting, TestCgroup, machine};

const CGROUPS: usize = 5000;

#[test]
fn each_of_five_thousand_cgroups_is_charged() {
    let Some(_machine) = machine() else { return };
    let root = TestCgroup::new("many");
    let mut counting = Counting::start("task-clock");
    let children: Vec<_> = (0..CGROUPS)
        .map(|n| {
            // Keeps the ring of cgroup names from running full.
            if n % 500 == 0 {
                counting.session.drain().unwrap();
            }
            root.child(&n.to_string())
        })
        .collect();
    root.load(&format!("hop {} {CGROUPS}", root.directory.display()))
        .finish();
    let window = counting.window();
    let mut charged = 0;
    for child in &children {
        assert_eq!(window.names.cgroups.get(&child.id), Some(&child.path));
        charged += usize::from(
            counting
                .count(&window, "task-clock", child.id)
                .is_some_and(|nanos| nanos > 0),
        );
    }
    assert_eq!(charged, CGROUPS);
    assert_eq!(
        (window.health.sum.lost_events, window.health.sum.overflowed),
        (0, 0)
    );
    println!(
        "{} rows, {} bytes of maps",
        window.health.rows,
        window.health.memory.total()
    );

    for child in &children {
        fs::remove_dir(&child.directory).unwrap();
        if child.path.ends_with("00") {
            counting.session.drain().unwrap();
        }
    }
    counting.window();
    let after = counting.window();
    assert!(
        children
            .iter()
            .all(|child| counting.count(&after, "task-clock", child.id).is_none())
    );
    // The children are not dropped, since their directories are already removed.
    children.into_iter().for_each(std::mem::forget);
}
