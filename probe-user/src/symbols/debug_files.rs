//! Separate debug files of stripped files, by build id or by the name in `.gnu_debuglink`
//! ("Debugging Information in Separate Files" of GDB's manual).

use std::{fs::File, path::Path};

use super::{
    elf::{Elf, ElfSource},
    mappings::Mapped,
    opened,
};

const DIRECTORY: &str = "/usr/lib/debug";
/// Maximum size of `.gnu_debuglink`: a file name and its checksum.
const MAX_LINK: u64 = 4096;

/// Finds the debug file of a mapped file: in the root of the process that executes the file, then
/// in this process's own root.
pub(super) fn find(proc: &Path, pid: u32, mapped: &Mapped, elf: &Elf) -> Option<Elf> {
    let own_pid = std::process::id();
    let read = |file: File| {
        let debug = Elf::read(ElfSource::File(file))?;
        // Files without build ids are skipped: checking their checksum would need reading the whole
        // file.
        (debug.build_id.is_some() && debug.build_id == elf.build_id).then_some(debug)
    };
    let paths = paths(mapped, elf);
    [pid, own_pid]
        .into_iter()
        .flat_map(|pid| paths.iter().map(move |path| (pid, path)))
        .find_map(|(pid, path)| read(opened::in_root(proc, pid, path)?))
}

/// The paths at which the debug file may be.
fn paths(mapped: &Mapped, elf: &Elf) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    if let Some((first, rest)) = elf.build_id.as_deref().and_then(<[u8]>::split_first) {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = format!("{DIRECTORY}/.build-id/{first:02x}/{rest}.debug");
        paths.push(path.into_bytes());
    }
    let section = elf.section(".gnu_debuglink");
    let content = section.and_then(|section| elf.content(section, MAX_LINK));
    let name = content
        .as_deref()
        .and_then(|content| content.split(|byte| *byte == 0).next())
        // Only a plain name, since a path could lead out of the directory.
        .filter(|name| !name.is_empty() && !name.contains(&b'/'));
    if let (Some(name), Some(end)) = (name, mapped.name.iter().rposition(|byte| *byte == b'/')) {
        let directory = &mapped.name[..=end];
        paths.push([directory, name].concat());
        paths.push([directory, b".debug/", name].concat());
        paths.push([DIRECTORY.as_bytes(), directory, name].concat());
    }
    paths
}
