//! What the memory of a process is, where no tag says it: heap, stack, a file, anonymous.

use std::{collections::BTreeMap, path::Path};

use crate::{symbols::maps, sys::records::Map};

/// Mappings of one process that are kept: the kernel's default limit.
const MOST: usize = 65_536;

/// The oldest of them that are dropped where there is no room: to find them all are looked at.
const DROPPED: usize = MOST / 16;

/// How far the first thread's stack can grow down from where it was seen: the kernel keeps so many
/// bytes below it free of other mappings (`MIN_GAP` of arch/x86/mm/mmap.c and of mm/util.c).
const STACK_GROWTH: u64 = 128 << 20;

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Area {
    /// The memory behind the program's data, which brk(2) makes larger.
    Heap,
    /// The stack of the first thread. Others have anonymous memory.
    Stack,
    /// A mapped file: of the program, its libraries, or shared memory with a name.
    File,
    /// Memory of no file: large allocations, other heaps, stacks of threads.
    Anonymous,
    /// The kernel's own.
    Kernel,
    /// What the kernel maps, such as `[vdso]`.
    Other,
}

impl Area {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Heap,
        Self::Stack,
        Self::File,
        Self::Anonymous,
        Self::Kernel,
        Self::Other,
    ];

    /// What it is called: in brackets, so that it is no tag.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Heap => "[heap]",
            Self::Stack => "[stack]",
            Self::File => "[file]",
            Self::Anonymous => "[anonymous]",
            Self::Kernel => "[kernel]",
            Self::Other => "[other]",
        }
    }

    /// By the name of a mapping, as procfs and the kernel's records have it.
    pub(in super::super) fn named(name: &[u8]) -> Self {
        const MEMORY: [&[u8]; 4] = [b"//anon", b"/anon_hugepage", b"/dev/zero", b"[anon"];
        match name {
            b"" => Self::Anonymous,
            b"[heap]" => Self::Heap,
            b"[stack]" => Self::Stack,
            name if MEMORY.iter().any(|one| name.starts_with(one)) => Self::Anonymous,
            [b'/', ..] => Self::File,
            _ => Self::Other,
        }
    }
}

/// An area from its first address on.
#[derive(Clone, Copy, Debug)]
struct Kept {
    end: u64,
    area: Area,
    /// How many were put before it.
    age: u64,
}

/// The memory of a process, as it is now.
#[derive(Clone, Debug, Default)]
pub(super) struct Areas {
    /// By their first addresses; none overlaps another.
    by_start: BTreeMap<u64, Kept>,
    /// Areas that were put so far.
    put: u64,
    /// The round in which procfs was last asked.
    pub(super) asked: Option<u64>,
}

impl Areas {
    /// Gives how many older areas were dropped for it.
    pub(super) fn add(&mut self, map: &Map<'_>) -> u64 {
        let end = map.start.saturating_add(map.size);
        self.put(map.start, end, Area::named(map.name))
    }

    /// Puts an area over what was there. Gives how many of the oldest were dropped for it.
    fn put(&mut self, start: u64, end: u64, area: Area) -> u64 {
        if start >= end {
            return 0;
        }
        let below = self.by_start.range(..start).next_back();
        let below = below.map(|(from, kept)| (*from, *kept));
        if let Some((from, kept)) = below.filter(|(_, kept)| kept.end > start) {
            self.by_start.insert(from, Kept { end: start, ..kept });
            if kept.end > end {
                self.by_start.insert(end, kept);
            }
        }
        let inside: Vec<u64> = self
            .by_start
            .range(start..end)
            .map(|(from, _)| *from)
            .collect();
        for from in inside {
            if let Some(kept) = self.by_start.remove(&from)
                && kept.end > end
            {
                self.by_start.insert(end, kept);
            }
        }
        let age = self.put;
        self.put += 1;
        self.by_start.insert(start, Kept { end, area, age });
        self.drop_oldest()
    }

    /// Makes room where there are too many. Gives how many were dropped.
    fn drop_oldest(&mut self) -> u64 {
        if self.by_start.len() <= MOST {
            return 0;
        }
        let mut ages: Vec<u64> = self.by_start.values().map(|kept| kept.age).collect();
        let (_, least, _) = ages.select_nth_unstable(DROPPED);
        let before = self.by_start.len();
        self.by_start.retain(|_, kept| kept.age >= *least);
        (before - self.by_start.len()) as u64
    }

    pub(super) fn at(&self, address: u64) -> Option<Area> {
        let below = self.by_start.range(..=address).next_back();
        if let Some((_, kept)) = below.filter(|(_, kept)| address < kept.end) {
            return Some(kept.area);
        }
        // The kernel reports no growth of a stack.
        let (start, above) = self.by_start.range(address..).next()?;
        let grown = above.area == Area::Stack && start - address <= STACK_GROWTH;
        grown.then_some(Area::Stack)
    }

    /// Reads them anew from procfs; what is known stays where the process is gone. Gives how many
    /// there was no room for.
    pub(super) fn ask(&mut self, proc: &Path, pid: u32, round: u64) -> u64 {
        self.asked = Some(round);
        let lines = maps::lines(proc, pid);
        if lines.is_empty() {
            return 0;
        }
        self.by_start.clear();
        let put = |line: maps::Line| {
            let mapping = line.mapping;
            self.put(mapping.start, mapping.end, Area::named(&line.name))
        };
        lines.into_iter().map(put).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_mappings_tell_what_they_are() {
        for (name, area) in [
            ("", Area::Anonymous),
            ("//anon", Area::Anonymous),
            ("[anon:pool]", Area::Anonymous),
            ("[anon_shmem:x]", Area::Anonymous),
            ("/dev/zero (deleted)", Area::Anonymous),
            ("/anon_hugepage (deleted)", Area::Anonymous),
            ("[heap]", Area::Heap),
            ("[stack]", Area::Stack),
            ("/usr/lib/libc.so.6", Area::File),
            ("/memfd:pool (deleted)", Area::File),
            ("[vdso]", Area::Other),
        ] {
            assert_eq!(Area::named(name.as_bytes()), area, "{name}");
        }
    }

    /// Where there is no room the oldest go, and are counted; the rest is as it was put.
    #[test]
    fn a_mapping_too_many_drops_the_oldest() {
        let mut areas = Areas::default();
        let most = MOST as u64;
        for at in 0..most {
            assert_eq!(areas.put(at * 100, at * 100 + 10, Area::Heap), 0);
        }
        // In the place of another one there is room.
        assert_eq!(areas.put(0, 10, Area::File), 0);
        let dropped = areas.put(50, 60, Area::Stack);
        assert_eq!(dropped, DROPPED as u64);
        let kinds = [5, 55, 105, dropped * 100 + 5, dropped * 100 + 105];
        let expected = [
            Some(Area::File),
            Some(Area::Stack),
            None,
            None,
            Some(Area::Heap),
        ];
        assert_eq!(kinds.map(|address| areas.at(address)), expected);
        assert_eq!(areas.by_start.len() as u64, most + 1 - dropped);
        assert_eq!(areas.put(150, 160, Area::Stack), 0);
    }

    #[test]
    fn a_stack_that_has_grown_is_one() {
        let mut areas = Areas::default();
        let stack = 0x7fff_b6e2_c000;
        areas.put(stack, stack + 0x2_1000, Area::Stack);
        areas.put(stack - 0x1000_0000, stack - 0xf00_0000, Area::File);
        assert_eq!(areas.at(stack - 0xff0), Some(Area::Stack));
        assert_eq!(areas.at(stack - STACK_GROWTH - 1), None);
        assert_eq!(areas.at(stack - 0x1000_0000), Some(Area::File));
        assert_eq!(areas.at(stack + 0x2_1000), None);
    }

    proptest! {
        /// Each address has the area that was put there last.
        #[test]
        fn the_last_mapping_holds(puts in prop::collection::vec((0..32_u64, 0..32_u64, 0..6_usize), 1..30)) {
            let mut areas = Areas::default();
            let mut expected = [None; 40];
            for (start, end, area) in puts {
                areas.put(start, end, Area::ALL[area]);
                for address in start..end {
                    expected[usize::try_from(address).unwrap()] = Some(Area::ALL[area]);
                }
            }
            for address in 0..expected.len() {
                // A stack grows down to the next mapping.
                let above = expected[address..].iter().find_map(|area| *area);
                let area = expected[address].or(above.filter(|area| *area == Area::Stack));
                prop_assert_eq!(areas.at(address as u64), area);
            }
        }
    }
}
