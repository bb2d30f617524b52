//! Tests the [`RegionIndex`] with processes, threads and memory together, and sums by region.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex},
};

use probe_common::{MarkerEvent, MarkerRecord, spe::Records};
use test_support::Tree;

use super::*;
use crate::{
    samples::{Sample, SampleData, Sink as _, TaskInfo},
    sys::records::Map,
};

fn mark(index: &mut RegionIndex, time: u64, (tgid, tid): (u32, u32), what: MarkerEvent<'_>) {
    index.mark(&MarkerRecord {
        time,
        tgid,
        tid,
        what,
    });
}

fn start(name: &str) -> MarkerEvent<'_> {
    MarkerEvent::Start {
        name: Some(name.as_bytes()),
    }
}

fn tag(name: &str, start: u64, end: u64) -> MarkerEvent<'_> {
    MarkerEvent::Tag {
        name: Some(name.as_bytes()),
        start,
        end,
    }
}

/// Region and phase of an access; `task` is process and thread.
fn lookup(
    index: &mut RegionIndex,
    task: (u32, u32),
    address: u64,
    time: u64,
) -> [Option<String>; 2] {
    index.prepare_lookups();
    let (region, phase) = index.lookup(task, address, Some(time));
    [region, phase].map(|name| name.map(|name| name.to_string()))
}

/// Expected region and phase; "" is None.
fn named(names: [&str; 2]) -> [Option<String>; 2] {
    names.map(|name| (!name.is_empty()).then(|| name.to_owned()))
}

#[test]
fn threads_without_a_phase_have_the_phase_of_the_main_thread() {
    let proc = Tree::new();
    let mut index = RegionIndex::new(proc.path());
    mark(&mut index, 10, (7, 7), start("solve"));
    mark(&mut index, 20, (7, 8), start("own"));
    mark(&mut index, 30, (7, 8), MarkerEvent::Stop);
    mark(&mut index, 40, (7, 7), MarkerEvent::Stop);
    for (time, phase) in [(5, ""), (15, "solve"), (25, "own"), (35, "solve"), (45, "")] {
        assert_eq!(
            lookup(&mut index, (7, 8), 0, time),
            named(["", phase]),
            "{time}"
        );
    }
    assert_eq!(lookup(&mut index, (9, 9), 0, 25), named(["", ""]));
}

#[test]
fn a_child_continues_its_parents_phases_until_exec() {
    let proc = Tree::new();
    let mut index = RegionIndex::new(proc.path());
    mark(&mut index, 1, (7, 7), tag("a", 100, 200));
    mark(&mut index, 2, (7, 9), start("worker"));
    mark(&mut index, 10, (7, 9), MarkerEvent::Fork(20));
    mark(&mut index, 11, (7, 7), tag("late", 300, 400));
    assert_eq!(
        lookup(&mut index, (20, 20), 150, 10),
        named(["a", "worker"])
    );
    assert_eq!(lookup(&mut index, (20, 20), 350, 12), named(["", "worker"]));
    mark(&mut index, 20, (20, 20), MarkerEvent::Exec);
    mark(&mut index, 25, (20, 20), tag("new", 100, 200));
    assert_eq!(
        lookup(&mut index, (20, 20), 150, 19),
        named(["a", "worker"])
    );
    assert_eq!(lookup(&mut index, (20, 20), 150, 21), named(["", ""]));
    assert_eq!(lookup(&mut index, (20, 20), 150, 25), named(["new", ""]));
    // The parent's tags stay.
    assert_eq!(lookup(&mut index, (7, 9), 150, 25), named(["a", "worker"]));
}

#[test]
fn an_ended_process_is_known_for_a_minute() {
    let proc = Tree::new();
    let mut index = RegionIndex::new(proc.path());
    mark(&mut index, 1, (7, 7), tag("a", 100, 200));
    mark(&mut index, 1, (7, 7), start("phase"));
    mark(&mut index, 5, (7, 7), MarkerEvent::Exit { last: true });
    assert_eq!(lookup(&mut index, (7, 7), 150, 4), named(["a", "phase"]));
    index.end_round();
    mark(&mut index, KEPT_NS - 1, (8, 8), start("other"));
    assert_eq!(lookup(&mut index, (7, 7), 150, 4), named(["a", "phase"]));
    mark(&mut index, KEPT_NS + 6, (8, 8), MarkerEvent::Stop);
    index.prepare_lookups();
    index.end_round();
    assert!(!index.markers.contains_key(&7));
    // Its tags are still listed.
    let listed = |tag: &WithTask<Tag>| (tag.pid, tag.item.name.to_string(), tag.item.until);
    assert_eq!(
        index.tags().iter().map(listed).collect::<Vec<_>>(),
        [(7, "a".into(), Some(5))]
    );
}

/// A parent with many tags forks often: its children share them until a change.
#[test]
fn children_share_tags_without_listing_them_again() {
    let proc = Tree::new();
    let mut index = RegionIndex::new(proc.path());
    index.budget = EntryBudget::with_limit(100);
    for at in 0..40 {
        mark(&mut index, 1, (7, 7), tag("a", at * 8, at * 8 + 4));
    }
    for child in 100..140 {
        mark(&mut index, 2, (7, 7), MarkerEvent::Fork(child));
        mark(
            &mut index,
            4,
            (child, child),
            MarkerEvent::Exit { last: true },
        );
    }
    index.prepare_lookups();
    assert_eq!(index.counts.dropped_tags, 0);
    assert_eq!(lookup(&mut index, (139, 139), 8, 3), named(["a", ""]));
    assert_eq!(lookup(&mut index, (139, 139), 8, 4), named(["", ""]));
    assert_eq!(index.tags().len(), 40);
    // The child's own tag is listed. It has no other tags, since the limit leaves no space for a
    // copy of the shared ones.
    mark(&mut index, 5, (7, 7), MarkerEvent::Fork(200));
    mark(&mut index, 6, (200, 200), tag("b", 0, 2));
    assert_eq!(index.counts.dropped_tags, 40);
    assert_eq!(lookup(&mut index, (200, 200), 0, 5), named(["a", ""]));
    assert_eq!(lookup(&mut index, (200, 200), 0, 6), named(["b", ""]));
    assert_eq!(lookup(&mut index, (200, 200), 8, 6), named(["", ""]));
    assert_eq!(lookup(&mut index, (7, 7), 0, 6), named(["a", ""]));
    let listed = index.tags();
    assert_eq!(listed.len(), 41);
    assert!(
        listed
            .iter()
            .any(|it| it.pid == 200 && &*it.item.name == "b")
    );
}

/// Entries that ended free their space a minute later.
#[test]
fn tags_and_phases_of_all_processes_have_a_limit() {
    let proc = Tree::new();
    let mut index = RegionIndex::new(proc.path());
    index.budget = EntryBudget::with_limit(10);
    for at in 0..6 {
        mark(&mut index, 1, (7, 7), tag("a", at * 8, at * 8 + 4));
    }
    mark(&mut index, 2, (8, 8), start("one"));
    mark(&mut index, 3, (8, 8), start("two"));
    mark(&mut index, 3, (7, 7), tag("last", 80, 90));
    mark(&mut index, 3, (7, 7), tag("none", 90, 99));
    mark(&mut index, 4, (7, 7), MarkerEvent::Fork(9));
    let counts = index.counts;
    // Dropped are the tag `none`, the 7 tags of the forked child, and the phase `two`.
    assert_eq!((counts.dropped_tags, counts.dropped_phases), (1 + 7, 1));
    assert_eq!(lookup(&mut index, (8, 8), 0, 3), named(["", "one"]));
    assert_eq!(lookup(&mut index, (9, 9), 0, 4), named(["", ""]));
    mark(&mut index, 5, (8, 8), MarkerEvent::Stop);
    mark(&mut index, 6, (8, 8), MarkerEvent::Stop);
    assert_eq!(index.counts.unbalanced_stops, 0);
    mark(&mut index, 7, (7, 7), MarkerEvent::Exit { last: true });
    mark(&mut index, KEPT_NS + 9, (8, 8), MarkerEvent::Stop);
    index.prepare_lookups();
    mark(&mut index, KEPT_NS + 9, (5, 5), tag("new", 0, 4));
    assert_eq!(
        lookup(&mut index, (5, 5), 0, KEPT_NS + 9),
        named(["new", ""])
    );
}

#[test]
fn names_have_a_limit_and_free_their_space_when_they_are_not_used() {
    let proc = Tree::new();
    let mut index = RegionIndex::new(proc.path());
    // Space for three names of three bytes, with an overhead of 64 bytes each.
    index.names = NameTable::with_limit(3 * 67);
    for (time, name) in [(1, "abc"), (2, "def"), (3, "ghi")] {
        mark(&mut index, time, (7, 7), tag(name, 0, 8));
    }
    // All three names are in use: the ended tags are still listed.
    mark(&mut index, 4, (7, 7), tag("jkl", 0, 8));
    assert_eq!(index.counts.dropped_tags, 1);
    // The range has no tag after the dropped one, but its earlier tags stay known.
    assert_eq!(lookup(&mut index, (7, 7), 0, 4), named(["", ""]));
    assert_eq!(lookup(&mut index, (7, 7), 0, 3), named(["ghi", ""]));
    mark(&mut index, 5, (7, 7), start("mno"));
    assert_eq!(index.counts.dropped_phases, 1);
    index.tags = EndedList::default();
    mark(&mut index, KEPT_NS + 9, (7, 7), MarkerEvent::Stop);
    index.prepare_lookups();
    index.end_round();
    mark(&mut index, KEPT_NS + 9, (7, 7), tag("jkl", 0, 8));
    assert_eq!(
        lookup(&mut index, (7, 7), 0, KEPT_NS + 9),
        named(["jkl", ""])
    );
}

#[test]
fn mappings_beyond_the_limit_are_counted() {
    let proc = Tree::new();
    let line = |at: u64| format!("{:x}-{:x} rw-p 0 00:00 0 \n", at << 13, (at << 13) + 4096);
    proc.write("7/maps", (1..70_000).map(line).collect::<String>());
    let mut index = RegionIndex::new(proc.path());
    assert_eq!(
        lookup(&mut index, (7, 7), 69_999 << 13, 1),
        named(["[anonymous]", ""])
    );
    assert!(index.counts.dropped_mappings >= 70_000 - 1 - 65_536);
    assert!(
        index
            .counts
            .loss_counts()
            .iter()
            .any(|(name, count)| name.contains("mappings") && *count > 0)
    );
}

#[test]
fn untagged_memory_has_its_kind_from_procfs_and_records() {
    let proc = Tree::new();
    let maps = "1000-2000 r-xp 0 fe:01 7 /bin/program\n3000-4000 rw-p 0 00:00 0 [heap]\n";
    proc.write("7/maps", maps);
    let mut index = RegionIndex::new(proc.path());
    mark(&mut index, 1, (7, 7), tag("array", 0x3800, 0x3900));
    for (address, region) in [
        (0x1000, "[file]"),
        (0x37ff, "[heap]"),
        (0x3800, "array"),
        (0xffff_8000_0000_0000, "[kernel]"),
        // An SPE record has 56 address bits.
        (0x00ff_8000_0000_0000, "[kernel]"),
        (0x5000, ""),
    ] {
        assert_eq!(
            lookup(&mut index, (7, 7), address, 9),
            named([region, ""]),
            "{address:x}"
        );
    }
    index.on_record(&PerfRecord::Map(Map {
        pid: 7,
        start: 0x5000,
        size: 0x1000,
        offset: 0,
        build_id: None,
        inode: None,
        executable: false,
        name: b"//anon",
    }));
    assert_eq!(
        lookup(&mut index, (7, 7), 0x5000, 9),
        named(["[anonymous]", ""])
    );
}

/// A lookup of an unknown address reads procfs again, once a round.
#[test]
fn newly_mapped_memory_is_found_in_the_next_round() {
    let proc = Tree::new();
    proc.write("7/maps", "1000-2000 rw-p 0 00:00 0 [heap]\n");
    let index = Mutex::new(RegionIndex::new(proc.path()));
    let mut views = ViewCache::default();
    let region = |views: &mut ViewCache, address| {
        let (region, _) = views.lookup(&index, (7, 7), Some(address), None);
        region.map(|name| name.to_string())
    };
    assert_eq!(region(&mut views, 0x1000).as_deref(), Some("[heap]"));
    proc.write("7/maps", "8000-9000 rw-p 0 00:00 0 \n");
    assert_eq!(region(&mut views, 0x8000), None, "asked in this round");
    views.end_round();
    index.lock().unwrap().end_round();
    assert_eq!(region(&mut views, 0x8000).as_deref(), Some("[anonymous]"));
}

/// The last samples of an exited process come a little later.
#[test]
fn memory_of_an_exited_process_stays_known() {
    let proc = Tree::new();
    proc.write("7/maps", "1000-2000 rw-p 0 00:00 0 [heap]\n");
    let mut index = RegionIndex::new(proc.path());
    let heap = || named(["[heap]", ""]);
    assert_eq!(lookup(&mut index, (7, 7), 0x1000, 9), heap());
    std::fs::remove_dir_all(proc.path().join("7")).unwrap();
    // The first check, in round 0, finds the process gone; its memory map is kept.
    for _ in 0..3 {
        index.end_round();
        assert_eq!(lookup(&mut index, (7, 7), 0x1000, 9), heap());
    }
    // Two more checks.
    for _ in 0..1200 {
        index.end_round();
    }
    assert!(index.memory_maps.is_empty());
}

#[test]
fn samples_are_summed_by_group() {
    let summary = RegionSummary::new(NonZeroUsize::new(2).unwrap());
    let sample = |tid: u32, region: &str, phase: Option<&str>, cycles: u16| {
        // Packets: the operation (a load or a store), its total latency, and the end.
        let mut bytes = vec![0x49, u8::from(region == "b"), 0x98];
        bytes.extend(cycles.to_le_bytes());
        bytes.push(0x01);
        Sample {
            time: None,
            cpu: None,
            tid: Some(tid),
            task: Some(Arc::new(TaskInfo {
                pid: 7,
                name: format!("thread{tid}").into(),
                cgroup: None,
            })),
            cgroup: None,
            origin: None,
            region: Some(region.into()),
            phase: phase.map(Into::into),
            data: SampleData::Record(Records::new(&bytes).next().unwrap().unwrap()),
        }
    };
    let samples = [
        sample(1, "a", Some("x"), 10),
        sample(1, "b", Some("x"), 20),
        sample(2, "a", None, 40),
    ];
    summary.samples(0, &samples).unwrap();
    summary.samples(1, &samples[..1]).unwrap();
    let rows = |by| {
        let rows = summary.rows(by).into_iter();
        let text = rows.map(|row| {
            let name = row.region.or(row.phase).or(row.comm);
            let mean = row.mean_latency_cycles.unwrap();
            (
                name.unwrap_or_else(|| "-".into()).to_string(),
                row.loads,
                row.stores,
                mean,
            )
        });
        text.collect::<Vec<_>>()
    };
    let text = |name: &str, loads, stores, mean| (name.to_owned(), loads, stores, mean);
    assert_eq!(
        rows(GroupBy::Region),
        [text("a", 3, 0, 20.0), text("b", 0, 1, 20.0)]
    );
    let by_phase = rows(GroupBy::Phase);
    assert_eq!(by_phase[0].0, "x");
    assert_eq!((by_phase[0].1, by_phase[0].2), (2, 1));
    assert_eq!(by_phase[1], text("-", 1, 0, 40.0));
    let by_thread: Vec<_> = rows(GroupBy::Thread)
        .into_iter()
        .map(|row| (row.0, row.1))
        .collect();
    assert_eq!(
        by_thread,
        [("thread1".to_owned(), 2), ("thread2".to_owned(), 1)]
    );
    assert_eq!(summary.rows(GroupBy::All).len(), 3);
}
