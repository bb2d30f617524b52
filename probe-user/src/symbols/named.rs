//! Looks up functions by name in programs, and in the libraries that programs load.

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
    elf::{Elf, ElfSource},
    functions::Functions,
    maps, opened,
};

/// Maximum length of the path of a program's loader in bytes.
const MAX_INTERPRETER: u64 = 4096;

/// Maximum time in which a loader must list a program's libraries, and maximum size of the list in
/// bytes.
const LISTING_LIMITS: (Duration, usize) = (Duration::from_secs(5), 1 << 20);

/// Maximum number of functions of one name in a file. A file with more is assumed to be hostile.
const MAX_SAME_NAME: usize = 64;

/// The requested functions that a file has.
#[derive(Debug)]
pub(crate) struct FoundFunctions {
    /// For each function: the index of its name in the requested names, and its offset in the file.
    pub(crate) places: Vec<(usize, u64)>,
    /// Whether the file has no full symbol table, so that only exported functions have names.
    pub(crate) stripped: bool,
    /// Whether the file is a 64-bit one. 32-bit files are not searched, since they pass arguments
    /// differently.
    pub(crate) wide: bool,
    /// Bytes of the file's symbols and their names.
    pub(crate) bytes: u64,
    /// Whether the file exceeds the limits of symbols or functions. If so, `places` is empty.
    pub(crate) is_too_much: bool,
    /// The file's build id; None if it has none.
    pub(crate) build_id: Option<Vec<u8>>,
}

/// Looks for functions in a file that has at most `limit` bytes of symbols. None if the file is no
/// program or library.
pub(crate) fn functions(file: &File, names: &[&str], limit: u64) -> Option<FoundFunctions> {
    let elf = Elf::read(ElfSource::File(file.try_clone().ok()?))?;
    let mut places = Vec::new();
    let kinds = [SHT_SYMTAB, SHT_DYNSYM];
    let tables = { &elf.sections }
        .iter()
        .filter(|section| kinds.contains(&section.kind));
    let sizes = tables.flat_map(|table| [table.size, table.names.map_or(0, |(_, size)| size)]);
    let bytes = sizes.fold(0, u64::saturating_add);
    let mut is_too_much = bytes > limit;
    let searched = kinds.into_iter().filter(|_| elf.wide && !is_too_much);
    for table in searched {
        let Some(functions) = Functions::read(&elf, table) else {
            continue;
        };
        for (index, name) in names.iter().enumerate() {
            let addresses = functions.addresses_of(&elf, name).into_iter();
            let offsets = addresses.filter_map(|address| elf.offset(address));
            places.extend(offsets.map(|offset| (index, offset)));
        }
    }
    places.sort_unstable();
    places.dedup();
    if places
        .chunk_by(|a, b| a.0 == b.0)
        .any(|same| same.len() > MAX_SAME_NAME)
    {
        is_too_much = true;
        places.clear();
    }
    Some(FoundFunctions {
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

/// Opens a regular file in this process's own root.
pub(crate) fn open(path: &Path) -> Option<File> {
    opened::regular_file(path)
}

/// The executable mapped files of a process, with their paths as the process sees them; None for a
/// file that cannot be opened.
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

/// Opens the file at a path as a process sees it.
pub(crate) fn in_process(proc: &Path, pid: u32, path: &[u8]) -> Option<File> {
    opened::in_root(proc, pid, path)
}

/// The libraries that a program will load, as listed by its loader. Call it only for a program that
/// this process is about to run: its loader runs with all privileges of this process.
pub(crate) fn libraries(program: &Path) -> Vec<PathBuf> {
    let loader = || {
        let elf = Elf::read(ElfSource::File(opened::regular_file(program)?))?;
        let section = elf.section(".interp")?;
        let name = elf.content(section, MAX_INTERPRETER)?;
        let end = name.iter().position(|byte| *byte == 0)?;
        Some(PathBuf::from(OsStr::from_bytes(&name[..end])))
    };
    let Some(loader) = loader() else {
        return Vec::new();
    };
    let mut list = Command::new(loader);
    list.arg("--list").arg(program);
    match output(&mut list, LISTING_LIMITS) {
        Ok(text) => parse_list(&text),
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

/// The output of a command, within limits of time and size.
fn output(command: &mut Command, (time, limit): (Duration, usize)) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + time;
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut read = || {
        let mut stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let remaining = Timespec::try_from(deadline.saturating_duration_since(Instant::now()))
                .map_err(io::Error::other)?;
            let ready = || poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&remaining));
            if rustix::io::retry_on_intr(ready)? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match stdout.read(&mut piece)? {
                0 => return Ok(text),
                read if text.len() + read > limit => return Err(io::ErrorKind::FileTooLarge.into()),
                read => text.extend_from_slice(&piece[..read]),
            }
        }
    };
    let text = read();
    // The command may have closed its output and still run.
    let _ended = child.kill();
    child.wait()?;
    text
}

/// The paths in a loader's list: `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the loader
/// itself.
fn parse_list(text: &[u8]) -> Vec<PathBuf> {
    let lines = text.split(|byte| *byte == b'\n');
    let path = |line: &[u8]| {
        let slash = line.iter().position(|byte| *byte == b'/')?;
        let arrow = line.windows(4).position(|window| window == b" => ");
        let from = arrow.map_or(slash, |arrow| arrow + 4);
        let to = line.windows(4).rposition(|window| window == b" (0x")?;
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
    fn libraries_are_read_from_the_loaders_list() {
        let text = b"\tlinux-vdso.so.1 (0x00007ffc)\n\tlibmarks.so => /opt/my libs/libmarks.so \
            (0x00007f3b)\n\tlibgone.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f3c)\n";
        assert_eq!(
            parse_list(text),
            ["/opt/my libs/libmarks.so", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_command_with_too_much_output_or_time_is_killed() {
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
        // This command closes its output, but keeps running.
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
    fn a_file_with_too_many_symbols_is_not_searched() {
        let own = open(Path::new("/proc/self/exe")).unwrap();
        let found = functions(&own, &["main"], 4096).unwrap();
        assert!(found.is_too_much && found.bytes > 4096 && found.places.is_empty());
        let found = functions(&own, &["main"], found.bytes).unwrap();
        assert!(!found.is_too_much && !found.places.is_empty());
    }
}
