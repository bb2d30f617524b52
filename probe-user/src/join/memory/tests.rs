//! Memory of nested cgroups, and peaks over windows.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{
    join::{By, CommandOwner, View},
    snapshot::Names,
    window,
};

const POD: &str = "/kubepods/pod7d0f2a34-4b3c-4c7e-9f10-2a5b6c7d8e9f";

fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn naming(by: By, paths: &[String]) -> Naming {
    let cgroups = (10..).map(CgroupId).zip(paths.iter().cloned());
    let names = Names {
        cgroups: cgroups.collect(),
        ..Names::default()
    };
    let view = View {
        by,
        ..View::default()
    };
    view.naming(&Arc::new(names))
}

fn reading(used: &[u64]) -> MemoryReading {
    let held = (10..).zip(used).map(|(id, used)| {
        let held = MemoryUse {
            used: *used,
            peak: Some(used * 2),
            limit: Some(1000),
            ..MemoryUse::default()
        };
        (MemoryHolder::Cgroup(CgroupId(id)), held)
    });
    MemoryReading {
        held: held.collect(),
        machine: None,
        pages: None,
    }
}

#[test]
fn an_inner_cgroup_is_not_added_to_the_outer_one() {
    let (a, b) = (format!("{POD}/{}", id('a')), format!("{POD}/{}", id('b')));
    let paths = [
        POD.to_owned(),
        a.clone(),
        b,
        format!("{a}/init"),
        "/host".to_owned(),
    ];
    let used = [100, 60, 30, 55, 7];
    let used_by = |by, used: &[u64]| -> Vec<(u64, Option<u64>)> {
        let found = by_entity(&reading(used), &naming(by, &paths));
        found.values().map(|held| (held.used, held.peak)).collect()
    };
    assert_eq!(
        used_by(By::Container, &used),
        [(60, Some(120)), (30, Some(60))]
    );
    assert_eq!(used_by(By::Pod, &used), [(100, Some(200))]);
    assert_eq!(used_by(By::Cgroup, &used).len(), 5);
    // A pod without a known cgroup of its own has the sum of its containers.
    let naming = naming(By::Pod, &paths);
    let mut without_pod = reading(&used);
    without_pod.held.remove(0);
    let found: Vec<_> = by_entity(&without_pod, &naming).into_values().collect();
    assert_eq!(
        (found[0].used, found[0].peak, found[0].limit),
        (90, None, Some(2000))
    );
}

/// In every view the command has the memory of its processes, or of its cgroup if the memory
/// controller counts it.
#[test]
fn a_command_holds_the_memory_of_its_processes() {
    let mut view = View {
        command: Some(CommandOwner {
            name: "make".to_owned(),
            owner: CgroupId(10),
        }),
        ..View::default()
    };
    let names = Names {
        cgroups: [(CgroupId(10), "/run".to_owned())].into(),
        ..Names::default()
    };
    let names = Arc::new(names);
    let command = Entity::Command("make".into());
    for by in [By::Container, By::Pod, By::Cgroup, By::Process] {
        view.by = by;
        let naming = view.naming(&names);
        let mut reading = reading(&[]);
        let used = |used| MemoryUse {
            used,
            ..MemoryUse::default()
        };
        reading.held.push((MemoryHolder::Command, used(7)));
        let found = by_entity(&reading, &naming);
        assert_eq!(found[&command].used, 7, "{by:?}");
        reading
            .held
            .insert(0, (MemoryHolder::Cgroup(CgroupId(10)), used(9)));
        let found = by_entity(&reading, &naming);
        assert_eq!(found[&command].used, 9, "{by:?}");
    }
}

/// Memory use of a holder at the ends of windows, each with the kernel's maximum until then.
fn history() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let steps = prop::collection::vec((0..1000_u64, 0..1500_u64), 2..12);
    (0..2000_u64, steps).prop_map(|(first, steps)| {
        let mut most = first;
        steps
            .into_iter()
            .map(|(used, between)| {
                most = most.max(used).max(between);
                (used, most)
            })
            .collect()
    })
}

proptest! {
    /// The peak is at least every observed value, at most the kernel's maximum, and exact if the
    /// kernel's maximum rose in the session.
    #[test]
    fn a_peak_is_the_maximum_of_the_session(history in history()) {
        let paths = [format!("/{}", id('c'))];
        let naming = naming(By::Container, &paths);
        let at = |(used, peak): (u64, u64)| {
            let mut reading = reading(&[used]);
            reading.held[0].1.peak = Some(peak);
            reading
        };
        let mut before: Option<MemoryCapacities> = None;
        for (second, ends) in (0..).zip(history.windows(2)) {
            let window = Window {
                start: Duration::from_secs(second),
                length: Duration::from_secs(1),
                ..window::tests::empty()
            };
            let readings = [at(ends[0]), at(ends[1])];
            before = Some(MemoryCapacities::from_readings(
                &readings,
                &window,
                &naming,
                before.as_ref(),
            ));
        }
        let all = before.unwrap();
        let peak = all.entities.values().next().unwrap().peak;
        let seen = history.iter().map(|(used, _)| *used).max().unwrap();
        let (first, last) = (history[0].1, history[history.len() - 1].1);
        prop_assert!(peak.bytes >= seen && peak.bytes <= last);
        if last > first {
            prop_assert_eq!(peak.bytes, last);
            let reached = history.iter().position(|(_, most)| *most == last).unwrap();
            prop_assert_eq!(peak.at, Duration::from_secs(reached as u64));
        } else {
            prop_assert_eq!(peak.bytes, seen);
        }
    }
}

/// The peak of a container that was created in the window is known, even if it was between its
/// ends.
#[test]
fn a_new_owner_has_its_peak_since_creation() {
    let now = MemoryUse {
        used: 10,
        peak: Some(900),
        ..MemoryUse::default()
    };
    let [start, end] = [3, 4].map(Duration::from_secs);
    let created = MemoryPeak::from_window(None, now, start, end);
    assert_eq!(
        created,
        MemoryPeak {
            bytes: 900,
            at: end
        }
    );
    let existing = MemoryPeak::from_window(Some(&now), now, start, end);
    assert_eq!(existing, MemoryPeak { bytes: 10, at: end });
    // A process has no row until it runs: its maximum is from before the window.
    let aged = |seconds| MemoryUse {
        age: Some(Duration::from_secs(seconds)),
        ..now
    };
    assert_eq!(
        MemoryPeak::from_window(None, aged(0), start, end).bytes,
        900
    );
    assert_eq!(MemoryPeak::from_window(None, aged(5), start, end).bytes, 10);
}
