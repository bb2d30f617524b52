//! Functions of programs by their names, and the files in which a program looks for its functions.

use std::{
    ffi::OsStr,
    fs::File,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use object::elf::{SHT_DYNSYM, SHT_SYMTAB};

use super::{
    elf::{Elf, Source},
    functions::Functions,
    maps, opened,
};

/// Bytes of the name of a program's loader.
const INTERPRETER: u64 = 4096;

/// Functions of these names in one file: each source file may have its own.
const MOST: usize = 1024;

/// What a file has of the functions that were looked for.
#[derive(Debug)]
pub(crate) struct Found {
    /// The number of a name among those, and the place of a function of it in the file.
    pub(crate) places: Vec<(usize, u64)>,
    /// It has no table of all its symbols: only those that others may use have names.
    pub(crate) stripped: bool,
}

/// Looks for functions in a file; None where it is no program and no library.
pub(crate) fn functions(file: &File, names: &[&str]) -> Option<Found> {
    let elf = Elf::read(Source::File(file.try_clone().ok()?))?;
    let mut places = Vec::new();
    for table in [SHT_SYMTAB, SHT_DYNSYM] {
        let Some(functions) = Functions::read(&elf, table) else {
            continue;
        };
        for (number, name) in names.iter().enumerate() {
            let addresses = functions.named(&elf, name).into_iter();
            let offsets = addresses.filter_map(|address| elf.offset(address));
            places.extend(offsets.map(|offset| (number, offset)));
        }
    }
    places.sort_unstable();
    places.dedup();
    places.truncate(MOST);
    Some(Found {
        places,
        stripped: { &elf.sections }
            .iter()
            .all(|section| section.kind != SHT_SYMTAB),
    })
}

/// A file of this process's own root, where it is a regular one.
pub(crate) fn open(path: &Path) -> Option<File> {
    opened::link(path)
}

/// The files that a process has mapped to execute, as it sees them.
pub(crate) fn mapped(proc: &Path, pid: u32) -> Vec<File> {
    let lines = maps::lines(proc, pid).into_iter();
    let mut names: Vec<Vec<u8>> = lines
        .filter(|line| line.mapping.executable && line.name.starts_with(b"/"))
        .map(|line| line.name)
        .collect();
    names.sort_unstable();
    names.dedup();
    let names = names.iter();
    names
        .filter_map(|name| in_process(proc, pid, name))
        .collect()
}

/// The file that a process names by a path.
pub(crate) fn in_process(proc: &Path, pid: u32, path: &[u8]) -> Option<File> {
    opened::in_root(proc, pid, path)
}

/// The libraries that a program will have, by its own loader. Only for a program that is about to
/// be run: this runs the loader that it names.
pub(crate) fn libraries(program: &Path) -> Vec<PathBuf> {
    let loader = || {
        let elf = Elf::read(Source::File(opened::link(program)?))?;
        let section = elf.section(".interp")?;
        let name = elf.content(section, INTERPRETER)?;
        let end = name.iter().position(|byte| *byte == 0)?;
        Some(PathBuf::from(OsStr::from_bytes(&name[..end])))
    };
    let Some(loader) = loader() else {
        return Vec::new();
    };
    let mut list = Command::new(loader);
    list.arg("--list").arg(program);
    list.stdin(Stdio::null()).stderr(Stdio::null());
    list.output()
        .map_or(Vec::new(), |output| listed(&output.stdout))
}

/// The paths in what a loader lists: `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` of itself.
fn listed(text: &[u8]) -> Vec<PathBuf> {
    let lines = text.split(|byte| *byte == b'\n');
    let path = |line: &[u8]| {
        let from = line.iter().position(|byte| *byte == b'/')?;
        let arrow = line.windows(4).position(|four| four == b" => ");
        let from = arrow.map_or(from, |arrow| arrow + 4);
        let to = line.windows(4).rposition(|four| four == b" (0x")?;
        let path = line.get(from..to)?;
        path.starts_with(b"/")
            .then(|| PathBuf::from(OsStr::from_bytes(path)))
    };
    lines.filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_that_the_loader_lists() {
        let text = b"\tlinux-vdso.so.1 (0x00007ffc)\n\tlibmarks.so => /opt/my libs/libmarks.so \
            (0x00007f3b)\n\tlibgone.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f3c)\n";
        assert_eq!(
            listed(text),
            ["/opt/my libs/libmarks.so", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_script_has_no_libraries_and_no_functions() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert!(libraries(&script).is_empty());
        assert!(functions(&open(&script).unwrap(), &["main"]).is_none());
    }
}
