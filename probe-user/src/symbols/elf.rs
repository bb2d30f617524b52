//! ELF files ([`Elf`]), read in pieces of bounded size.
//!
//! The file may be a container's: malformed, huge, or truncated while it is read. It is never
//! mapped into memory, since a truncated mapping would kill this process with SIGBUS.

use std::{fs::File, os::unix::fs::FileExt as _};

use object::{
    NativeEndian, elf,
    pod::{from_bytes, slice_from_bytes},
    read::elf::{FileHeader, ProgramHeader as _, SectionHeader as _},
};

use super::notes;

/// Maximum size of each table of headers in bytes. No real program exceeds it.
const MAX_HEADER_BYTES: u64 = 8 << 20;
/// Maximum size of section names, and of notes, in bytes.
const MAX_SMALL_READ: u64 = 1 << 20;
/// Maximum number of segments to keep, and of sections: a program has some dozens.
const MAX_PARTS: usize = 1024;
/// The sections that are looked up by name.
const NAMED: [&str; 2] = [".gnu_debuglink", ".interp"];

/// Headers in this machine's byte order: programs in another byte order do not run on it.
pub(super) type Header32 = elf::FileHeader32<NativeEndian>;
pub(super) type Header64 = elf::FileHeader64<NativeEndian>;

/// The bytes of an ELF file.
#[derive(Debug)]
pub(super) enum ElfSource {
    File(File),
    Memory(Vec<u8>),
}

impl ElfSource {
    /// Exactly `size` bytes; None if the file is shorter, or `size` exceeds `limit`.
    pub(super) fn read(&self, offset: u64, size: u64, limit: u64) -> Option<Vec<u8>> {
        if size > limit {
            return None;
        }
        let length = usize::try_from(size).ok()?;
        match self {
            Self::File(file) => {
                // Allocates only what the file can fill.
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

    /// Reads `size` bytes, at most `limit`, of a file without a length, such as a process's memory.
    /// None if they cannot be read.
    pub(super) fn read_unsized(&self, offset: u64, size: u64, limit: u64) -> Option<Vec<u8>> {
        let Self::File(file) = self else {
            return self.read(offset, size, limit);
        };
        let mut bytes = vec![0; usize::try_from(size.min(limit)).ok()?];
        file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    /// The text from `offset` to the next zero, at most `limit` bytes.
    pub(super) fn text(&self, offset: u64, limit: usize) -> Option<Vec<u8>> {
        let mut bytes = match self {
            Self::File(file) => {
                let mut bytes = vec![0; limit];
                let read = file.read_at(&mut bytes, offset).ok()?;
                bytes.truncate(read);
                bytes
            }
            Self::Memory(bytes) => {
                let rest = bytes.get(usize::try_from(offset).ok()?..)?;
                rest[..limit.min(rest.len())].to_vec()
            }
        };
        let end = bytes.iter().position(|byte| *byte == 0);
        bytes.truncate(end.unwrap_or(bytes.len()));
        Some(bytes)
    }
}

/// A `PT_LOAD` segment: a part of the file that is mapped when the program starts.
#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Section {
    /// The name, if it is one of [`NAMED`].
    name: Option<&'static str>,
    /// `SHT_*`
    pub(super) kind: u32,
    /// `SHF_*`
    pub(super) flags: u64,
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    /// For a symbol table: offset and size of its string table.
    pub(super) names: Option<(u64, u64)>,
}

impl Section {
    /// Whether the section is needed: it has code, symbols or notes, or is looked up by name.
    fn is_used(&self) -> bool {
        let kinds = [elf::SHT_SYMTAB, elf::SHT_DYNSYM, elf::SHT_NOTE];
        let has_code = self.flags & u64::from(elf::SHF_EXECINSTR) != 0;
        has_code || self.name.is_some() || kinds.contains(&self.kind)
    }
}

/// An ELF file with its headers.
#[derive(Debug)]
pub(super) struct Elf {
    pub(super) source: ElfSource,
    /// Whether it is a 64-bit file.
    pub(super) wide: bool,
    segments: Vec<Segment>,
    /// The sections that are needed ([`Section::is_used`]).
    pub(super) sections: Vec<Section>,
    pub(super) build_id: Option<Vec<u8>>,
}

impl Elf {
    /// Reads the headers. None if the file is no ELF file of this machine's byte order.
    pub(super) fn read(source: ElfSource) -> Option<Self> {
        let head = source.read(0, size_of::<Header32>() as u64, MAX_SMALL_READ)?;
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

    /// The virtual address of an offset in the file, as in the file's symbols; None outside of the
    /// segments.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let inside = offset.checked_sub(segment.offset)?;
            (inside < segment.size).then(|| segment.address.wrapping_add(inside))
        })
    }

    /// The offset in the file of a virtual address, as in the file's symbols; None outside of the
    /// segments.
    pub(super) fn offset(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let inside = address.checked_sub(segment.address)?;
            (inside < segment.size).then(|| segment.offset.wrapping_add(inside))
        })
    }

    /// A section of [`NAMED`].
    pub(super) fn section(&self, name: &str) -> Option<&Section> {
        let named = |section: &&Section| section.name == Some(name);
        self.sections.iter().find(named)
    }

    /// Memory in bytes.
    pub(super) fn memory(&self) -> usize {
        let source = match &self.source {
            ElfSource::File(_) => 0,
            ElfSource::Memory(bytes) => bytes.len(),
        };
        source
            + self.segments.capacity() * size_of::<Segment>()
            + self.sections.capacity() * size_of::<Section>()
    }

    /// The raw bytes of a section; None if the file has none for it, or more than `limit`.
    pub(super) fn content(&self, section: &Section, limit: u64) -> Option<Vec<u8>> {
        (section.kind != elf::SHT_NOBITS).then_some(())?;
        self.source.read(section.offset, section.size, limit)
    }
}

fn read<E: FileHeader<Endian = NativeEndian>>(source: ElfSource, wide: bool) -> Option<Elf> {
    let bytes = source.read(0, size_of::<E>() as u64, MAX_SMALL_READ)?;
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
        .filter(|section| section.kind == elf::SHT_NOTE);
    let notes = notes.chain(of_sections.map(|section| (section.offset, section.size)));
    let mut ids = notes.take(64).filter_map(|(offset, size)| {
        let id = notes::build_id(&found.source.read(offset, size, MAX_SMALL_READ)?)?;
        (1..=20).contains(&id.len()).then_some(id)
    });
    found.build_id = ids.next();
    Some(found)
}

#[derive(Default)]
struct Segments {
    loaded: Vec<Segment>,
    /// Offset and size of each `PT_NOTE` segment.
    notes: Vec<(u64, u64)>,
}

fn segments<E: FileHeader<Endian = NativeEndian>>(
    source: &ElfSource,
    header: &E,
    endian: NativeEndian,
) -> Option<Segments> {
    let count = usize::from(header.e_phnum(endian));
    let size = (count * size_of::<E::ProgramHeader>()) as u64;
    let bytes = source.read(header.e_phoff(endian).into(), size, MAX_HEADER_BYTES)?;
    let (headers, _) = slice_from_bytes::<E::ProgramHeader>(&bytes, count).ok()?;
    let mut found = Segments::default();
    for header in headers {
        let offset = header.p_offset(endian).into();
        let size = header.p_filesz(endian).into();
        match header.p_type(endian) {
            elf::PT_LOAD if found.loaded.len() < MAX_PARTS => found.loaded.push(Segment {
                offset,
                size,
                address: header.p_vaddr(endian).into(),
            }),
            elf::PT_NOTE if found.notes.len() < MAX_PARTS => found.notes.push((offset, size)),
            _ => {}
        }
    }
    Some(found)
}

fn sections<E: FileHeader<Endian = NativeEndian>>(
    source: &ElfSource,
    header: &E,
    endian: NativeEndian,
) -> Option<Vec<Section>> {
    let header_size = size_of::<E::SectionHeader>() as u64;
    let start = header.e_shoff(endian).into();
    let first = source.read(start, header_size, MAX_SMALL_READ)?;
    let (first, _) = from_bytes::<E::SectionHeader>(&first).ok()?;
    // If there are too many sections for the header's field, the first section header has their
    // number.
    let count = match header.e_shnum(endian) {
        0 => first.sh_size(endian).into(),
        count => count.into(),
    };
    let strings = match header.e_shstrndx(endian) {
        elf::SHN_XINDEX => first.sh_link(endian),
        index => index.into(),
    };
    let bytes = source.read(start, count.checked_mul(header_size)?, MAX_HEADER_BYTES)?;
    let count = usize::try_from(count).ok()?;
    let (headers, _) = slice_from_bytes::<E::SectionHeader>(&bytes, count).ok()?;
    let names = headers
        .get(usize::try_from(strings).ok()?)
        .and_then(|names| {
            let (offset, size) = (names.sh_offset(endian).into(), names.sh_size(endian).into());
            source.read(offset, size, MAX_SMALL_READ)
        });
    let names = names.unwrap_or_default();
    let named = |at: u32| {
        let rest = names.get(usize::try_from(at).ok()?..)?;
        let is_name = |name: &&str| {
            let after = rest.strip_prefix(name.as_bytes());
            after.is_some_and(|after| after.first() == Some(&0))
        };
        NAMED.into_iter().find(is_name)
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
    Some(used.take(MAX_PARTS).collect())
}
