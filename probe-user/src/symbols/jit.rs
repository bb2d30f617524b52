//! Functions that a compiler made at run time, from the map that its process writes for perf
//! (`tools/perf/Documentation/jit-interface.txt` of the kernel): lines of START SIZE NAME.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use super::opened;
use crate::machine::process;

/// Bytes of a map that are read; a compiler writes some 60 for each function.
const MAP: u64 = 64 << 20;
/// Bytes of a line.
const LINE: u64 = 4096;

/// Functions by address; a later line replaces what it lies over.
#[derive(Debug, Default)]
pub(super) struct JitMap {
    /// Length of the file when it was read.
    length: u64,
    functions: BTreeMap<u64, (u64, Box<str>)>,
}

impl JitMap {
    /// The map of a process; None where it has none that could be its own.
    pub(super) fn open(proc: &Path, pid: u32) -> Option<File> {
        // It names itself by its number in its own pid namespace.
        let own = process::own_number(proc, pid)?;
        let path = format!("/tmp/perf-{own}.map");
        let file = opened::in_root(proc, pid, path.as_bytes())?;
        // Everybody may write into /tmp.
        let owner = file.metadata().ok()?.uid();
        (owner == 0 || process::user(proc, pid) == Some(owner)).then_some(file)
    }

    /// Reads a map, if it has grown since it was read.
    pub(super) fn read(&mut self, file: File) {
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        if length == self.length {
            return;
        }
        self.length = length;
        self.functions.clear();
        let mut lines = BufReader::new(file.take(MAP));
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut lines).take(LINE).read_until(b'\n', &mut line);
            if read.is_err() || line.is_empty() {
                break;
            }
            self.add(&line);
        }
    }

    fn add(&mut self, line: &[u8]) -> Option<()> {
        let line = std::str::from_utf8(line).ok()?.trim_end_matches('\n');
        let mut fields = line.splitn(3, ' ');
        let mut hex = || {
            let field = fields.next()?;
            u64::from_str_radix(field.strip_prefix("0x").unwrap_or(field), 16).ok()
        };
        let (start, size) = (hex()?, hex()?);
        let end = start.checked_add(size)?;
        let name = fields.next().filter(|name| !name.is_empty() && size > 0)?;
        // What lies under it is gone.
        let under = self.functions.range(..end).rev();
        let under: Vec<u64> = under
            .take_while(|(_, (end, _))| *end > start)
            .map(|(start, _)| *start)
            .collect();
        under
            .iter()
            .for_each(|start| drop(self.functions.remove(start)));
        self.functions.insert(start, (end, name.into()));
        Some(())
    }

    pub(super) fn name(&self, address: u64) -> Option<&str> {
        let (_, (end, name)) = self.functions.range(..=address).next_back()?;
        (address < *end).then_some(&**name)
    }
}
