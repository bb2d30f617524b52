//! ELF files, read in pieces of bounded size.
//!
//! The file may be a container's: malformed, huge, or cut short while it is read. It is never
//! mapped into memory, where a file that is cut short would end this process.

use std::{fs::File, os::unix::fs::FileExt as _};

use object::{
    NativeEndian, elf,
    pod::{from_bytes, slice_from_bytes},
    read::elf::{FileHeader, ProgramHeader as _, SectionHeader as _},
};

use super::notes;

/// Bytes of both tables of headers, at most: no program has so many.
const HEADERS: u64 = 8 << 20;
/// Bytes of names of sections, and of notes.
const SMALL: u64 = 1 << 20;
/// Segments and sections that are kept, at most each: a program has some dozens.
const KEPT: usize = 1024;
/// The sections that are asked for by name.
const NAMED: [&str; 2] = [".gnu_debuglink", ".interp"];

/// This machine's byte order: other programs do not run here.
pub(super) type Header32 = elf::FileHeader32<NativeEndian>;
pub(super) type Header64 = elf::FileHeader64<NativeEndian>;

/// Where the bytes of a file are.
#[derive(Debug)]
pub(super) enum Source {
    File(File),
    Memory(Vec<u8>),
}

impl Source {
    /// All of `size` bytes; None where they are not there, or more than `limit`.
    pub(super) fn read(&self, offset: u64, size: u64, limit: u64) -> Option<Vec<u8>> {
        if size > limit {
            return None;
        }
        let length = usize::try_from(size).ok()?;
        match self {
            Self::File(file) => {
                // Memory only for what is there.
                let end = offset.checked_add(size)?;
                (end <= file.metadata().ok()?.len()).then_some(())?;
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, offset).ok()?;
                Some(bytes)
            }
            Self::Memory(bytes) => {
                let from = usize::try_from(offset).ok()?;
                Some(bytes.get(from..from.checked_add(length)?)?.to_vec())
            }
        }
    }

    /// Bytes of a file that does not tell its length, such as a process's memory.
    pub(super) fn memory(&self, offset: u64, size: u64, limit: u64) -> Option<Vec<u8>> {
        let Self::File(file) = self else {
            return self.read(offset, size, limit);
        };
        let mut bytes = vec![0; usize::try_from(size.min(limit)).ok()?];
        file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    /// The text from `offset` to the next zero or the end of `within` bytes, whichever is first.
    pub(super) fn text(&self, offset: u64, within: usize) -> Option<Vec<u8>> {
        let mut bytes = match self {
            Self::File(file) => {
                let mut bytes = vec![0; within];
                let read = file.read_at(&mut bytes, offset).ok()?;
                bytes.truncate(read);
                bytes
            }
            Self::Memory(bytes) => {
                let rest = bytes.get(usize::try_from(offset).ok()?..)?;
                rest[..within.min(rest.len())].to_vec()
            }
        };
        let end = bytes.iter().position(|byte| *byte == 0);
        bytes.truncate(end.unwrap_or(bytes.len()));
        Some(bytes)
    }
}

/// A part of the file that is mapped when the program starts.
#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Section {
    /// Where it is one of [`NAMED`].
    name: Option<&'static str>,
    /// `SHT_*`
    pub(super) kind: u32,
    /// `SHF_*`
    pub(super) flags: u64,
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    /// Of a table of symbols: offset and size of their names.
    pub(super) names: Option<(u64, u64)>,
}

impl Section {
    /// Whether anything here reads it.
    fn is_used(&self) -> bool {
        let kinds = [elf::SHT_SYMTAB, elf::SHT_DYNSYM, elf::SHT_NOTE];
        let code = self.flags & u64::from(elf::SHF_EXECINSTR) != 0;
        code || self.name.is_some() || kinds.contains(&self.kind)
    }
}

/// An ELF file whose headers were read.
#[derive(Debug)]
pub(super) struct Elf {
    pub(super) source: Source,
    /// 64 bits.
    pub(super) wide: bool,
    segments: Vec<Segment>,
    /// Those that are used.
    pub(super) sections: Vec<Section>,
    pub(super) build_id: Option<Vec<u8>>,
}

impl Elf {
    /// None where it is no ELF file of this machine's byte order.
    pub(super) fn read(source: Source) -> Option<Self> {
        let head = source.read(0, size_of::<Header32>() as u64, SMALL)?;
        let wide = match head.get(..5)? {
            b"\x7fELF\x01" => false,
            b"\x7fELF\x02" => true,
            _ => return None,
        };
        if wide {
            read::<Header64>(source, wide)
        } else {
            read::<Header32>(source, wide)
        }
    }

    /// The address, as the file's own symbols have it, of a byte of the file.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let inside = offset.checked_sub(segment.offset)?;
            (inside < segment.size).then(|| segment.address.wrapping_add(inside))
        })
    }

    /// The byte of the file at an address of its own symbols.
    pub(super) fn offset(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let inside = address.checked_sub(segment.address)?;
            (inside < segment.size).then(|| segment.offset.wrapping_add(inside))
        })
    }

    /// One of [`NAMED`].
    pub(super) fn section(&self, name: &str) -> Option<&Section> {
        let named = |section: &&Section| section.name == Some(name);
        self.sections.iter().find(named)
    }

    /// Bytes that it takes.
    pub(super) fn memory(&self) -> usize {
        let source = match &self.source {
            Source::File(_) => 0,
            Source::Memory(bytes) => bytes.len(),
        };
        source
            + self.segments.capacity() * size_of::<Segment>()
            + self.sections.capacity() * size_of::<Section>()
    }

    /// The bytes of a section that is in the file, as they are there.
    pub(super) fn content(&self, section: &Section, limit: u64) -> Option<Vec<u8>> {
        (section.kind != elf::SHT_NOBITS).then_some(())?;
        self.source.read(section.offset, section.size, limit)
    }
}

fn read<E: FileHeader<Endian = NativeEndian>>(source: Source, wide: bool) -> Option<Elf> {
    let bytes = source.read(0, size_of::<E>() as u64, SMALL)?;
    let header = E::parse(&*bytes).ok()?;
    let endian = header.endian().ok()?;
    let segments = segments::<E>(&source, header, endian).unwrap_or_default();
    let sections = sections::<E>(&source, header, endian).unwrap_or_default();
    let mut found = Elf {
        source,
        wide,
        segments: segments.loaded,
        sections,
        build_id: None,
    };
    let notes = segments.notes.into_iter();
    let of_sections = found
        .sections
        .iter()
        .filter(|one| one.kind == elf::SHT_NOTE);
    let notes = notes.chain(of_sections.map(|section| (section.offset, section.size)));
    let mut ids = notes.take(64).filter_map(|(offset, size)| {
        let id = notes::build_id(&found.source.read(offset, size, SMALL)?)?;
        (1..=20).contains(&id.len()).then_some(id)
    });
    found.build_id = ids.next();
    Some(found)
}

#[derive(Default)]
struct Segments {
    loaded: Vec<Segment>,
    /// Offset and size of each part with notes.
    notes: Vec<(u64, u64)>,
}

fn segments<E: FileHeader<Endian = NativeEndian>>(
    source: &Source,
    header: &E,
    endian: NativeEndian,
) -> Option<Segments> {
    let count = usize::from(header.e_phnum(endian));
    let size = (count * size_of::<E::ProgramHeader>()) as u64;
    let bytes = source.read(header.e_phoff(endian).into(), size, HEADERS)?;
    let (headers, _) = slice_from_bytes::<E::ProgramHeader>(&bytes, count).ok()?;
    let mut found = Segments::default();
    for header in headers {
        let offset = header.p_offset(endian).into();
        let size = header.p_filesz(endian).into();
        match header.p_type(endian) {
            elf::PT_LOAD if found.loaded.len() < KEPT => found.loaded.push(Segment {
                offset,
                size,
                address: header.p_vaddr(endian).into(),
            }),
            elf::PT_NOTE if found.notes.len() < KEPT => found.notes.push((offset, size)),
            _ => {}
        }
    }
    Some(found)
}

fn sections<E: FileHeader<Endian = NativeEndian>>(
    source: &Source,
    header: &E,
    endian: NativeEndian,
) -> Option<Vec<Section>> {
    let one = size_of::<E::SectionHeader>() as u64;
    let start = header.e_shoff(endian).into();
    let first = source.read(start, one, SMALL)?;
    let (first, _) = from_bytes::<E::SectionHeader>(&first).ok()?;
    // Where there are too many for the header, the first section says how many.
    let count = match header.e_shnum(endian) {
        0 => first.sh_size(endian).into(),
        count => count.into(),
    };
    let strings = match header.e_shstrndx(endian) {
        elf::SHN_XINDEX => first.sh_link(endian),
        index => index.into(),
    };
    let bytes = source.read(start, count.checked_mul(one)?, HEADERS)?;
    let count = usize::try_from(count).ok()?;
    let (headers, _) = slice_from_bytes::<E::SectionHeader>(&bytes, count).ok()?;
    let names = headers
        .get(usize::try_from(strings).ok()?)
        .and_then(|names| {
            let (offset, size) = (names.sh_offset(endian).into(), names.sh_size(endian).into());
            source.read(offset, size, SMALL)
        });
    let names = names.unwrap_or_default();
    let named = |at: u32| {
        let rest = names.get(usize::try_from(at).ok()?..)?;
        let is = |name: &&str| {
            let behind = rest.strip_prefix(name.as_bytes());
            behind.is_some_and(|behind| behind.first() == Some(&0))
        };
        NAMED.into_iter().find(is)
    };
    let linked = |header: &E::SectionHeader| {
        let at = usize::try_from(header.sh_link(endian)).ok()?;
        let names = headers.get(at)?;
        Some((names.sh_offset(endian).into(), names.sh_size(endian).into()))
    };
    let section = |header: &E::SectionHeader| Section {
        name: named(header.sh_name(endian)),
        kind: header.sh_type(endian),
        flags: header.sh_flags(endian).into(),
        address: header.sh_addr(endian).into(),
        offset: header.sh_offset(endian).into(),
        size: header.sh_size(endian).into(),
        names: linked(header),
    };
    let used = headers.iter().map(section).filter(Section::is_used);
    Some(used.take(KEPT).collect())
}
