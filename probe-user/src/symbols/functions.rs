//! The functions of one ELF file by address, from its symbol table.

use std::{collections::BTreeSet, ops::Range};

use object::{
    NativeEndian, elf,
    pod::slice_from_bytes,
    read::elf::{FileHeader, Sym as _},
};

use super::elf::{Elf, Header32, Header64, Section};

/// Symbols of one file that are read, each into 24 bytes where it is a function. The largest
/// programs known have some two million.
const MOST: u64 = 4 << 20;
/// Symbols that are read at once.
const CHUNK: u64 = 32 << 10;
/// Bytes of a name.
const NAME: usize = 4096;
/// Bytes of names that are looked through at once.
const NAMES: u64 = 1 << 20;
/// The same, of one file.
const ALL_NAMES: u64 = 512 << 20;
/// How many functions before an address are looked at: those of one address, and those within
/// others.
const NEAR: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    size: u32,
    name: u32,
    rank: Rank,
}

/// Which of several names of one address is the better one, as perf has it: one with a size, then a
/// global one, then a local one, then a weak one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    sized: bool,
    binding: u8,
}

/// Sorted by address.
#[derive(Debug)]
pub(super) struct Functions {
    entries: Vec<Entry>,
    /// Where the names are in the file.
    names: Range<u64>,
}

impl Functions {
    /// Those of `.symtab` (`elf::SHT_SYMTAB`) or `.dynsym` (`elf::SHT_DYNSYM`); None where there is
    /// no such table, or none of a function in it.
    pub(super) fn read(elf: &Elf, kind: u32) -> Option<Self> {
        let table = elf.sections.iter().find(|section| section.kind == kind)?;
        let (names, length) = table.names?;
        let mut entries = if elf.wide {
            entries::<Header64>(elf, table)
        } else {
            entries::<Header32>(elf, table)
        };
        entries.sort_by_key(|entry| entry.start);
        close(&mut entries, elf);
        (!entries.is_empty()).then(|| Self {
            entries,
            names: names..names.saturating_add(length),
        })
    }

    /// The name of the function that an address of the file lies in. `elf` is the file that it was
    /// read from.
    pub(super) fn name(&self, elf: &Elf, address: u64) -> Option<String> {
        let behind = self.entries.partition_point(|entry| entry.start <= address);
        let before = self.entries[..behind].iter().rev().take(NEAR);
        let covers = |entry: &&Entry| address - entry.start < entry.size.into();
        let mut found = before.filter(covers).peekable();
        let start = found.peek()?.start;
        let same = found.take_while(|entry| entry.start == start);
        let named = same.filter_map(|entry| Some((entry.rank, self.text(elf, entry.name)?)));
        // Then that with fewer underscores, then the longer one.
        let better = |(rank, name): &(Rank, String)| {
            let underscores = name.bytes().take_while(|byte| *byte == b'_').count();
            (
                *rank,
                std::cmp::Reverse(underscores),
                name.len(),
                std::cmp::Reverse(name.clone()),
            )
        };
        named.max_by_key(better).map(|(_, name)| name)
    }

    /// Addresses of the functions of this name. `elf` is the file that it was read from.
    pub(super) fn named(&self, elf: &Elf, name: &str) -> Vec<u64> {
        // Where the name is among the names, also as the end of a longer one.
        let wanted = [name.as_bytes(), b"\0"].concat();
        let mut places = BTreeSet::new();
        let mut at = self.names.start;
        let end = self.names.end.min(at.saturating_add(ALL_NAMES));
        while at < end {
            // One that lies across the end of a piece is whole in the next one.
            let size = NAMES.min(end - at);
            let Some(bytes) = elf.source.read(at, size, NAMES) else {
                break;
            };
            let found = bytes.windows(wanted.len()).enumerate();
            let found = found.filter(|(_, bytes)| *bytes == wanted);
            places.extend(found.map(|(inside, _)| at - self.names.start + inside as u64));
            at += if size == NAMES {
                size - wanted.len() as u64
            } else {
                size
            };
        }
        let named = |entry: &&Entry| places.contains(&u64::from(entry.name));
        let entries = self.entries.iter().filter(named);
        entries.map(|entry| entry.start).collect()
    }

    fn text(&self, elf: &Elf, at: u32) -> Option<String> {
        let from = self.names.start.checked_add(at.into())?;
        let within = usize::try_from(self.names.end.checked_sub(from)?).ok()?;
        let text = elf.source.text(from, within.min(NAME))?;
        (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
    }

    /// Bytes that this takes.
    pub(super) const fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }
}

/// Gives a function without a size, as assemblers leave it, the place up to the next one or to the
/// end of its section.
fn close(entries: &mut [Entry], elf: &Elf) {
    let mut code: Vec<(u64, u64)> = elf
        .sections
        .iter()
        .filter(|section| section.flags & u64::from(elf::SHF_EXECINSTR) != 0)
        .map(|section| {
            (
                section.address,
                section.address.saturating_add(section.size),
            )
        })
        .collect();
    code.sort_unstable();
    let mut next = u64::MAX;
    for at in (0..entries.len()).rev() {
        let start = entries[at].start;
        if let Some(behind) = entries.get(at + 1).filter(|behind| behind.start > start) {
            next = behind.start;
        }
        if entries[at].size == 0 {
            let section = code
                .partition_point(|(from, _)| *from <= start)
                .checked_sub(1);
            let end = section.map_or(start, |section| code[section].1).min(next);
            entries[at].size = u32::try_from(end.saturating_sub(start)).unwrap_or(u32::MAX);
        }
    }
}

fn entries<E: FileHeader<Endian = NativeEndian>>(elf: &Elf, table: &Section) -> Vec<Entry> {
    let one = size_of::<E::Sym>() as u64;
    let count = (table.size / one).min(MOST);
    let mut entries = Vec::new();
    let mut at = 0;
    while at < count {
        let some = CHUNK.min(count - at);
        let offset = table.offset.saturating_add(at * one);
        // A file that is cut short keeps what was read.
        let Some(bytes) = elf.source.read(offset, some * one, CHUNK * one) else {
            break;
        };
        let length = usize::try_from(some).unwrap_or_default();
        let Ok((symbols, _)) = slice_from_bytes::<E::Sym>(&bytes, length) else {
            break;
        };
        entries.extend(symbols.iter().filter_map(entry::<E>));
        at += some;
    }
    entries
}

fn entry<E: FileHeader<Endian = NativeEndian>>(symbol: &E::Sym) -> Option<Entry> {
    let endian = NativeEndian;
    let function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
    if !function || symbol.st_shndx(endian) == elf::SHN_UNDEF {
        return None;
    }
    let size = symbol.st_size(endian).into();
    let binding = match symbol.st_bind() {
        elf::STB_WEAK => 0,
        elf::STB_LOCAL => 1,
        _ => 2,
    };
    Some(Entry {
        start: symbol.st_value(endian).into(),
        size: u32::try_from(size).unwrap_or(u32::MAX),
        name: symbol.st_name(endian),
        rank: Rank {
            sized: size > 0,
            binding,
        },
    })
}
