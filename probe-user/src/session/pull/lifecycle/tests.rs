//! Names of processes that an earlier process saved.

use super::*;

fn restored(by_process: bool) -> LifecycleTracker {
    let directory = tempfile::tempdir().unwrap();
    let hierarchy = Hierarchy {
        mount: directory.path().to_owned(),
        root: "/".to_owned(),
    };
    let mut tracker = LifecycleTracker::start(&hierarchy, None).unwrap();
    let saved = Names {
        processes: [(7, "gone".to_owned()), (8, "runs".to_owned())].into(),
        ..Names::default()
    };
    tracker.restore(&saved, by_process);
    tracker
}

/// What a pull does with processes, where only process 8 runs.
fn pull(tracker: &mut LifecycleTracker) {
    tracker.take_ended();
    let wanted = tracker.wanted_processes(std::iter::empty());
    let (running, gone): (HashSet<u32>, HashSet<u32>) =
        { wanted.into_iter() }.partition(|it| *it == 8);
    tracker.apply_found(FoundProcesses {
        names: { running.into_iter() }
            .map(|tgid| (tgid, "runs".to_owned()))
            .collect(),
        gone,
        ..FoundProcesses::default()
    });
    tracker.forget();
}

/// A process may have ended without a record while nobody read them.
#[test]
fn the_name_of_a_restored_process_stays_while_it_runs() {
    let mut tracker = restored(true);
    let names = |tracker: &mut LifecycleTracker| {
        let mut tgids: Vec<u32> = tracker.names().processes.keys().copied().collect();
        tgids.sort_unstable();
        tgids
    };
    assert_eq!(names(&mut tracker), [7, 8]);
    for _ in 0..5 {
        pull(&mut tracker);
    }
    assert_eq!(names(&mut tracker), [8]);
    assert!(names(&mut restored(false)).is_empty());
}
