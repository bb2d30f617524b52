//! What the memory of a process is, where no tag says it: heap, stack, a file, anonymous.

use std::{collections::BTreeMap, path::Path};

use crate::{symbols::maps, sys::records::Map};

/// Mappings of one process that are kept: the kernel's default limit.
const MOST: usize = 65_536;

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

/// The memory of a process, as it is now.
#[derive(Clone, Debug, Default)]
pub(super) struct Areas {
    /// By their first addresses, with the addresses behind them; none overlaps another.
    by_start: BTreeMap<u64, (u64, Area)>,
    /// The round in which procfs was last asked.
    pub(super) asked: Option<u64>,
}

impl Areas {
    pub(super) fn add(&mut self, map: &Map<'_>) {
        self.put(
            map.start,
            map.start.saturating_add(map.size),
            Area::named(map.name),
        );
    }

    /// Puts an area over what was there.
    fn put(&mut self, start: u64, end: u64, area: Area) {
        if start >= end || self.by_start.len() >= MOST {
            return;
        }
        let below = self.by_start.range(..start).next_back();
        let below = below.map(|(from, to)| (*from, *to));
        if let Some((from, (to, kind))) = below.filter(|(_, (to, _))| *to > start) {
            self.by_start.insert(from, (start, kind));
            if to > end {
                self.by_start.insert(end, (to, kind));
            }
        }
        let inside: Vec<u64> = self
            .by_start
            .range(start..end)
            .map(|(from, _)| *from)
            .collect();
        for from in inside {
            if let Some((to, kind)) = self.by_start.remove(&from)
                && to > end
            {
                self.by_start.insert(end, (to, kind));
            }
        }
        self.by_start.insert(start, (end, area));
    }

    pub(super) fn at(&self, address: u64) -> Option<Area> {
        let (_, (end, area)) = self.by_start.range(..=address).next_back()?;
        (address < *end).then_some(*area)
    }

    /// Reads them anew from procfs; what is known stays where the process is gone.
    pub(super) fn ask(&mut self, proc: &Path, pid: u32, round: u64) {
        self.asked = Some(round);
        let lines = maps::lines(proc, pid);
        if lines.is_empty() {
            return;
        }
        self.by_start.clear();
        for line in lines {
            self.put(
                line.mapping.start,
                line.mapping.end,
                Area::named(&line.name),
            );
        }
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
            for (address, expected) in (0..).zip(expected) {
                prop_assert_eq!(areas.at(address), expected);
            }
        }
    }
}
