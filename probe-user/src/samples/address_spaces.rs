//! Tracks file mappings of processes: from the records of the rings, and from procfs for processes
//! that existed before the recording. Passes mappings of sampled processes to the sink.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Mapping, Sink, mapping};
use crate::sys::records::{Map, PerfRecord, Task};

/// Maximum number of mappings of one process that are passed to the sink; a JIT compiler may map
/// without bound.
const MAX_MAPPINGS: usize = 16_384;

/// Maximum bytes of all passed mappings as JSON. A Parquet file has the JSON in its footer, and
/// readers refuse footers of 100 MB.
const MAX_BYTES: usize = 32 << 20;

/// The mappings of a process in order; a later one replaces those that it overlaps.
#[derive(Debug, Default)]
struct AddressSpace {
    mappings: Vec<Arc<Mapping>>,
    /// How many of `mappings` were passed to the sink.
    passed: usize,
    /// How many mappings were passed to the sink since the process began, before an exec too.
    total_passed: usize,
    /// Whether the mappings are complete: procfs was read, or the process executed a program during
    /// the recording, so that records have all of them.
    was_read: bool,
    /// The round in which the process exited.
    ended: Option<u64>,
}

/// The mappings of all processes.
#[derive(Debug)]
pub(super) struct AddressSpaces {
    spaces: HashMap<u32, AddressSpace>,
    proc: PathBuf,
    round: u64,
    /// Bytes of mappings as JSON that may still be passed to the sink.
    bytes_left: usize,
    /// Number of mappings that were not passed to the sink because of a limit.
    pub(super) left_out: u64,
}

impl AddressSpaces {
    pub(super) fn new(proc: &Path) -> Self {
        Self {
            spaces: HashMap::new(),
            proc: proc.to_owned(),
            round: 0,
            bytes_left: MAX_BYTES,
            left_out: 0,
        }
    }

    /// Handles a record. Within a round, records come in ascending order of time.
    pub(super) fn on_record(&mut self, event: &PerfRecord<'_>) {
        match *event {
            PerfRecord::Fork(Task { pid, parent, .. }) if pid != parent => {
                let parent = self.spaces.get(&parent);
                let mappings = parent.map(|parent| {
                    let for_child = |mapping: &Arc<Mapping>| {
                        Arc::new(Mapping {
                            pid,
                            ..(**mapping).clone()
                        })
                    };
                    parent.mappings.iter().map(for_child).collect()
                });
                let space = AddressSpace {
                    was_read: parent.is_some_and(|parent| parent.was_read),
                    mappings: mappings.unwrap_or_default(),
                    ..AddressSpace::default()
                };
                self.spaces.insert(pid, space);
            }
            // An exec drops the old mappings; records of the new program's mappings follow.
            PerfRecord::Comm {
                pid, exec: true, ..
            } => {
                let space = self.spaces.entry(pid).or_default();
                space.mappings.clear();
                (space.passed, space.was_read) = (0, true);
            }
            PerfRecord::Exit(Task { pid, tid, .. }) if pid == tid => {
                if let Some(space) = self.spaces.get_mut(&pid) {
                    space.ended = Some(self.round);
                }
            }
            PerfRecord::Map(map) => self.add(&map),
            _ => {}
        }
    }

    fn add(&mut self, map: &Map<'_>) {
        let path = String::from_utf8_lossy(map.name);
        if !is_named(&path) {
            return;
        }
        let mapping = Mapping {
            pid: map.pid,
            start: map.start,
            end: map.start.saturating_add(map.size),
            offset: map.offset,
            executable: map.executable,
            path: path.into_owned(),
            build_id: map.build_id.map(<[u8]>::to_vec),
        };
        let space = self.spaces.entry(map.pid).or_default();
        // Skips repeated mappings of the same file.
        if space
            .mappings
            .iter()
            .rev()
            .take(64)
            .any(|known| **known == mapping)
        {
            return;
        }
        if space.mappings.len() == MAX_MAPPINGS {
            self.left_out += 1;
            return;
        }
        space.mappings.push(Arc::new(mapping));
    }

    /// Reads the mappings of a process from procfs once, if it existed before the recording.
    pub(super) fn read_procfs(&mut self, pid: u32) {
        let space = self.spaces.entry(pid).or_default();
        if std::mem::replace(&mut space.was_read, true) {
            return;
        }
        let lines = mapping::of_process(&self.proc, pid).into_iter();
        let found: Vec<_> = lines
            .map(|line| line.mapping)
            .filter(|mapping| is_named(&mapping.path))
            .map(Arc::new)
            .collect();
        let known = std::mem::take(&mut space.mappings).into_iter();
        let only_in_records = known.filter(|known| !found.contains(known));
        space.mappings = found.iter().cloned().chain(only_in_records).collect();
        let excess = space.mappings.len().saturating_sub(MAX_MAPPINGS);
        space.mappings.truncate(MAX_MAPPINGS);
        self.left_out += excess as u64;
    }

    /// Passes new mappings of a sampled process to the sink.
    pub(super) fn pass_new_mappings(&mut self, pid: u32, sink: &dyn Sink) {
        self.read_procfs(pid);
        let Some(space) = self.spaces.get_mut(&pid) else {
            return;
        };
        for mapping in &space.mappings[space.passed..] {
            let bytes = serde_json::to_vec(&**mapping).map_or(0, |json| json.len() + 1);
            if space.total_passed == MAX_MAPPINGS || bytes > self.bytes_left {
                self.left_out += 1;
                continue;
            }
            sink.mapping(mapping);
            space.total_passed += 1;
            self.bytes_left -= bytes;
        }
        space.passed = space.mappings.len();
    }

    /// Ends a round: forgets processes that exited in an earlier round.
    pub(super) fn end_round(&mut self) {
        let round = self.round;
        self.spaces
            .retain(|_, space| space.ended.is_none_or(|ended| ended + 1 > round));
        self.round += 1;
    }
}

/// Whether a mapping has a path, or a name in brackets. Anonymous memory (`//anon`) has neither.
fn is_named(path: &str) -> bool {
    path.starts_with('/') && !path.starts_with("//") || path.starts_with('[')
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use test_support::Tree;

    use super::*;

    #[derive(Default)]
    struct PassedMappings(Mutex<Vec<(u32, u64, String)>>);

    impl Sink for PassedMappings {
        fn mapping(&self, mapping: &Arc<Mapping>) {
            let Mapping {
                pid, start, path, ..
            } = &**mapping;
            self.0.lock().unwrap().push((*pid, *start, path.clone()));
        }
    }

    impl PassedMappings {
        fn take(&self) -> Vec<(u32, u64, String)> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    fn map(pid: u32, start: u64, name: &[u8]) -> PerfRecord<'_> {
        PerfRecord::Map(Map {
            pid,
            start,
            size: 4096,
            offset: 0,
            build_id: None,
            inode: None,
            executable: true,
            name,
        })
    }

    fn passed(pid: u32, start: u64, path: &str) -> (u32, u64, String) {
        (pid, start, path.to_owned())
    }

    fn task(pid: u32, parent: u32) -> Task {
        Task {
            pid,
            tid: pid,
            parent,
            parent_tid: parent,
        }
    }

    #[test]
    fn each_mapping_of_a_sampled_process_is_passed_once() {
        let proc = Tree::new();
        let maps = "1000-2000 r-xp 0 fe:01 7 /bin/old\n3000-4000 rw-p 0 00:00 0 \n";
        proc.write("10/maps", maps);
        let (mut spaces, sink) = (AddressSpaces::new(proc.path()), PassedMappings::default());
        spaces.on_record(&map(10, 0x5000, b"/lib/late\xff.so"));
        spaces.on_record(&map(10, 0x5000, b"/lib/late\xff.so"));
        spaces.on_record(&map(11, 0x1000, b"/bin/other"));
        spaces.on_record(&map(10, 0x9000, b"//anon"));
        spaces.pass_new_mappings(10, &sink);
        let late = "/lib/late\u{fffd}.so";
        assert_eq!(
            sink.take(),
            [passed(10, 0x1000, "/bin/old"), passed(10, 0x5000, late)]
        );
        spaces.end_round();
        spaces.on_record(&map(10, 0x7000, b"[vdso]"));
        spaces.pass_new_mappings(10, &sink);
        assert_eq!(sink.take(), [passed(10, 0x7000, "[vdso]")]);
    }

    #[test]
    fn a_child_has_the_mappings_of_its_parent_until_it_executes_a_program() {
        let proc = Tree::new();
        let (mut spaces, sink) = (AddressSpaces::new(proc.path()), PassedMappings::default());
        spaces.on_record(&map(10, 0x1000, b"/bin/sh"));
        for child in [20, 30] {
            spaces.on_record(&PerfRecord::Fork(task(child, 10)));
        }
        let name = b"make";
        let (pid, tid, exec) = (30, 30, true);
        spaces.on_record(&PerfRecord::Comm {
            pid,
            tid,
            name,
            exec,
        });
        spaces.on_record(&map(30, 0x2000, b"/bin/make"));
        spaces.pass_new_mappings(20, &sink);
        spaces.pass_new_mappings(30, &sink);
        assert_eq!(
            sink.take(),
            [
                passed(20, 0x1000, "/bin/sh"),
                passed(30, 0x2000, "/bin/make")
            ]
        );
    }

    #[test]
    fn an_ended_process_is_forgotten_after_the_next_round() {
        let proc = Tree::new();
        let (mut spaces, sink) = (AddressSpaces::new(proc.path()), PassedMappings::default());
        spaces.on_record(&map(10, 0x1000, b"/bin/sh"));
        spaces.on_record(&PerfRecord::Exit(task(10, 1)));
        spaces.end_round();
        spaces.pass_new_mappings(10, &sink);
        assert_eq!(sink.take().len(), 1);
        spaces.end_round();
        assert!(spaces.spaces.is_empty());
    }

    /// The limit holds for any number of processes.
    #[test]
    fn the_mappings_of_all_processes_have_a_limit() {
        #[derive(Default)]
        struct Bytes(Mutex<(u64, usize)>);
        impl Sink for Bytes {
            fn mapping(&self, mapping: &Arc<Mapping>) {
                let mut passed = self.0.lock().unwrap();
                passed.0 += 1;
                passed.1 += serde_json::to_string(&**mapping).unwrap().len() + 1;
            }
        }
        let proc = Tree::new();
        let (mut spaces, sink) = (AddressSpaces::new(proc.path()), Bytes::default());
        let name = [b"/tmp/\x01".as_slice(), &[b'x'; 3000]].concat();
        let mut added = 0;
        for pid in 1..=3_000 {
            for n in 0..5 {
                spaces.on_record(&map(pid, n << 12, &name));
                added += 1;
            }
            spaces.pass_new_mappings(pid, &sink);
            spaces.on_record(&PerfRecord::Exit(task(pid, 1)));
            spaces.end_round();
        }
        let (count, bytes) = sink.0.into_inner().unwrap();
        assert!((MAX_BYTES - 4096..=MAX_BYTES).contains(&bytes), "{bytes}");
        assert_eq!(count + spaces.left_out, added);
    }

    #[test]
    fn mappings_beyond_the_limit_of_a_process_are_counted() {
        let proc = Tree::new();
        let (mut spaces, sink) = (AddressSpaces::new(proc.path()), PassedMappings::default());
        for n in 0..MAX_MAPPINGS as u64 + 5 {
            spaces.on_record(&map(10, n << 12, b"/tmp/jit"));
        }
        spaces.pass_new_mappings(10, &sink);
        assert_eq!((sink.take().len(), spaces.left_out), (MAX_MAPPINGS, 5));
    }
}
