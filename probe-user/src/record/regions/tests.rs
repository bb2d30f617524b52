//! The book: processes, threads and memory together, and what samples are given.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex},
};

use probe_common::{Marked, What, spe::Records};

use super::*;
use crate::{
    record::{Sample, Seen, Sink as _, Who},
    sys::{records::Map, tree::Tree},
};

fn mark(book: &mut Book, time: u64, (tgid, tid): (u32, u32), what: What<'_>) {
    book.mark(&Marked {
        time,
        tgid,
        tid,
        what,
    });
}

fn start(name: &str) -> What<'_> {
    What::Start {
        name: Some(name.as_bytes()),
    }
}

fn tag(name: &str, start: u64, end: u64) -> What<'_> {
    What::Tag {
        name: Some(name.as_bytes()),
        start,
        end,
    }
}

/// Region and phase of an access.
fn place(book: &mut Book, who: (u32, u32), address: u64, time: u64) -> [Option<String>; 2] {
    book.settle();
    let (region, phase) = book.place(who, address, Some(time));
    [region, phase].map(|name| name.map(|name| name.to_string()))
}

fn named(names: [&str; 2]) -> [Option<String>; 2] {
    names.map(|name| (!name.is_empty()).then(|| name.to_owned()))
}

#[test]
fn workers_are_in_the_phase_of_the_first_thread_unless_in_their_own() {
    let proc = Tree::new();
    let mut book = Book::new(proc.path());
    mark(&mut book, 10, (7, 7), start("solve"));
    mark(&mut book, 20, (7, 8), start("own"));
    mark(&mut book, 30, (7, 8), What::Stop);
    mark(&mut book, 40, (7, 7), What::Stop);
    for (time, phase) in [(5, ""), (15, "solve"), (25, "own"), (35, "solve"), (45, "")] {
        assert_eq!(
            place(&mut book, (7, 8), 0, time),
            named(["", phase]),
            "{time}"
        );
    }
    assert_eq!(place(&mut book, (9, 9), 0, 25), named(["", ""]));
}

#[test]
fn a_child_goes_on_where_its_parent_forked_and_begins_anew_at_exec() {
    let proc = Tree::new();
    let mut book = Book::new(proc.path());
    mark(&mut book, 1, (7, 7), tag("a", 100, 200));
    mark(&mut book, 2, (7, 9), start("worker"));
    mark(&mut book, 10, (7, 9), What::Fork(20));
    mark(&mut book, 11, (7, 7), tag("late", 300, 400));
    assert_eq!(place(&mut book, (20, 20), 150, 10), named(["a", "worker"]));
    assert_eq!(place(&mut book, (20, 20), 350, 12), named(["", "worker"]));
    mark(&mut book, 20, (20, 20), What::Exec);
    mark(&mut book, 25, (20, 20), tag("new", 100, 200));
    assert_eq!(place(&mut book, (20, 20), 150, 19), named(["a", "worker"]));
    assert_eq!(place(&mut book, (20, 20), 150, 21), named(["", ""]));
    assert_eq!(place(&mut book, (20, 20), 150, 25), named(["new", ""]));
    // The parent has what it had.
    assert_eq!(place(&mut book, (7, 9), 150, 25), named(["a", "worker"]));
}

#[test]
fn what_ended_is_known_for_a_minute() {
    let proc = Tree::new();
    let mut book = Book::new(proc.path());
    mark(&mut book, 1, (7, 7), tag("a", 100, 200));
    mark(&mut book, 1, (7, 7), start("phase"));
    mark(&mut book, 5, (7, 7), What::Exit { last: true });
    assert_eq!(place(&mut book, (7, 7), 150, 4), named(["a", "phase"]));
    book.round_ends();
    mark(&mut book, KEPT - 1, (8, 8), start("other"));
    assert_eq!(place(&mut book, (7, 7), 150, 4), named(["a", "phase"]));
    mark(&mut book, KEPT + 6, (8, 8), What::Stop);
    book.settle();
    book.round_ends();
    assert!(!book.said.contains_key(&7));
    // They are listed all the same.
    let of = |of: &Of<Tag>| (of.pid, of.is.name.to_string(), of.is.until);
    assert_eq!(
        book.tags().iter().map(of).collect::<Vec<_>>(),
        [(7, "a".into(), Some(5))]
    );
}

/// A parent with many tags that forks often: its children share them, until there is a change.
#[test]
fn children_share_tags_and_list_none_of_them_again() {
    let proc = Tree::new();
    let mut book = Book::new(proc.path());
    book.room = Room::of(100);
    for at in 0..40 {
        mark(&mut book, 1, (7, 7), tag("a", at * 8, at * 8 + 4));
    }
    for child in 100..140 {
        mark(&mut book, 2, (7, 7), What::Fork(child));
        mark(&mut book, 4, (child, child), What::Exit { last: true });
    }
    book.settle();
    assert_eq!(book.counts.dropped_tags, 0);
    assert_eq!(place(&mut book, (139, 139), 8, 3), named(["a", ""]));
    assert_eq!(place(&mut book, (139, 139), 8, 4), named(["", ""]));
    assert_eq!(book.tags().len(), 40);
    // One of its own is listed; the copy for the change has no room, and neither is it wrong.
    mark(&mut book, 5, (7, 7), What::Fork(200));
    mark(&mut book, 6, (200, 200), tag("b", 0, 2));
    assert_eq!(book.counts.dropped_tags, 40);
    assert_eq!(place(&mut book, (200, 200), 0, 5), named(["a", ""]));
    assert_eq!(place(&mut book, (200, 200), 0, 6), named(["b", ""]));
    assert_eq!(place(&mut book, (200, 200), 8, 6), named(["", ""]));
    assert_eq!(place(&mut book, (7, 7), 0, 6), named(["a", ""]));
    let listed = book.tags();
    assert_eq!(listed.len(), 41);
    assert!(listed.iter().any(|of| of.pid == 200 && &*of.is.name == "b"));
}

/// All that processes say has one limit, and what ended makes room a minute later.
#[test]
fn tags_and_phases_of_all_processes_have_a_limit() {
    let proc = Tree::new();
    let mut book = Book::new(proc.path());
    book.room = Room::of(10);
    for at in 0..6 {
        mark(&mut book, 1, (7, 7), tag("a", at * 8, at * 8 + 4));
    }
    mark(&mut book, 2, (8, 8), start("one"));
    mark(&mut book, 3, (8, 8), start("two"));
    mark(&mut book, 3, (7, 7), tag("last", 80, 90));
    mark(&mut book, 3, (7, 7), tag("none", 90, 99));
    mark(&mut book, 4, (7, 7), What::Fork(9));
    let counts = book.counts;
    assert_eq!((counts.dropped_tags, counts.dropped_phases), (1 + 7, 1));
    assert_eq!(place(&mut book, (8, 8), 0, 3), named(["", "one"]));
    assert_eq!(place(&mut book, (9, 9), 0, 4), named(["", ""]));
    mark(&mut book, 5, (8, 8), What::Stop);
    mark(&mut book, 6, (8, 8), What::Stop);
    assert_eq!(book.counts.unbalanced_stops, 0);
    mark(&mut book, 7, (7, 7), What::Exit { last: true });
    mark(&mut book, KEPT + 9, (8, 8), What::Stop);
    book.settle();
    mark(&mut book, KEPT + 9, (5, 5), tag("new", 0, 4));
    assert_eq!(place(&mut book, (5, 5), 0, KEPT + 9), named(["new", ""]));
}

#[test]
fn names_have_a_limit_and_those_in_use_stay() {
    let proc = Tree::new();
    let mut book = Book::new(proc.path());
    book.names = Names::of(3 * 67);
    for (time, name) in [(1, "abc"), (2, "def"), (3, "ghi")] {
        mark(&mut book, time, (7, 7), tag(name, 0, 8));
    }
    // None of the ended is known after a minute; its list keeps the names of those.
    mark(&mut book, 4, (7, 7), tag("jkl", 0, 8));
    assert_eq!(book.counts.dropped_tags, 1);
    // What it had there before is not there.
    assert_eq!(place(&mut book, (7, 7), 0, 4), named(["", ""]));
    assert_eq!(place(&mut book, (7, 7), 0, 3), named(["ghi", ""]));
    mark(&mut book, 5, (7, 7), start("mno"));
    assert_eq!(book.counts.dropped_phases, 1);
    book.tags = Listed::default();
    mark(&mut book, KEPT + 9, (7, 7), What::Stop);
    book.settle();
    book.round_ends();
    mark(&mut book, KEPT + 9, (7, 7), tag("jkl", 0, 8));
    assert_eq!(place(&mut book, (7, 7), 0, KEPT + 9), named(["jkl", ""]));
}

/// More mappings than are kept are told of.
#[test]
fn mappings_that_have_no_room_are_counted() {
    let proc = Tree::new();
    let line = |at: u64| format!("{:x}-{:x} rw-p 0 00:00 0 \n", at << 13, (at << 13) + 4096);
    proc.write("7/maps", (1..70_000).map(line).collect::<String>());
    let mut book = Book::new(proc.path());
    assert_eq!(
        place(&mut book, (7, 7), 69_999 << 13, 1),
        named(["[anonymous]", ""])
    );
    assert!(book.counts.dropped_mappings >= 70_000 - 1 - 65_536);
    assert!(
        book.counts
            .losses()
            .iter()
            .any(|(name, count)| name.contains("mappings") && *count > 0)
    );
}

#[test]
fn memory_without_a_tag_is_what_procfs_and_the_kernel_say() {
    let proc = Tree::new();
    let maps = "1000-2000 r-xp 0 fe:01 7 /bin/program\n3000-4000 rw-p 0 00:00 0 [heap]\n";
    proc.write("7/maps", maps);
    let mut book = Book::new(proc.path());
    mark(&mut book, 1, (7, 7), tag("array", 0x3800, 0x3900));
    for (address, region) in [
        (0x1000, "[file]"),
        (0x37ff, "[heap]"),
        (0x3800, "array"),
        (0xffff_8000_0000_0000, "[kernel]"),
        // A record of SPE has 56 bits of an address.
        (0x00ff_8000_0000_0000, "[kernel]"),
        (0x5000, ""),
    ] {
        assert_eq!(
            place(&mut book, (7, 7), address, 9),
            named([region, ""]),
            "{address:x}"
        );
    }
    book.learn(&Event::Map(Map {
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
        place(&mut book, (7, 7), 0x5000, 9),
        named(["[anonymous]", ""])
    );
}

/// A sample whose address is not known asks procfs again, once in a round.
#[test]
fn memory_that_was_moved_is_found() {
    let proc = Tree::new();
    proc.write("7/maps", "1000-2000 rw-p 0 00:00 0 [heap]\n");
    let book = Mutex::new(Book::new(proc.path()));
    let mut viewer = Viewer::default();
    let region = |viewer: &mut Viewer, address| {
        let (region, _) = viewer.place(&book, (7, 7), Some(address), None);
        region.map(|name| name.to_string())
    };
    assert_eq!(region(&mut viewer, 0x1000).as_deref(), Some("[heap]"));
    proc.write("7/maps", "8000-9000 rw-p 0 00:00 0 \n");
    assert_eq!(region(&mut viewer, 0x8000), None, "asked in this round");
    viewer.round_ends();
    book.lock().unwrap().round_ends();
    assert_eq!(region(&mut viewer, 0x8000).as_deref(), Some("[anonymous]"));
}

/// Samples of a process that has ended may come a little later: its memory is known until then.
#[test]
fn memory_of_a_process_that_has_ended_is_known() {
    let proc = Tree::new();
    proc.write("7/maps", "1000-2000 rw-p 0 00:00 0 [heap]\n");
    let mut book = Book::new(proc.path());
    let heap = || named(["[heap]", ""]);
    assert_eq!(place(&mut book, (7, 7), 0x1000, 9), heap());
    std::fs::remove_dir_all(proc.path().join("7")).unwrap();
    // In the first of them it is looked whether it is there.
    for _ in 0..3 {
        book.round_ends();
        assert_eq!(place(&mut book, (7, 7), 0x1000, 9), heap());
    }
    for _ in 0..1200 {
        book.round_ends();
    }
    assert!(book.areas.is_empty());
}

#[test]
fn sums_are_those_of_the_samples() {
    let summary = Summary::new(NonZeroUsize::new(2).unwrap());
    let sample = |tid: u32, region: &str, phase: Option<&str>, cycles: u16| {
        // A load, or a store, with its total latency, and an end.
        let mut bytes = vec![0x49, u8::from(region == "b"), 0x98];
        bytes.extend(cycles.to_le_bytes());
        bytes.push(0x01);
        Sample {
            time: None,
            cpu: None,
            tid: Some(tid),
            who: Some(Arc::new(Who {
                pid: 7,
                name: format!("thread{tid}").into(),
                cgroup: None,
            })),
            cgroup: None,
            origin: None,
            region: Some(region.into()),
            phase: phase.map(Into::into),
            seen: Seen::Record(Records::new(&bytes).next().unwrap().unwrap()),
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
        rows(By::Region),
        [text("a", 3, 0, 20.0), text("b", 0, 1, 20.0)]
    );
    let by_phase = rows(By::Phase);
    assert_eq!(by_phase[0].0, "x");
    assert_eq!((by_phase[0].1, by_phase[0].2), (2, 1));
    assert_eq!(by_phase[1], text("-", 1, 0, 40.0));
    let by_thread: Vec<_> = rows(By::Thread)
        .into_iter()
        .map(|row| (row.0, row.1))
        .collect();
    assert_eq!(
        by_thread,
        [("thread1".to_owned(), 2), ("thread2".to_owned(), 1)]
    );
    assert_eq!(summary.rows(By::All).len(), 3);
}
