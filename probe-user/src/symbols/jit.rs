//! JIT-compiled functions, from the map file that their process writes for perf. Its lines are
//! START SIZE NAME (`tools/perf/Documentation/jit-interface.txt` of the kernel).

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use super::opened;
use crate::machine::process;

/// Maximum number of bytes read of a map file; a compiler writes some 60 bytes for each function.
const MAX_MAP_BYTES: u64 = 64 << 20;
/// Maximum length of a line in bytes.
const MAX_LINE: u64 = 4096;
/// Approximate memory of a function in bytes, without its name.
const FUNCTION_BYTES: usize = 64;
/// Maximum memory of one map in bytes.
const MAX_MEMORY: usize = 64 << 20;

/// Functions by address. The function of a later line replaces functions that it overlaps.
#[derive(Debug, Default)]
pub(super) struct JitMap {
    /// Device and inode of the file that was read.
    file: Option<(u64, u64)>,
    /// Number of bytes read so far; they are whole lines.
    read: u64,
    /// End and name of each function, by its start.
    functions: BTreeMap<u64, (u64, Box<str>)>,
    /// Total length of the functions' names, in bytes.
    name_bytes: usize,
    /// Number of functions dropped because of the memory limit.
    pub(super) dropped: u64,
}

impl JitMap {
    /// Opens the map file of a process; None if the process has none, or another user owns the
    /// file.
    pub(super) fn open(proc: &Path, pid: u32) -> Option<File> {
        // The file name has the process's id in its own pid namespace.
        let own_pid = process::pid_in_own_namespace(proc, pid)?;
        let path = format!("/tmp/perf-{own_pid}.map");
        let file = opened::in_root(proc, pid, path.as_bytes())?;
        // The owner is checked, since any user may create files in /tmp.
        let owner = file.metadata().ok()?.uid();
        (owner == 0 || process::effective_uid(proc, pid) == Some(owner)).then_some(file)
    }

    /// Reads the lines appended to the map file since the last read, up to `budget` bytes, and
    /// reduces `budget` by the bytes read. Further lines are read by the next call.
    pub(super) fn read(&mut self, mut file: File, budget: &mut u64) {
        let Ok(metadata) = file.metadata() else {
            return;
        };
        let (id, length) = (
            (metadata.dev(), metadata.ino()),
            metadata.len().min(MAX_MAP_BYTES),
        );
        if self.file != Some(id) || metadata.len() < self.read {
            *self = Self {
                file: Some(id),
                dropped: self.dropped,
                ..Self::default()
            };
        }
        let unread = length.saturating_sub(self.read).min(*budget);
        if unread == 0 || file.seek(SeekFrom::Start(self.read)).is_err() {
            return;
        }
        let mut lines = BufReader::new(file.take(unread));
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut lines).take(MAX_LINE).read_until(b'\n', &mut line);
            let length = line.len() as u64;
            // An incomplete line is read by the next call.
            if read.is_err() || line.last() != Some(&b'\n') && length < MAX_LINE {
                break;
            }
            self.read += length;
            *budget -= length;
            self.add(&line);
        }
    }

    /// Memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.functions.len() * FUNCTION_BYTES + self.name_bytes
    }

    /// Adds the function of a line; None if there is none, or it is dropped.
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
        // The new function replaced those that it overlaps.
        let overlapped: Vec<u64> = self
            .functions
            .range(..end)
            .rev()
            .take_while(|(_, (end, _))| *end > start)
            .map(|(start, _)| *start)
            .collect();
        for start in overlapped {
            let removed = self.functions.remove(&start);
            self.name_bytes -= removed.map_or(0, |(_, name)| name.len());
        }
        if self.memory() >= MAX_MEMORY {
            self.dropped += 1;
            return None;
        }
        self.name_bytes += name.len();
        self.functions.insert(start, (end, name.into()));
        Some(())
    }

    /// The name of the function at an address.
    pub(super) fn name(&self, address: u64) -> Option<&str> {
        let (_, (end, name)) = self.functions.range(..=address).next_back()?;
        (address < *end).then_some(&**name)
    }
}
