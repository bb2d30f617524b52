//! Functions of programs by their names, and the files in which a program looks for its functions.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use object::elf::{SHT_DYNSYM, SHT_SYMTAB};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    elf::{Elf, Source},
    functions::Functions,
    maps, opened,
};

/// Bytes of the name of a program's loader.
const INTERPRETER: u64 = 4096;

/// How long a loader may take to list a program's libraries, and the bytes of its list.
const LISTING: (Duration, usize) = (Duration::from_secs(5), 1 << 20);

/// Functions of one name in one file. One with more has them to be a burden.
const MOST: usize = 64;

/// What a file has of the functions that were looked for.
#[derive(Debug)]
pub(crate) struct Found {
    /// The number of a name among those, and the place of a function of it in the file.
    pub(crate) places: Vec<(usize, u64)>,
    /// It has no table of all its symbols: only those that others may use have names.
    pub(crate) stripped: bool,
    /// It has 64 bits. In one of 32 nothing is looked for: its calls have arguments elsewhere.
    pub(crate) wide: bool,
    /// Bytes of its symbols and their names.
    pub(crate) bytes: u64,
    /// It has more of those, or of the functions, than are looked at: `places` has none.
    pub(crate) is_too_much: bool,
    /// Its build id, where it has one.
    pub(crate) build_id: Option<Vec<u8>>,
}

/// Looks for functions in a file with at most so many bytes of symbols; None where it is no program
/// and no library.
pub(crate) fn functions(file: &File, names: &[&str], most: u64) -> Option<Found> {
    let elf = Elf::read(Source::File(file.try_clone().ok()?))?;
    let mut places = Vec::new();
    let kinds = [SHT_SYMTAB, SHT_DYNSYM];
    let tables = { &elf.sections }
        .iter()
        .filter(|section| kinds.contains(&section.kind));
    let sizes = tables.flat_map(|table| [table.size, table.names.map_or(0, |(_, size)| size)]);
    let bytes = sizes.fold(0, u64::saturating_add);
    let mut is_too_much = bytes > most;
    let looked = kinds.into_iter().filter(|_| elf.wide && !is_too_much);
    for table in looked {
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
    if places
        .chunk_by(|a, b| a.0 == b.0)
        .any(|same| same.len() > MOST)
    {
        is_too_much = true;
        places.clear();
    }
    Some(Found {
        places,
        stripped: { &elf.sections }
            .iter()
            .all(|section| section.kind != SHT_SYMTAB),
        wide: elf.wide,
        bytes,
        is_too_much,
        build_id: elf.build_id,
    })
}

/// A file of this process's own root, where it is a regular one.
pub(crate) fn open(path: &Path) -> Option<File> {
    opened::link(path)
}

/// The files that a process has mapped to execute, as it sees them, by their names; none where one
/// cannot be opened.
pub(crate) fn mapped(proc: &Path, pid: u32) -> Vec<(Vec<u8>, Option<File>)> {
    let lines = maps::lines(proc, pid).into_iter();
    let mut names: Vec<Vec<u8>> = lines
        .filter(|line| line.mapping.executable && line.name.starts_with(b"/"))
        .map(|line| line.name)
        .collect();
    names.sort_unstable();
    names.dedup();
    let opened = names.into_iter().map(|name| {
        let file = in_process(proc, pid, &name);
        (name, file)
    });
    opened.collect()
}

/// The file that a process names by a path.
pub(crate) fn in_process(proc: &Path, pid: u32, path: &[u8]) -> Option<File> {
    opened::in_root(proc, pid, path)
}

/// The libraries that a program will have, by its own loader. Only for the program that this
/// process is about to run: this runs the loader that it names, with all rights that this process
/// has.
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
    match output(&mut list, LISTING) {
        Ok(text) => listed(&text),
        Err(error) => {
            tracing::warn!(
                "the loader of {} does not list its libraries ({error}): their markers are found \
                 only when they run",
                program.display()
            );
            Vec::new()
        }
    }
}

/// What a command says until it ends, in so long a time and so many bytes.
fn output(command: &mut Command, (time, most): (Duration, usize)) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + time;
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut read = || {
        let mut said = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            let ready = || poll(&mut [PollFd::new(&said, PollFlags::IN)], Some(&left));
            if rustix::io::retry_on_intr(ready)? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match said.read(&mut piece)? {
                0 => return Ok(text),
                read if text.len() + read > most => return Err(io::ErrorKind::FileTooLarge.into()),
                read => text.extend_from_slice(&piece[..read]),
            }
        }
    };
    let text = read();
    // It may have closed its output, and go on.
    let _ended = child.kill();
    child.wait()?;
    text
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
    fn a_command_that_says_too_much_or_does_not_end_is_ended() {
        let output = |script, limits| output(Command::new("sh").args(["-c", script]), limits);
        let long = Duration::from_secs(600);
        assert_eq!(
            output("echo one; echo two", (long, 8)).unwrap(),
            b"one\ntwo\n"
        );
        let error = output("exec yes", (long, 1 << 16)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        let error = output("exec sleep 600", (Duration::ZERO, 8)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // It closes its output, and does not end.
        assert_eq!(output("exec >&-; exec sleep 600", (long, 8)).unwrap(), b"");
    }

    #[test]
    fn a_script_has_no_libraries_and_no_functions() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert!(libraries(&script).is_empty());
        assert!(functions(&open(&script).unwrap(), &["main"], u64::MAX).is_none());
    }

    #[test]
    fn a_file_of_too_many_symbols_is_not_looked_through() {
        let own = open(Path::new("/proc/self/exe")).unwrap();
        let found = functions(&own, &["main"], 4096).unwrap();
        assert!(found.is_too_much && found.bytes > 4096 && found.places.is_empty());
        let found = functions(&own, &["main"], found.bytes).unwrap();
        assert!(!found.is_too_much && !found.places.is_empty());
    }
}
