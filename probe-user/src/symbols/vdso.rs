//! The vDSO (`vdso(7)`), read from this process.

use std::{fs::File, path::Path};

use super::{
    elf::{Elf, ElfSource},
    maps,
};

/// Maximum size of a vDSO in bytes. Real ones have a few pages.
const MAX_VDSO: u64 = 1 << 20;

/// The vDSO of this process.
pub(super) fn own(proc: &Path) -> Option<Elf> {
    let line = maps::lines(proc, std::process::id())
        .into_iter()
        .find(|line| line.name == b"[vdso]")?;
    let (start, end) = (line.mapping.start, line.mapping.end);
    let memory = ElfSource::File(File::open(proc.join("self/mem")).ok()?);
    let bytes = memory.read_unsized(start, end - start, MAX_VDSO)?;
    Elf::read(ElfSource::Memory(bytes))
}

/// The size of the vDSO's mapping in bytes.
pub(super) fn size(vdso: &Elf) -> u64 {
    match &vdso.source {
        ElfSource::Memory(bytes) => bytes.len() as u64,
        ElfSource::File(_) => 0,
    }
}
