//! Markers of real programs, observed live: the kernel part of `mem record --regions`. Samples need
//! SPE: tests/vm/regions.rs.

mod files;
mod programs;

use std::{path::Path, sync::Arc};

use probe_common::{MarkerEvent, MarkerRecord};
use probe_user::{
    samples::regions::{MarkerCounts, RegionIndex},
    session::markers::{MarkerScope, Markers, ScanResult},
};

use programs::compile_marks;
use test_harness::{Load, hierarchy, shared_machine, this_machine};

/// The markers of a program from its start to its end.
struct Observation {
    markers: Markers,
    index: RegionIndex,
    /// Process, thread, and text of each marker.
    all: Vec<(u32, u32, String)>,
    pid: u32,
    output: String,
}

impl Observation {
    /// Runs a program that waits for the end of its input. `observe` starts to observe its markers.
    fn run(program: &Path, words: &str, observe: impl FnOnce(&mut Markers, u32)) -> Self {
        let load = Load::waiting(program, words);
        let pid = load.pid();
        let mut markers =
            Markers::open(&this_machine(), &MarkerScope::Processes(vec![pid])).unwrap();
        observe(&mut markers, pid);
        Self::new(markers, pid, load.finish())
    }

    /// The observation of a process that has ended: reads its markers from the ring.
    fn new(markers: Markers, pid: u32, output: String) -> Self {
        let mut seen = Self {
            markers,
            index: RegionIndex::new(Path::new("/proc")),
            all: Vec::new(),
            pid,
            output,
        };
        seen.drain();
        seen
    }

    fn drain(&mut self) {
        let Self {
            markers,
            index,
            all,
            ..
        } = self;
        markers
            .drain(|marked| {
                index.mark(&marked);
                all.push((marked.tgid, marked.tid, text(&marked)));
            })
            .unwrap();
        index.prepare_lookups();
    }

    /// The markers of the program's first thread.
    fn calls(&self) -> Vec<&str> {
        let own = self
            .all
            .iter()
            .filter(|(pid, tid, _)| (*pid, *tid) == (self.pid, self.pid));
        own.map(|(.., text)| text.as_str()).collect()
    }

    fn counts(&self) -> MarkerCounts {
        *self.index.counts()
    }

    fn lost(&self) -> u64 {
        self.markers.counts().unwrap().lost
    }

    /// The addresses of the arrays `a` and `b`.
    fn arrays(&self) -> [u64; 2] {
        let mut words = self.output.split_whitespace();
        [(); 2].map(|()| {
            let word = words.next().unwrap().trim_start_matches("0x");
            u64::from_str_radix(word, 16).unwrap()
        })
    }
}

fn text(marked: &MarkerRecord<'_>) -> String {
    let name = |name: Option<&[u8]>| {
        name.map_or("?".into(), |name| {
            String::from_utf8_lossy(name).into_owned()
        })
    };
    match marked.what {
        MarkerEvent::Tag {
            name: called,
            start,
            end,
        } => format!("tag {} {start:x} {end:x}", name(called)),
        MarkerEvent::Start { name: called } => format!("start {}", name(called)),
        MarkerEvent::Stop => "stop".to_owned(),
        MarkerEvent::Fork(_) => "fork".to_owned(),
        MarkerEvent::Exec => "exec".to_owned(),
        MarkerEvent::Exit { last } => format!("exit {last}"),
    }
}

/// Finds the markers of the program in its file.
fn scan_file(program: &Path) -> impl FnOnce(&mut Markers, u32) {
    move |markers, _| {
        assert_eq!(
            markers.observe_program(program).unwrap(),
            Some(ScanResult::Markers)
        );
    }
}

#[test]
fn calls_of_a_c_program_are_seen_in_their_order() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    // Usual options, aggressive optimisation, and none.
    for options in [&["-O2"][..], &["-O3", "-flto", "-march=native"], &["-O0"]] {
        let Some(built) = compile_marks(options) else {
            return;
        };
        let seen = Observation::run(&built.program(), "nested", scan_file(&built.program()));
        let [a, b] = seen.arrays();
        assert_eq!(
            seen.calls(),
            [
                &format!("tag a {a:x} {:x}", a + 8000),
                &format!("tag b {b:x} {:x}", b + 8000),
                "start solve",
                "start triad",
                "stop",
                "stop",
                "stop",
                "start left open",
                "exit true",
            ],
            "{options:?}"
        );
        let counts = seen.counts();
        assert_eq!((counts.unbalanced_stops, seen.lost()), (1, 0));
        let phases: Vec<_> = seen.index.phases().into_iter().map(|it| it.item).collect();
        let names: Vec<&str> = phases.iter().map(|phase| &*phase.name).collect();
        assert_eq!(names, ["solve/triad", "solve", "left open"]);
        assert!(phases.iter().all(|phase| phase.until >= Some(phase.since)));
        // The phase is nested in the outer one.
        assert!(phases[1].since < phases[0].since && phases[0].until < phases[1].until);
        let tags: Vec<_> = seen.index.tags();
        assert_eq!(tags.len(), 2, "{tags:?}");
        assert!(
            tags.iter()
                .all(|it| it.pid == seen.pid && it.item.until.is_some())
        );
    }
}

#[test]
fn ten_thousand_tags_are_all_seen() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(built) = compile_marks(&["-O2"]) else {
        return;
    };
    let mut seen = Observation::run(&built.program(), "many 10000", scan_file(&built.program()));
    assert_eq!((seen.counts().tags, seen.lost()), (10_000, 0));
    let tags = seen.index.tags();
    assert_eq!(tags.len(), 10_000);
    for at in [0, 1, 5_000, 9_999] {
        let tag = tags
            .iter()
            .find(|it| *it.item.name == *format!("tag {at}"))
            .unwrap();
        let address = tag.item.start + 7;
        let (region, _) = seen
            .index
            .lookup((seen.pid, seen.pid), address, Some(tag.item.since));
        assert_eq!(region, Some(Arc::clone(&tag.item.name)));
    }
}

/// More markers than fit in the ring between two reads: the lost ones are counted.
#[test]
fn markers_that_do_not_fit_the_ring_are_counted() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(built) = compile_marks(&["-O2"]) else {
        return;
    };
    let seen = Observation::run(&built.program(), "many 150000", scan_file(&built.program()));
    let (tags, lost) = (seen.counts().tags, seen.lost());
    println!("{tags} tags, {lost} lost");
    assert!(lost > 0 && tags > 10_000);
    // The record of the process's end may be lost too.
    let ends = seen
        .calls()
        .iter()
        .filter(|call| call.starts_with("exit"))
        .count() as u64;
    assert_eq!(tags + lost + ends, 150_001);
}

#[test]
fn many_threads_have_phases_of_their_own() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(built) = compile_marks(&["-O2", "-pthread"]) else {
        return;
    };
    let seen = Observation::run(
        &built.program(),
        "threads 16 200",
        scan_file(&built.program()),
    );
    let counts = seen.counts();
    assert_eq!((counts.starts, counts.stops), (16 * 400, 16 * 400));
    assert_eq!((counts.unbalanced_stops, seen.lost()), (0, 0));
    let phases = seen.index.phases();
    for thread in 0..16 {
        let inner = format!("t{thread}/inner");
        let own: Vec<_> = phases.iter().filter(|it| *it.item.name == *inner).collect();
        assert_eq!(own.len(), 200, "{inner}");
        assert!(
            own.iter()
                .all(|it| it.tid == own[0].tid && it.tid != seen.pid)
        );
    }
}

#[test]
fn a_child_has_its_parents_marks_until_it_executes_a_program() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(built) = compile_marks(&["-O2"]) else {
        return;
    };
    let seen = Observation::run(&built.program(), "forks", scan_file(&built.program()));
    assert_eq!(seen.counts().unbalanced_stops, 0);
    let phases = seen.index.phases().into_iter();
    let phases: Vec<_> = phases.map(|it| (it.pid == seen.pid, it.item)).collect();
    let names: Vec<_> = phases
        .iter()
        .map(|(own, phase)| (*own, &*phase.name))
        .collect();
    assert_eq!(
        names,
        [(false, "parent"), (false, "child"), (true, "parent")]
    );
    let tags = seen.index.tags().into_iter();
    let mut tags: Vec<_> = tags.map(|it| (it.pid == seen.pid, it.item)).collect();
    tags.sort_by_key(|(own, tag)| (*own, Arc::clone(&tag.name)));
    let names: Vec<_> = tags.iter().map(|(own, tag)| (*own, &*tag.name)).collect();
    // A tag that the child inherits is listed once.
    assert_eq!(names, [(false, "only child"), (true, "a")]);
    // The inherited tag ends when the child executes a program.
    assert!(tags[0].1.until < phases[2].1.until);
    assert!(tags[0].1.since > tags[1].1.since);
}

#[test]
fn every_name_is_read_or_counted() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(built) = compile_marks(&["-O2"]) else {
        return;
    };
    let seen = Observation::run(&built.program(), "names", scan_file(&built.program()));
    let long = format!("start {}", "x".repeat(127));
    let expected = [
        "start unread",
        "start across",
        "start ?",
        &long,
        "start ",
        "exit true",
    ];
    assert_eq!(seen.calls(), expected);
    let counts = seen.counts();
    assert_eq!((counts.unreadable_names, counts.cut_names), (1, 1));
}

#[test]
fn markers_in_a_library_and_those_of_a_running_process_are_found() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(built) = compile_marks(&["-O2"]) else {
        return;
    };
    let Some(callers) = programs::with_library(&built) else {
        return;
    };
    // A stripped library keeps the symbols that others call.
    let before = Observation::run(&callers, "nested", scan_file(&callers));
    assert_eq!(before.calls().len(), 9);
    let running = Observation::run(&callers, "nested", |markers, pid| {
        let scan = markers.observe_process(Path::new("/proc"), pid).unwrap();
        assert_eq!(
            (scan.result, scan.unopened),
            (Some(ScanResult::Markers), vec![])
        );
    });
    assert_eq!(running.calls().len(), 9);
}

/// The program is found through its mappings, in the root of the container.
#[test]
fn a_program_in_a_container_is_observed() {
    let Some(_machine) = shared_machine().filter(|_| crate::peers::has("runc")) else {
        return;
    };
    let Some(built) = compile_marks(&["-O2", "-static"]) else {
        return;
    };
    let container = programs::Container::start(&built);
    let hierarchy = hierarchy();
    let cgroup = hierarchy.id(&container.cgroup).unwrap();
    let mut markers = Markers::open(&this_machine(), &MarkerScope::Cgroup(cgroup)).unwrap();
    let pid = container.pid();
    let scan = markers.observe_process(Path::new("/proc"), pid).unwrap();
    assert_eq!(scan.result, Some(ScanResult::Markers));
    let seen = Observation::new(markers, pid, container.finish());
    let [a, _] = seen.arrays();
    assert_eq!(seen.calls().len(), 9, "{:?}", seen.all);
    assert_eq!(seen.calls()[0], format!("tag a {a:x} {:x}", a + 8000));
    assert!(seen.index.tags().iter().all(|it| it.pid == pid));
}

#[test]
fn others_that_execute_the_same_file_are_not_observed() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(built) = compile_marks(&["-O2"]) else {
        return;
    };
    let seen = Observation::run(&built.program(), "nested", |markers, pid| {
        scan_file(&built.program())(markers, pid);
        Load::waiting(&built.program(), "nested").finish();
    });
    assert!(
        seen.all.iter().all(|(pid, ..)| *pid == seen.pid),
        "{:?}",
        seen.all
    );
    assert_eq!(seen.calls().len(), 9);
}

#[test]
fn a_rust_program_marks_as_a_c_program_does() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let program = test_harness::load_binary();
    let words = "mark tag=a@1000-2000 start=x start=y stop stop stop tag=@0-3000";
    let seen = Observation::run(&program, words, scan_file(&program));
    let expected = [
        "tag a 1000 2000",
        "start x",
        "start y",
        "stop",
        "stop",
        "stop",
        "tag  0 3000",
        "exit true",
    ];
    assert_eq!(seen.calls(), expected);
    assert_eq!(seen.counts().unbalanced_stops, 1);
}
