//! The files that processes have mapped, as far as samples may lie in them: learnt from the records
//! of the rings, and from procfs for processes that existed before. Those of sampled processes are
//! handed on.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Mapping, Sink, mapping};
use crate::sys::records::{Event, Map, Task};

/// Mappings of one process that are handed on; a compiler at run time may map without an end.
const MOST: usize = 16_384;

/// Bytes of the mappings of all processes that are handed on, as JSON: a file has all of them in
/// its end, and readers of Parquet take no end of 100 MB.
const MOST_BYTES: usize = 32 << 20;

/// The mappings of a process in their order: a later one replaces what it lies over.
#[derive(Debug, Default)]
struct Space {
    mappings: Vec<Arc<Mapping>>,
    /// How many of them were handed on.
    given: usize,
    /// How many were handed on since the process began.
    all: usize,
    /// It was there before the recording, and procfs was asked for it.
    asked: bool,
    /// The round in which it ended.
    ended: Option<u64>,
}

/// The mappings of all processes.
#[derive(Debug)]
pub(super) struct Spaces {
    spaces: HashMap<u32, Space>,
    proc: PathBuf,
    round: u64,
    /// Bytes that may still be handed on.
    room: usize,
    /// Mappings that were not handed on, since their process or all of them have so many.
    pub(super) left_out: u64,
}

impl Spaces {
    pub(super) fn new(proc: &Path) -> Self {
        Self {
            spaces: HashMap::new(),
            proc: proc.to_owned(),
            round: 0,
            room: MOST_BYTES,
            left_out: 0,
        }
    }

    /// Handles a record. Within a round records come in rising order of time.
    pub(super) fn learn(&mut self, event: &Event<'_>) {
        match *event {
            Event::Fork(Task { pid, parent, .. }) if pid != parent => {
                let parent = self.spaces.get(&parent);
                let mappings = parent.map(|parent| {
                    let own = |of: &Arc<Mapping>| {
                        Arc::new(Mapping {
                            pid,
                            ..(**of).clone()
                        })
                    };
                    parent.mappings.iter().map(own).collect()
                });
                let space = Space {
                    asked: parent.is_some_and(|parent| parent.asked),
                    mappings: mappings.unwrap_or_default(),
                    ..Space::default()
                };
                self.spaces.insert(pid, space);
            }
            // The new program's mappings follow.
            Event::Comm {
                pid, exec: true, ..
            } => {
                let space = self.spaces.entry(pid).or_default();
                space.mappings.clear();
                (space.given, space.asked) = (0, true);
            }
            Event::Exit(Task { pid, tid, .. }) if pid == tid => {
                if let Some(space) = self.spaces.get_mut(&pid) {
                    space.ended = Some(self.round);
                }
            }
            Event::Map(map) => self.add(&map),
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
        // A file that is opened again and again.
        if space
            .mappings
            .iter()
            .rev()
            .take(64)
            .any(|known| **known == mapping)
        {
            return;
        }
        if space.mappings.len() == MOST {
            self.left_out += 1;
            return;
        }
        space.mappings.push(Arc::new(mapping));
    }

    /// Asks procfs for a process that was there before.
    pub(super) fn ask(&mut self, pid: u32) {
        let space = self.spaces.entry(pid).or_default();
        if std::mem::replace(&mut space.asked, true) {
            return;
        }
        let lines = mapping::of_process(&self.proc, pid).into_iter();
        let found = lines
            .map(|line| line.mapping)
            .filter(|found| is_named(&found.path));
        let found: Vec<_> = found.map(Arc::new).collect();
        let known = std::mem::take(&mut space.mappings).into_iter();
        let late = known.filter(|known| !found.contains(known));
        space.mappings = found.iter().cloned().chain(late).collect();
        let over = space.mappings.len().saturating_sub(MOST);
        space.mappings.truncate(MOST);
        self.left_out += over as u64;
    }

    /// Hands on what is new of a process with samples.
    pub(super) fn sampled(&mut self, pid: u32, sink: &dyn Sink) {
        self.ask(pid);
        let Some(space) = self.spaces.get_mut(&pid) else {
            return;
        };
        for mapping in &space.mappings[space.given..] {
            let bytes = serde_json::to_vec(&**mapping).map_or(0, |json| json.len() + 1);
            if space.all == MOST || bytes > self.room {
                self.left_out += 1;
                continue;
            }
            sink.mapping(mapping);
            space.all += 1;
            self.room -= bytes;
        }
        space.given = space.mappings.len();
    }

    /// Ends a round: forgets processes that ended before it.
    pub(super) fn round_ends(&mut self) {
        let round = self.round;
        self.spaces
            .retain(|_, space| space.ended.is_none_or(|ended| ended + 1 > round));
        self.round += 1;
    }
}

/// Whether it says more than that there is memory.
fn is_named(path: &str) -> bool {
    path.starts_with('/') && !path.starts_with("//") || path.starts_with('[')
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::sys::tree::Tree;

    #[derive(Default)]
    struct Given(Mutex<Vec<(u32, u64, String)>>);

    impl Sink for Given {
        fn mapping(&self, mapping: &Arc<Mapping>) {
            let Mapping {
                pid, start, path, ..
            } = &**mapping;
            self.0.lock().unwrap().push((*pid, *start, path.clone()));
        }
    }

    impl Given {
        fn take(&self) -> Vec<(u32, u64, String)> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    fn map(pid: u32, start: u64, name: &[u8]) -> Event<'_> {
        Event::Map(Map {
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

    fn of(pid: u32, start: u64, path: &str) -> (u32, u64, String) {
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
    fn a_sampled_process_hands_on_each_mapping_once() {
        let proc = Tree::new();
        let maps = "1000-2000 r-xp 0 fe:01 7 /bin/old\n3000-4000 rw-p 0 00:00 0 \n";
        proc.write("10/maps", maps);
        let (mut spaces, given) = (Spaces::new(proc.path()), Given::default());
        spaces.learn(&map(10, 0x5000, b"/lib/late\xff.so"));
        spaces.learn(&map(10, 0x5000, b"/lib/late\xff.so"));
        spaces.learn(&map(11, 0x1000, b"/bin/other"));
        spaces.learn(&map(10, 0x9000, b"//anon"));
        spaces.sampled(10, &given);
        let late = "/lib/late\u{fffd}.so";
        assert_eq!(
            given.take(),
            [of(10, 0x1000, "/bin/old"), of(10, 0x5000, late)]
        );
        spaces.round_ends();
        spaces.learn(&map(10, 0x7000, b"[vdso]"));
        spaces.sampled(10, &given);
        assert_eq!(given.take(), [of(10, 0x7000, "[vdso]")]);
    }

    #[test]
    fn a_child_has_the_mappings_of_its_parent_until_it_executes_a_program() {
        let proc = Tree::new();
        let (mut spaces, given) = (Spaces::new(proc.path()), Given::default());
        spaces.learn(&map(10, 0x1000, b"/bin/sh"));
        for child in [20, 30] {
            spaces.learn(&Event::Fork(task(child, 10)));
        }
        let name = b"make";
        let (pid, tid, exec) = (30, 30, true);
        spaces.learn(&Event::Comm {
            pid,
            tid,
            name,
            exec,
        });
        spaces.learn(&map(30, 0x2000, b"/bin/make"));
        spaces.sampled(20, &given);
        spaces.sampled(30, &given);
        assert_eq!(
            given.take(),
            [of(20, 0x1000, "/bin/sh"), of(30, 0x2000, "/bin/make")]
        );
    }

    #[test]
    fn an_ended_process_is_forgotten_after_the_next_round() {
        let proc = Tree::new();
        let (mut spaces, given) = (Spaces::new(proc.path()), Given::default());
        spaces.learn(&map(10, 0x1000, b"/bin/sh"));
        spaces.learn(&Event::Exit(task(10, 1)));
        spaces.round_ends();
        spaces.sampled(10, &given);
        assert_eq!(given.take().len(), 1);
        spaces.round_ends();
        assert!(spaces.spaces.is_empty());
    }

    /// However many processes come and go.
    #[test]
    fn the_mappings_of_all_processes_have_a_limit() {
        #[derive(Default)]
        struct Bytes(Mutex<(u64, usize)>);
        impl Sink for Bytes {
            fn mapping(&self, mapping: &Arc<Mapping>) {
                let mut given = self.0.lock().unwrap();
                given.0 += 1;
                given.1 += serde_json::to_string(&**mapping).unwrap().len() + 1;
            }
        }
        let proc = Tree::new();
        let (mut spaces, given) = (Spaces::new(proc.path()), Bytes::default());
        let name = [b"/tmp/\x01".as_slice(), &[b'x'; 3000]].concat();
        let mut all = 0;
        for pid in 1..=3_000 {
            for n in 0..5 {
                spaces.learn(&map(pid, n << 12, &name));
                all += 1;
            }
            spaces.sampled(pid, &given);
            spaces.learn(&Event::Exit(task(pid, 1)));
            spaces.round_ends();
        }
        let (count, bytes) = given.0.into_inner().unwrap();
        assert!((MOST_BYTES - 4096..=MOST_BYTES).contains(&bytes), "{bytes}");
        assert_eq!(count + spaces.left_out, all);
    }

    #[test]
    fn a_process_that_maps_without_an_end_is_counted() {
        let proc = Tree::new();
        let (mut spaces, given) = (Spaces::new(proc.path()), Given::default());
        for n in 0..MOST as u64 + 5 {
            spaces.learn(&map(10, n << 12, b"/tmp/jit"));
        }
        spaces.sampled(10, &given);
        assert_eq!((given.take().len(), spaces.left_out), (MOST, 5));
    }
}
