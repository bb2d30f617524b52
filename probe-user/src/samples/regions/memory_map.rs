//! Memory map of a process: the kind of memory of each range, for addresses without a tag.

use std::{collections::BTreeMap, path::Path};

use crate::{symbols::maps, sys::records::Map};

/// Maximum number of mappings of one process: slightly above the kernel's default limit (65,530).
const MAX_RANGES: usize = 65_536;

/// Number of ranges dropped when the limit is exceeded: many at once, since finding the oldest ones
/// scans all ranges.
const DROPPED: usize = MAX_RANGES / 16;

/// Maximum bytes by which the main thread's stack can have grown below its last known start. The
/// kernel keeps at least as many bytes below the stack's top free of other mappings (`mmap_base` of
/// arch/x86/mm/mmap.c and of mm/util.c).
const STACK_GROWTH: u64 = 128 << 20;

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// The memory after the program's data, grown by brk(2).
    Heap,
    /// The stack of the main thread. Other threads' stacks are anonymous memory.
    Stack,
    /// A mapped file: of the program, its libraries, or shared memory with a name.
    File,
    /// Memory without a file: large allocations, other heaps, stacks of threads.
    Anonymous,
    /// Kernel memory.
    Kernel,
    /// Mappings by the kernel, such as `[vdso]`.
    Other,
}

impl MemoryKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::Heap,
        Self::Stack,
        Self::File,
        Self::Anonymous,
        Self::Kernel,
        Self::Other,
    ];

    /// The name of the kind, in brackets to distinguish it from tags.
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

    /// The kind of a mapping, by its name in procfs and in the kernel's records.
    pub(in super::super) fn from_name(name: &[u8]) -> Self {
        const ANONYMOUS: [&[u8]; 4] = [b"//anon", b"/anon_hugepage", b"/dev/zero", b"[anon"];
        match name {
            b"" => Self::Anonymous,
            b"[heap]" => Self::Heap,
            b"[stack]" => Self::Stack,
            name if ANONYMOUS.iter().any(|prefix| name.starts_with(prefix)) => Self::Anonymous,
            [b'/', ..] => Self::File,
            _ => Self::Other,
        }
    }
}

/// A range of a memory map, without its first address.
#[derive(Clone, Copy, Debug)]
struct MappedRange {
    end: u64,
    kind: MemoryKind,
    /// Number of ranges added before this one.
    sequence: u64,
}

/// The current memory map of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryMap {
    /// Ranges that do not overlap, by first address.
    by_start: BTreeMap<u64, MappedRange>,
    /// Number of ranges added so far.
    added: u64,
    /// The round in which procfs was last read; None if it must be read.
    pub(super) read_in: Option<u64>,
}

impl MemoryMap {
    /// Adds a mapping. Returns the number of old ranges dropped for it.
    pub(super) fn add(&mut self, map: &Map<'_>) -> u64 {
        let end = map.start.saturating_add(map.size);
        self.insert(map.start, end, MemoryKind::from_name(map.name))
    }

    /// Adds a range, which replaces what it overlaps. Returns the number of old ranges dropped for
    /// it.
    fn insert(&mut self, start: u64, end: u64, kind: MemoryKind) -> u64 {
        if start >= end {
            return 0;
        }
        let below = self
            .by_start
            .range(..start)
            .next_back()
            .map(|(from, range)| (*from, *range));
        if let Some((from, range)) = below.filter(|(_, range)| range.end > start) {
            self.by_start.insert(
                from,
                MappedRange {
                    end: start,
                    ..range
                },
            );
            if range.end > end {
                self.by_start.insert(end, range);
            }
        }
        let inside: Vec<u64> = self
            .by_start
            .range(start..end)
            .map(|(from, _)| *from)
            .collect();
        for from in inside {
            if let Some(range) = self.by_start.remove(&from)
                && range.end > end
            {
                self.by_start.insert(end, range);
            }
        }
        let sequence = self.added;
        self.added += 1;
        self.by_start.insert(
            start,
            MappedRange {
                end,
                kind,
                sequence,
            },
        );
        self.drop_oldest()
    }

    /// Drops the oldest ranges beyond the limit. Returns their number.
    fn drop_oldest(&mut self) -> u64 {
        if self.by_start.len() <= MAX_RANGES {
            return 0;
        }
        let mut sequences: Vec<u64> = self.by_start.values().map(|range| range.sequence).collect();
        let (_, first_kept, _) = sequences.select_nth_unstable(DROPPED);
        let before = self.by_start.len();
        self.by_start
            .retain(|_, range| range.sequence >= *first_kept);
        (before - self.by_start.len()) as u64
    }

    /// The kind of memory at an address; None if no mapping of it is known.
    pub(super) fn at(&self, address: u64) -> Option<MemoryKind> {
        let below = self.by_start.range(..=address).next_back();
        if let Some((_, range)) = below.filter(|(_, range)| address < range.end) {
            return Some(range.kind);
        }
        // The stack may have grown down to the address: the kernel does not report its growth.
        let (start, above) = self.by_start.range(address..).next()?;
        let is_grown_stack = above.kind == MemoryKind::Stack && start - address <= STACK_GROWTH;
        is_grown_stack.then_some(MemoryKind::Stack)
    }

    /// Reads the map from procfs; keeps the known map if the process is gone. Returns the number of
    /// ranges dropped.
    pub(super) fn read_procfs(&mut self, proc: &Path, pid: u32, round: u64) -> u64 {
        self.read_in = Some(round);
        let lines = maps::lines(proc, pid);
        if lines.is_empty() {
            return 0;
        }
        self.by_start.clear();
        let insert_line = |line: maps::Line| {
            let mapping = line.mapping;
            self.insert(
                mapping.start,
                mapping.end,
                MemoryKind::from_name(&line.name),
            )
        };
        lines.into_iter().map(insert_line).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_mappings_give_their_kind() {
        for (name, kind) in [
            ("", MemoryKind::Anonymous),
            ("//anon", MemoryKind::Anonymous),
            ("[anon:pool]", MemoryKind::Anonymous),
            ("[anon_shmem:x]", MemoryKind::Anonymous),
            ("/dev/zero (deleted)", MemoryKind::Anonymous),
            ("/anon_hugepage (deleted)", MemoryKind::Anonymous),
            ("[heap]", MemoryKind::Heap),
            ("[stack]", MemoryKind::Stack),
            ("/usr/lib/libc.so.6", MemoryKind::File),
            ("/memfd:pool (deleted)", MemoryKind::File),
            ("[vdso]", MemoryKind::Other),
        ] {
            assert_eq!(MemoryKind::from_name(name.as_bytes()), kind, "{name}");
        }
    }

    /// The dropped ranges are counted, and newer ranges stay.
    #[test]
    fn a_mapping_beyond_the_limit_drops_the_oldest_ranges() {
        let mut map = MemoryMap::default();
        let most = MAX_RANGES as u64;
        for at in 0..most {
            assert_eq!(map.insert(at * 100, at * 100 + 10, MemoryKind::Heap), 0);
        }
        // A range that replaces another one needs no space.
        assert_eq!(map.insert(0, 10, MemoryKind::File), 0);
        let dropped = map.insert(50, 60, MemoryKind::Stack);
        assert_eq!(dropped, DROPPED as u64);
        let kinds = [5, 55, 105, dropped * 100 + 5, dropped * 100 + 105];
        let expected = [
            Some(MemoryKind::File),
            Some(MemoryKind::Stack),
            None,
            None,
            Some(MemoryKind::Heap),
        ];
        assert_eq!(kinds.map(|address| map.at(address)), expected);
        assert_eq!(map.by_start.len() as u64, most + 1 - dropped);
        assert_eq!(map.insert(150, 160, MemoryKind::Stack), 0);
    }

    #[test]
    fn addresses_of_a_grown_stack_are_stack() {
        let mut map = MemoryMap::default();
        let stack = 0x7fff_b6e2_c000;
        map.insert(stack, stack + 0x2_1000, MemoryKind::Stack);
        map.insert(stack - 0x1000_0000, stack - 0xf00_0000, MemoryKind::File);
        assert_eq!(map.at(stack - 0xff0), Some(MemoryKind::Stack));
        assert_eq!(map.at(stack - STACK_GROWTH - 1), None);
        assert_eq!(map.at(stack - 0x1000_0000), Some(MemoryKind::File));
        assert_eq!(map.at(stack + 0x2_1000), None);
    }

    proptest! {
        /// Each address has the kind of the range that was added last.
        #[test]
        fn the_last_mapping_wins(
            mappings in prop::collection::vec((0..32_u64, 0..32_u64, 0..6_usize), 1..30),
        ) {
            let mut map = MemoryMap::default();
            let mut expected = [None; 40];
            for (start, end, kind) in mappings {
                map.insert(start, end, MemoryKind::ALL[kind]);
                for address in start..end {
                    expected[usize::try_from(address).unwrap()] = Some(MemoryKind::ALL[kind]);
                }
            }
            for address in 0..expected.len() {
                // A stack grows down to the next mapping.
                let above = expected[address..].iter().find_map(|kind| *kind);
                let kind = expected[address].or(above.filter(|kind| *kind == MemoryKind::Stack));
                prop_assert_eq!(map.at(address as u64), kind);
            }
        }
    }
}
