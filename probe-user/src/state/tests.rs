//! States of random histories, and invalid files.

use std::{fs, sync::Arc, time::Duration};

use probe_common::{
    CgroupId, GROUP_COUNTERS, UsageKey, UsageRow,
    spe::{Class, SpeAccess},
};
use proptest::prelude::*;

use super::*;
use crate::{
    event::{AccessScaling, Counter, Exclude, Scope},
    join::{By, Entity},
    plan::Planned,
    snapshot::{
        Health, SampleCounts, SampleOrigin, SampledEventHealth, SampledKey, SourceReadings,
    },
    window::{GroupCounts, SampleSource, spe_reading},
};

const BOOT: &str = "2c9e1d6e-7b4b-4f0e-9a53-0d0e3a3b8f11";

/// One event on CPUs, and one on an uncore PMU.
fn plan() -> Plan {
    let event = |type_| Planned {
        column: 0,
        counter: Counter {
            pmu: None,
            scope: Scope::Cpu,
            type_,
            config: 1,
            config1: 0,
            config2: 0,
            config3: 0,
            config4: 0,
        },
        exclude: Exclude::default(),
    };
    Plan {
        groups: vec![vec![event(1)]],
        uncore: vec![event(20)],
        ..Plan::default()
    }
}

fn view() -> View {
    View {
        by: By::Cgroup,
        ..View::default()
    }
}

fn snapshot(at: u64, counts: &[u64]) -> Snapshot {
    let row = |(cgroup, count): (u64, &u64)| {
        let key = UsageKey {
            cgroup: CgroupId(cgroup),
            tgid: 0,
            cpu: 0,
            group: 0,
        };
        let row = UsageRow {
            counts: [*count; GROUP_COUNTERS],
            enabled: 2 * count,
            running: *count,
            estimated: 0,
            made: 1,
        };
        (key, row)
    };
    let names = (2..)
        .zip(counts)
        .map(|(id, _)| (CgroupId(id), format!("/\u{1f600}\n{id}")));
    Snapshot {
        at: Duration::from_secs(at),
        boot_time: Duration::from_secs(9),
        rows: (2..).zip(counts).map(row).collect(),
        freed: Vec::new(),
        uncore: vec![UncoreReading {
            at: 0,
            socket: 0,
            instance: 0,
            count: Some(at),
            skew: 0,
            enabled: at,
            running: at,
        }],
        topology: None,
        sources: SourceReadings::default(),
        samples: None,
        names: Arc::new(Names {
            cgroups: names.collect(),
            ..Names::default()
        }),
        health: Health::default(),
    }
}

/// The bytes saved after a window from zero to these counts.
fn saved(now: &Snapshot) -> Vec<u8> {
    let window = Window::between(
        &before(now, Duration::ZERO, UsageRows::default()),
        now,
        &plan(),
    );
    let joined = view().join(&plan(), &window, None);
    let mut bytes = Vec::new();
    let state = SavedState::new(BOOT, 7, &plan(), now, &window, &joined);
    file::write(&state, &mut bytes).unwrap();
    bytes
}

fn totals(joined: &Joined) -> Vec<(Entity, Usage, Duration)> {
    let rows = joined.rows.iter();
    rows.map(|(entity, gained)| (entity.clone(), gained.total.clone(), gained.since))
        .collect()
}

fn raw_counts(usage: &Usage) -> [u64; GROUP_COUNTERS] {
    usage[0]
        .as_ref()
        .map_or([0; _], |counted: &GroupCounts| counted.counts)
}

proptest! {
    /// With the same maps a restart changes no total, not even by rounding.
    #[test]
    fn a_restart_changes_no_total(
        first in prop::collection::vec(0..1_u64 << 40, 0..6),
        added in prop::collection::vec(0..1_u64 << 40, 6..7),
    ) {
        let now: Vec<u64> = first.iter().zip(&added).map(|(first, added)| first + added).collect();
        let (first, now) = (snapshot(10, &first), snapshot(20, &now));
        let window = Window::between(&snapshot(0, &[]), &first, &plan());
        let joined = view().join(&plan(), &window, None);
        let next = window.next(&first, &now, &plan());
        let whole = view().join(&plan(), &next, Some(&joined));

        let state = file::parse::<SavedState<'static>>(&saved(&first)).unwrap();
        let owners: Vec<CgroupId> = first.rows.keys().map(|key| key.cgroup).collect();
        prop_assert_eq!(state.owners().into_iter().collect::<Vec<_>>(), owners);
        prop_assert_eq!(state.names(), &*first.names);
        let (resumed, joined) = state.resume(&now, 7, &plan(), &view()).unwrap();
        prop_assert_eq!(totals(&joined), totals(&whole));
        prop_assert_eq!(&resumed.total.total, &next.total.total);
        prop_assert_eq!((resumed.began, resumed.boot_time), (next.began, next.boot_time));
        prop_assert_eq!(resumed.length, Duration::from_secs(10));
    }

    /// Counts of new maps are added to the totals.
    #[test]
    fn counts_of_new_maps_are_added(
        counts in prop::collection::vec((0..1_u64 << 40, 0..1_u64 << 40), 1..6),
    ) {
        let (first, now): (Vec<u64>, Vec<u64>) = counts.iter().copied().unzip();
        let state = file::parse::<SavedState<'static>>(&saved(&snapshot(10, &first))).unwrap();
        let (_, joined) = state.resume(&snapshot(20, &now), 8, &plan(), &view()).unwrap();
        for ((_, total, since), (first, now)) in totals(&joined).iter().zip(&counts) {
            prop_assert_eq!(raw_counts(total)[0], first + now);
            prop_assert_eq!(*since, Duration::ZERO);
        }
    }

    /// A changed bit or a missing end is detected, without a panic.
    #[test]
    fn damage_is_detected(at in any::<prop::sample::Index>(), bit in 0..8_u8, cut: bool) {
        let mut bytes = saved(&snapshot(10, &[1, u64::MAX / 4, 3]));
        let at = at.index(bytes.len());
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << bit;
        }
        prop_assert!(file::parse::<SavedState<'static>>(&bytes).is_none());
    }

    #[test]
    fn random_bytes_are_no_state(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(file::parse::<SavedState<'static>>(&bytes).is_none());
    }
}

/// Uncore counts of a session before its first snapshot are not lost.
#[test]
fn uncore_counts_before_the_first_snapshot_are_added() {
    let state = file::parse::<SavedState<'static>>(&saved(&snapshot(10, &[1]))).unwrap();
    let (window, _) = state
        .resume(&snapshot(30, &[1]), 8, &plan(), &view())
        .unwrap();
    let [total] = window.uncore_totals[..] else {
        panic!("{:?}", window.uncore_totals)
    };
    assert_eq!((total.raw, total.since), (10 + 30, Duration::ZERO));
}

/// A snapshot with samples of the second cgroup, from SPE if `spe`, and from these events.
fn sampled(at: u64, spe: bool, events: &[&str], samples: u64) -> Snapshot {
    let mut now = snapshot(at, &[1]);
    let (cgroup, tgid) = (CgroupId(2), 0);
    let counts = SampleCounts {
        samples,
        ..SampleCounts::default()
    };
    let event = |name: &&str| SampledEventHealth {
        name: (*name).to_owned(),
        ..SampledEventHealth::default()
    };
    let row = |origin| {
        let key = SampledKey {
            cgroup,
            tgid,
            origin,
        };
        (key, counts)
    };
    let access = SpeAccess::new(Class::Store, None);
    let mut samples = match spe {
        true => spe_reading([row(SampleOrigin::Spe { cpu: 0, access })].into()),
        false => SampleReading::default(),
    };
    samples.events = events.iter().map(event).collect();
    let of_events = (0..).zip(events);
    samples
        .rows
        .extend(of_events.map(|(event, _)| row(SampleOrigin::Event { event, source: 0 })));
    now.samples = Some(samples);
    now
}

/// Totals of samples with their start in seconds, which the machine and the second cgroup share.
fn totals_of_samples(window: &Window, joined: &Joined) -> Vec<(SampleSource, u64, u64)> {
    let total = &window.samples.as_ref().unwrap().total;
    let row = joined.samples.as_ref().unwrap();
    let row = row.of(&Entity::Cgroup("/\u{1f600}\n2".into())).unwrap();
    assert_eq!((&row.total, row.since), (&total.total, total.since));
    let kinds = total.total.iter();
    kinds
        .map(|(kind, counts)| (kind.source, counts.samples, total.since.as_secs()))
        .collect()
}

#[test]
fn totals_of_samples_continue_while_the_sources_are_equal() {
    use SampleSource::{Event, Spe};
    let zero = sampled(0, true, &["faults"], 0);
    let first = sampled(10, true, &["faults"], 30);
    let window = Window::between(&zero, &first, &plan());
    let joined = view().join(&plan(), &window, None);
    let next = |now: &Snapshot| {
        let next = window.next(&first, now, &plan());
        let joined = view().join(&plan(), &next, Some(&joined));
        totals_of_samples(&next, &joined)
    };
    let same = next(&sampled(20, true, &["faults"], 34));
    assert_eq!(same, [(Spe, 34, 0), (Event(0), 34, 0)]);
    let without_spe = next(&sampled(20, false, &["faults"], 34));
    assert_eq!(without_spe, [(Event(0), 4, 10)]);

    // A session begins to sample before its first snapshot.
    let restarted = |now: &Snapshot| {
        let mut bytes = Vec::new();
        let state = SavedState::new(BOOT, 7, &plan(), &first, &window, &joined);
        file::write(&state, &mut bytes).unwrap();
        let state = file::parse::<SavedState<'static>>(&bytes).unwrap();
        let (window, joined) = state.resume(now, 7, &plan(), &view()).unwrap();
        totals_of_samples(&window, &joined)
    };
    let same = restarted(&sampled(20, true, &["faults"], 4));
    assert_eq!(same, [(Spe, 34, 0), (Event(0), 34, 0)]);
    // The cgroup sleeps: it has no samples since the restart.
    let mut sleeps = sampled(20, true, &["faults"], 0);
    sleeps.samples.as_mut().unwrap().rows.clear();
    assert_eq!(restarted(&sleeps), [(Spe, 30, 0), (Event(0), 30, 0)]);
    let others = restarted(&sampled(20, true, &["loads", "faults"], 4));
    assert_eq!(others, [(Spe, 4, 10), (Event(0), 4, 10), (Event(1), 4, 10)]);
}

/// postcard is not self-describing: if the content changes, the format must change too, or older
/// files would be misread.
#[test]
fn the_format_is_raised_with_every_change() {
    let mut now = sampled(10, true, &["loads"], 1 << 40);
    let samples = now.samples.as_mut().unwrap();
    let (key, counts) = samples
        .rows
        .iter()
        .next()
        .map(|(key, it)| (*key, *it))
        .unwrap();
    let access = SpeAccess::new(Class::Load, Some(8));
    let origin = SampleOrigin::Spe { cpu: 0, access };
    samples.rows.insert(SampledKey { origin, ..key }, counts);
    samples.events[0].accesses = Some(AccessScaling::Counted);
    let bytes = saved(&now);
    let sum = bytes.last_chunk::<8>().unwrap();
    let known = ("10-1x204x2x12x6x4x20", 672_755_715_198_278_969);
    let format = file::known_format();
    let found = (format.as_str(), u64::from_le_bytes(*sum));
    assert_eq!(
        found, known,
        "raise FORMAT in state/file.rs, and set this to what is found"
    );
}

/// The error of [`SavedState::load`] for a file.
fn refusal(write: impl FnOnce(&std::path::Path)) -> String {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("totals"));
    SavedState::load(directory.path(), BOOT)
        .unwrap_err()
        .to_string()
}

#[test]
fn an_invalid_file_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    assert!(SavedState::load(directory.path(), BOOT).unwrap().is_none());

    let good = saved(&snapshot(10, &[1]));
    let with = |bytes: Vec<u8>| refusal(|path| fs::write(path, bytes).unwrap());
    assert!(with(b"root:x:0:0:\n".to_vec()).contains("no state of pmuscope"));
    assert!(with(Vec::new()).contains("no state of pmuscope"));
    assert!(with(vec![0; 1000]).contains("no state of pmuscope"));
    assert!(with(good[..good.len() - 1].to_vec()).contains("damaged"));
    // A file of 100 GiB is not read into memory.
    let text = refusal(|path| {
        fs::write(path, &good).unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_len(100 << 30).unwrap();
    });
    assert!(text.contains("damaged"), "{text}");
    let text = with(b"pmuscope totals, format 4000000000\n".to_vec());
    assert!(
        text.contains("has format 4000000000 and this program reads"),
        "{text}"
    );
    let text = refusal(|path| fs::create_dir(path).unwrap());
    assert!(text.contains("symbolic link or no regular file"), "{text}");
    let text = refusal(|path| {
        let mode = 0o600.into();
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    });
    assert!(text.contains("symbolic link or no regular file"), "{text}");
    let text = refusal(|path| std::os::unix::fs::symlink("/etc/passwd", path).unwrap());
    assert!(text.contains("totals start from zero"), "{text}");

    let path = directory.path().join("totals");
    fs::write(path, good).unwrap();
    assert!(SavedState::load(directory.path(), BOOT).unwrap().is_some());
    let text = SavedState::load(directory.path(), "another")
        .unwrap_err()
        .to_string();
    assert!(text.contains("of an earlier boot"), "{text}");
}

#[test]
fn a_save_replaces_the_file_or_keeps_the_old_one() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("made");
    let state = file::parse::<SavedState<'static>>(&saved(&snapshot(10, &[5]))).unwrap();
    // A killed process has left an unfinished file.
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("totals.new"), vec![7; 1 << 20]).unwrap();
    state.save(&directory).unwrap();
    let loaded = SavedState::load(&directory, BOOT).unwrap().unwrap();
    assert_eq!(loaded.at(), Duration::from_secs(10));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);

    let text = state
        .save(&directory.join("totals"))
        .unwrap_err()
        .to_string();
    assert!(text.contains("cannot save totals to"), "{text}");
    let loaded = SavedState::load(&directory, BOOT).unwrap();
    assert!(loaded.is_some());
}
