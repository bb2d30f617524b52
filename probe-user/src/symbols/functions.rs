//! The functions of one ELF file by address, from its symbol table.

use std::{collections::BTreeSet, ops::Range};

use object::{
    NativeEndian, elf,
    pod::slice_from_bytes,
    read::elf::{FileHeader, Sym as _},
};

use super::elf::{Elf, Header32, Header64, Section};

/// Maximum number of symbols read from one file; each function takes 24 bytes. The largest known
/// programs have some two million symbols.
const MAX_SYMBOLS: u64 = 4 << 20;
/// Number of symbols read at once.
const SYMBOL_CHUNK: u64 = 32 << 10;
/// Maximum length of a name in bytes.
const MAX_NAME: usize = 4096;
/// Number of bytes of names searched at once.
const NAME_CHUNK: u64 = 1 << 20;
/// Maximum number of bytes of names searched in one file.
const MAX_NAME_BYTES: u64 = 512 << 20;
/// Maximum number of functions checked for an address, from the nearest start on downwards: several
/// functions may start at one address, or lie within others.
const MAX_CANDIDATES: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    size: u32,
    /// Offset of the name in the string table.
    name: u32,
    rank: Rank,
}

/// Rank of a name among several names of one address, as in perf: symbols with a size are
/// preferred, and among these global ones, then local ones, then weak ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    has_size: bool,
    binding: u8,
}

/// Functions sorted by address.
#[derive(Debug)]
pub(super) struct Functions {
    entries: Vec<Entry>,
    /// Offsets of the names in the file.
    names: Range<u64>,
}

impl Functions {
    /// The functions of `.symtab` (`elf::SHT_SYMTAB`) or `.dynsym` (`elf::SHT_DYNSYM`); None if the
    /// table is missing or has no functions.
    pub(super) fn read(elf: &Elf, kind: u32) -> Option<Self> {
        let table = elf.sections.iter().find(|section| section.kind == kind)?;
        let (names, length) = table.names?;
        let mut entries = if elf.wide {
            entries::<Header64>(elf, table)
        } else {
            entries::<Header32>(elf, table)
        };
        entries.sort_by_key(|entry| entry.start);
        set_missing_sizes(&mut entries, elf);
        (!entries.is_empty()).then(|| Self {
            entries,
            names: names..names.saturating_add(length),
        })
    }

    /// The name of the function at a virtual address. `elf` is the file from which the functions
    /// were read.
    pub(super) fn name(&self, elf: &Elf, address: u64) -> Option<String> {
        let end = self.entries.partition_point(|entry| entry.start <= address);
        let before = self.entries[..end].iter().rev().take(MAX_CANDIDATES);
        let covers = |entry: &&Entry| address - entry.start < entry.size.into();
        let mut covering = before.filter(covers).peekable();
        let start = covering.peek()?.start;
        let innermost = covering.take_while(|entry| entry.start == start);
        let named = innermost.filter_map(|entry| Some((entry.rank, self.text(elf, entry.name)?)));
        // Among equal ranks fewer leading underscores are preferred, then the longer name.
        let preference = |(rank, name): &(Rank, String)| {
            let underscores = name.bytes().take_while(|byte| *byte == b'_').count();
            (
                *rank,
                std::cmp::Reverse(underscores),
                name.len(),
                std::cmp::Reverse(name.clone()),
            )
        };
        named.max_by_key(preference).map(|(_, name)| name)
    }

    /// Addresses of the functions with this name. `elf` is the file from which the functions were
    /// read.
    pub(super) fn addresses_of(&self, elf: &Elf, name: &str) -> Vec<u64> {
        // Offsets of the name in the string table. It may also be there as the end of a longer
        // name.
        let wanted = [name.as_bytes(), b"\0"].concat();
        let mut offsets = BTreeSet::new();
        let mut at = self.names.start;
        let end = self.names.end.min(at.saturating_add(MAX_NAME_BYTES));
        while at < end {
            // Chunks overlap, so that a name across the end of one chunk is whole in the next.
            let size = NAME_CHUNK.min(end - at);
            let Some(bytes) = elf.source.read(at, size, NAME_CHUNK) else {
                break;
            };
            let found = bytes
                .windows(wanted.len())
                .enumerate()
                .filter(|(_, bytes)| *bytes == wanted);
            offsets.extend(found.map(|(inside, _)| at - self.names.start + inside as u64));
            at += if size == NAME_CHUNK {
                size - wanted.len() as u64
            } else {
                size
            };
        }
        let has_name = |entry: &&Entry| offsets.contains(&u64::from(entry.name));
        let entries = self.entries.iter().filter(has_name);
        entries.map(|entry| entry.start).collect()
    }

    fn text(&self, elf: &Elf, at: u32) -> Option<String> {
        let from = self.names.start.checked_add(at.into())?;
        let within = usize::try_from(self.names.end.checked_sub(from)?).ok()?;
        let text = elf.source.text(from, within.min(MAX_NAME))?;
        (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
    }

    /// Memory in bytes.
    pub(super) const fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }
}

/// Extends functions without a size, as assemblers leave them, to the next function or to the end
/// of their section.
fn set_missing_sizes(entries: &mut [Entry], elf: &Elf) {
    let mut code_sections: Vec<(u64, u64)> = elf
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
    code_sections.sort_unstable();
    let mut next = u64::MAX;
    for at in (0..entries.len()).rev() {
        let start = entries[at].start;
        if let Some(following) = entries.get(at + 1).filter(|entry| entry.start > start) {
            next = following.start;
        }
        if entries[at].size == 0 {
            let section = code_sections
                .partition_point(|(from, _)| *from <= start)
                .checked_sub(1);
            let end = section
                .map_or(start, |section| code_sections[section].1)
                .min(next);
            entries[at].size = u32::try_from(end.saturating_sub(start)).unwrap_or(u32::MAX);
        }
    }
}

/// The functions in a symbol table.
fn entries<E: FileHeader<Endian = NativeEndian>>(elf: &Elf, table: &Section) -> Vec<Entry> {
    let symbol_size = size_of::<E::Sym>() as u64;
    let count = (table.size / symbol_size).min(MAX_SYMBOLS);
    let mut entries = Vec::new();
    let mut at = 0;
    while at < count {
        let chunk = SYMBOL_CHUNK.min(count - at);
        let offset = table.offset.saturating_add(at * symbol_size);
        // If the file is truncated, the symbols read so far are kept.
        let bytes = elf
            .source
            .read(offset, chunk * symbol_size, SYMBOL_CHUNK * symbol_size);
        let Some(bytes) = bytes else {
            break;
        };
        let length = usize::try_from(chunk).unwrap_or_default();
        let Ok((symbols, _)) = slice_from_bytes::<E::Sym>(&bytes, length) else {
            break;
        };
        entries.extend(symbols.iter().filter_map(entry::<E>));
        at += chunk;
    }
    entries
}

/// The function of a symbol; None if the symbol is no function of this file.
fn entry<E: FileHeader<Endian = NativeEndian>>(symbol: &E::Sym) -> Option<Entry> {
    let endian = NativeEndian;
    let is_function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
    if !is_function || symbol.st_shndx(endian) == elf::SHN_UNDEF {
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
            has_size: size > 0,
            binding,
        },
    })
}
