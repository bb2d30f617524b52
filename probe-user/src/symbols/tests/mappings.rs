//! Mappings of processes over time, from records and from a fake procfs.

use test_support::Tree;

use crate::{
    symbols::mappings::Mappings,
    sys::records::{Map, PerfRecord, Task},
};

fn map(pid: u32, start: u64, name: &str) -> PerfRecord<'_> {
    PerfRecord::Map(Map {
        pid,
        start,
        size: 0x1000,
        offset: 0,
        build_id: None,
        inode: None,
        executable: true,
        name: name.as_bytes(),
    })
}

fn fork(pid: u32, parent: u32) -> PerfRecord<'static> {
    PerfRecord::Fork(Task {
        pid,
        tid: pid,
        parent,
        parent_tid: parent,
    })
}

fn exec(pid: u32) -> PerfRecord<'static> {
    PerfRecord::Comm {
        pid,
        tid: pid,
        name: b"new",
        exec: true,
    }
}

fn exit(pid: u32) -> PerfRecord<'static> {
    PerfRecord::Exit(Task {
        pid,
        tid: pid,
        parent: 1,
        parent_tid: 1,
    })
}

/// Name of the mapping at an address and time.
fn at(mappings: &mut Mappings, pid: u32, address: u64, time: u64) -> Option<String> {
    let mapped = mappings.at(pid, address, Some(time))?;
    Some(String::from_utf8(mapped.name.to_vec()).unwrap())
}

/// Mappings that are read from records.
fn followed(proc: &Tree) -> Mappings {
    let mut mappings = Mappings::new(proc.path());
    mappings.followed = true;
    mappings
}

#[test]
fn the_time_selects_the_program_and_the_process_of_an_id() {
    let proc = Tree::new();
    let mut mappings = followed(&proc);
    let records = [
        (10, fork(7, 1)),
        (20, exec(7)),
        (30, map(7, 0x1000, "/bin/first")),
        // A child has its parent's mappings at the fork.
        (40, fork(8, 7)),
        (50, map(7, 0x1000, "/lib/over")),
        (60, exec(7)),
        (61, map(7, 0x1000, "/bin/second")),
        (70, exit(7)),
        // The id is reused.
        (80, fork(7, 1)),
        (81, exec(7)),
        (82, map(7, 0x1000, "/bin/other")),
    ];
    for (time, record) in &records {
        mappings.on_record(record, *time);
    }
    for (time, name) in [
        (35, "first"),
        (55, "over"),
        (65, "second"),
        (75, "second"),
        (90, "other"),
    ] {
        let found = at(&mut mappings, 7, 0x1800, time).unwrap();
        assert!(found.ends_with(name), "{time}: {found}");
    }
    assert_eq!(
        at(&mut mappings, 8, 0x1800, 90).as_deref(),
        Some("/bin/first")
    );
    assert_eq!(at(&mut mappings, 8, 0x2000, 90), None);
    let parents: Vec<u32> = mappings.ancestors(8).collect();
    assert_eq!(parents, [7, 1]);
    // Programs replaced before the next window are dropped.
    mappings.end_round(85);
    assert_eq!(
        at(&mut mappings, 7, 0x1800, 65).as_deref(),
        Some("/bin/other")
    );
}

/// Writes a process that started `start` ticks after the machine.
fn write_stat(proc: &Tree, pid: u32, start: u64) {
    let before = "0 ".repeat(18);
    proc.write(
        &format!("{pid}/stat"),
        format!("{pid} (a) b) S {before}{start} 0 0\n"),
    );
    proc.write(&format!("{pid}/status"), "PPid:\t1\nThreads:\t1\n");
}

#[test]
fn lost_records_are_replaced_from_procfs() {
    let proc = Tree::new();
    let mut mappings = followed(&proc);
    write_stat(&proc, 9, 0);
    proc.write("9/maps", "1000-2000 r-xp 0 fe:01 7 /bin/old\n");
    assert_eq!(at(&mut mappings, 9, 0x1800, 5).as_deref(), Some("/bin/old"));
    mappings.on_record(&map(9, 0x5000, "/lib/known"), 10);
    // The process unmaps a library and maps two other libraries; their records are lost.
    let new_maps = "1000-2000 r-xp 0 fe:01 7 /bin/old\n3000-4000 r-xp 0 fe:01 8 /lib/a\n\
               5000-6000 r-xp 0 fe:01 9 /lib/b\n";
    proc.write("9/maps", new_maps);
    assert_eq!(at(&mut mappings, 9, 0x3800, 20), None);
    mappings.on_record(&PerfRecord::Lost(3), 15);
    for (address, name) in [(0x1800, "/bin/old"), (0x3800, "/lib/a"), (0x5800, "/lib/b")] {
        assert_eq!(at(&mut mappings, 9, address, 20).as_deref(), Some(name));
    }
    assert_eq!((mappings.counts.lost, mappings.counts.read), (3, 2));
}

#[test]
fn a_process_that_started_after_a_sample_gives_it_no_name() {
    let proc = Tree::new();
    // The process started an hour after the machine.
    write_stat(&proc, 9, 360_000);
    proc.write("9/maps", "1000-2000 r-xp 0 fe:01 7 /bin/new\n");
    let mut mappings = followed(&proc);
    assert_eq!(at(&mut mappings, 9, 0x1800, 5), None);
    assert_eq!(
        at(&mut mappings, 9, 0x1800, u64::MAX).as_deref(),
        Some("/bin/new")
    );
}

#[test]
fn memory_is_bounded_and_drops_are_counted() {
    let proc = Tree::new();
    let mut mappings = followed(&proc);
    for n in 0..6000 {
        mappings.on_record(&map(9, n << 12, "/tmp/many"), n);
    }
    assert!(mappings.counts.dropped_mappings >= 6000 - 4096);
    assert!(at(&mut mappings, 9, 5999 << 12, u64::MAX).is_some());
    assert_eq!(at(&mut mappings, 9, 0, u64::MAX), None);
    for pid in 1000..20_000 {
        mappings.on_record(&fork(pid, 9), 7000);
        mappings.on_record(&exit(pid), 7001);
    }
    assert!(mappings.counts.dropped_processes >= 19_000 - 16_384);
    // Running processes stay.
    assert!(at(&mut mappings, 9, 5999 << 12, u64::MAX).is_some());
}

#[test]
fn mappings_of_all_processes_take_bounded_memory() {
    let proc = Tree::new();
    let mut mappings = followed(&proc);
    let name = "/".repeat(1000);
    for pid in 1..=100 {
        mappings.on_record(&fork(pid, 999), u64::from(pid));
        for at in 0..10 {
            mappings.on_record(&map(pid, 0x1000 * at, &name), 1000);
        }
    }
    mappings.on_record(&exit(60), 2000);
    // Each of the 100 processes takes between 10,000 and 15,000 bytes.
    mappings.bound_memory(1_000_000);
    let dropped = mappings.counts.dropped_processes;
    assert!((1..40).contains(&dropped), "{dropped}");
    // The ended process was dropped first.
    assert_eq!(at(&mut mappings, 60, 0x1800, 3000), None);
    assert!(at(&mut mappings, 100, 0x1800, 3000).is_some());
    mappings.bound_memory(1_000_000);
    assert_eq!(mappings.counts.dropped_processes, dropped);
}

#[test]
fn after_a_gap_in_records_procfs_is_read_again() {
    let proc = Tree::new();
    let mut mappings = followed(&proc);
    write_stat(&proc, 9, 0);
    proc.write("9/maps", "1000-2000 r-xp 0 fe:01 7 /bin/old\n");
    assert_eq!(at(&mut mappings, 9, 0x1800, 5).as_deref(), Some("/bin/old"));
    // The process has loaded another library, without a record.
    proc.write(
        "9/maps",
        "1000-2000 r-xp 0 fe:01 7 /bin/old\n5000-6000 r-xp 0 fe:01 9 /lib/b\n",
    );
    assert_eq!(at(&mut mappings, 9, 0x5800, 20), None);
    mappings.mark_stale();
    assert_eq!(at(&mut mappings, 9, 0x5800, 20).as_deref(), Some("/lib/b"));
}

#[test]
fn a_sample_before_the_first_known_program_has_no_name() {
    const SECOND: u64 = 1_000_000_000;
    let proc = Tree::new();
    let mut mappings = followed(&proc);
    // The process was unknown before this exec.
    mappings.on_record(&exec(9), 5 * SECOND);
    mappings.on_record(&map(9, 0x1000, "/bin/new"), 5 * SECOND + 1);
    assert_eq!(at(&mut mappings, 9, 0x1800, 4 * SECOND), None);
    assert_eq!(mappings.image_start(9, Some(4 * SECOND)), 0);
    let first = 5 * SECOND - 1000;
    assert_eq!(
        at(&mut mappings, 9, 0x1800, first).as_deref(),
        Some("/bin/new")
    );
}

#[test]
fn code_of_a_library_that_replaces_another_one_starts_later() {
    let proc = Tree::new();
    let mut mappings = followed(&proc);
    for (time, record) in [
        (10, exec(9)),
        (11, map(9, 0x1000, "/bin/a")),
        (20, map(9, 0x5000, "/lib/first")),
        (40, map(9, 0x5000, "/lib/second")),
        // A child starts with the second library, and loads a third.
        (50, fork(8, 9)),
        (60, map(8, 0x5000, "/lib/third")),
    ] {
        mappings.on_record(&record, time);
    }
    let mut code = |pid, address, time| mappings.code_start(pid, address, Some(time));
    assert_eq!([code(9, 0x1800, 15), code(9, 0x1800, 45)], [10, 10]);
    assert_eq!([code(9, 0x5800, 30), code(9, 0x5800, 45)], [10, 40]);
    assert_eq!([code(8, 0x5800, 55), code(8, 0x5800, 65)], [50, 60]);
    // Memory without a file is distinguished only by the program.
    mappings.on_record(&map(9, 0x5000, "//anon"), 70);
    assert_eq!(mappings.code_start(9, 0x5800, Some(75)), 10);
}

#[test]
fn a_process_continues_if_a_thread_other_than_the_leader_calls_exec() {
    let proc = Tree::new();
    let mut mappings = followed(&proc);
    let records = [
        (10, fork(9, 1)),
        // The kernel ends the leader, and the other thread takes its id.
        (20, exit(9)),
        (21, exec(9)),
        (22, map(9, 0x1000, "/bin/new")),
    ];
    for (time, record) in &records {
        mappings.on_record(record, *time);
    }
    mappings.end_round(100);
    assert_eq!(
        at(&mut mappings, 9, 0x1800, 110).as_deref(),
        Some("/bin/new")
    );
}

#[test]
fn a_missing_process_is_looked_up_once_a_round() {
    let proc = Tree::new();
    let mut mappings = followed(&proc);
    assert_eq!(at(&mut mappings, 9, 0x1800, 5), None);
    write_stat(&proc, 9, 0);
    proc.write("9/maps", "1000-2000 r-xp 0 fe:01 7 /bin/late\n");
    assert_eq!(at(&mut mappings, 9, 0x1800, 5), None);
    mappings.end_round(0);
    assert_eq!(
        at(&mut mappings, 9, 0x1800, 5).as_deref(),
        Some("/bin/late")
    );
    // After a record of a process, procfs is read at once.
    assert_eq!(at(&mut mappings, 7, 0x1800, 5), None);
    mappings.on_record(&fork(7, 9), 10);
    assert_eq!(
        at(&mut mappings, 7, 0x1800, 15).as_deref(),
        Some("/bin/late")
    );
}
