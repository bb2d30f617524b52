//! The code that the kernel puts into each process (`vdso(7)`): that of this one.

use std::{fs::File, path::Path};

use super::{
    elf::{Elf, Source},
    maps,
};

/// Bytes of it at most; it has a few pages.
const VDSO: u64 = 1 << 20;

/// That of this process.
pub(super) fn own(proc: &Path) -> Option<Elf> {
    let own = maps::lines(proc, std::process::id());
    let own = own.into_iter().find(|line| line.name == b"[vdso]")?.mapping;
    let memory = Source::File(File::open(proc.join("self/mem")).ok()?);
    let bytes = memory.memory(own.start, own.end - own.start, VDSO)?;
    Elf::read(Source::Memory(bytes))
}

/// The size of its mapping.
pub(super) fn size(vdso: &Elf) -> u64 {
    match &vdso.source {
        Source::Memory(bytes) => bytes.len() as u64,
        Source::File(_) => 0,
    }
}
