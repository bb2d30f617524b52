//! Mappings of processes, from `/proc/PID/maps` (`proc_pid_maps(5)`). Recordings store them, so
//! that addresses can be named later.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, ErrorKind, Read as _},
    path::Path,
};

use bytes::BufMut as _;
use perf_event_open_sys::bindings;
use serde::{Serialize, Serializer};

use super::{
    elf::{Elf, ElfSource},
    opened,
};
use crate::{machine::process, sys::records::Inode};

/// Maximum number of bytes read of one process's `maps`: 65,530 mappings, the kernel's default
/// limit, take about half of it.
const MAX_MAPS_BYTES: u64 = 16 << 20;

/// A mapping of a process: a file, or memory without a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mapping {
    /// The process, in the pid namespace of this process.
    pub pid: u32,
    /// The first address.
    #[serde(serialize_with = "hex")]
    pub start: u64,
    /// The first address after the mapping.
    #[serde(serialize_with = "hex")]
    pub end: u64,
    /// Offset of the mapping in the file.
    #[serde(serialize_with = "hex")]
    pub offset: u64,
    /// Whether it is executable.
    pub executable: bool,
    /// The file, as the process sees it, or a name such as `[heap]`.
    pub path: String,
    /// The file's build id, if readable.
    #[serde(serialize_with = "digits", skip_serializing_if = "Option::is_none")]
    pub build_id: Option<Vec<u8>>,
}

/// Writes hexadecimal text, since not every JSON reader accepts numbers of 64 bits.
fn hex<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:#x}"))
}

fn digits<S: Serializer>(id: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&text_of(id.as_deref().unwrap_or_default()))
}

/// A build id in hexadecimal digits, as tools print it.
fn text_of(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A line of `maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) mapping: Mapping,
    /// The path as raw bytes.
    pub(crate) name: Vec<u8>,
    pub(crate) inode: Inode,
    /// `PROT_*`
    protection: u32,
    /// `MAP_*`
    flags: u32,
}

/// The current mappings of a process; none if it has ended. Executable files have their build ids.
pub(crate) fn of_process(proc: &Path, pid: u32) -> Vec<Line> {
    let process = proc.join(process::surviving_thread(proc, pid).to_string());
    let mut lines = lines(proc, pid);
    for line in &mut lines {
        let Mapping { start, end, .. } = line.mapping;
        if line.mapping.executable && line.inode.number != 0 {
            // This leads to the mapped file even if its path now names another file.
            let file = process.join(format!("map_files/{start:x}-{end:x}"));
            line.mapping.build_id = build_id(&file);
        }
    }
    lines
}

/// The current mappings of a process, without build ids.
pub(crate) fn lines(proc: &Path, pid: u32) -> Vec<Line> {
    let lines = lines_of_thread(proc, pid, pid);
    if !lines.is_empty() {
        return lines;
    }
    match process::surviving_thread(proc, pid) {
        thread if thread != pid => lines_of_thread(proc, pid, thread),
        _ => lines,
    }
}

/// Whether the kernel denies access to the mappings of a process.
pub(super) fn are_refused(proc: &Path, pid: u32) -> bool {
    let maps = File::open(proc.join(format!("{pid}/maps")));
    maps.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

fn lines_of_thread(proc: &Path, pid: u32, thread: u32) -> Vec<Line> {
    let Ok(file) = File::open(proc.join(format!("{thread}/maps"))) else {
        return Vec::new();
    };
    BufReader::new(file.take(MAX_MAPS_BYTES))
        .split(b'\n')
        .map_while(Result::ok)
        .filter_map(|line| Line::parse(pid, &line))
        .collect()
}

impl Line {
    fn parse(pid: u32, line: &[u8]) -> Option<Self> {
        // A line has five fields, then blanks and the name.
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let mut field = || std::str::from_utf8(fields.next()?).ok();
        let (range, rights, offset, device, inode) =
            (field()?, field()?, field()?, field()?, field()?);
        let name = fields.next().unwrap_or_default().trim_ascii_start();
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = range.split_once('-')?;
        let (start, end) = (hex(start)?, hex(end)?);
        let (major, minor) = device.split_once(':')?;
        let device = |text| u32::try_from(hex(text)?).ok();
        let right = |at: usize, letter| rights.as_bytes().get(at) == Some(&letter);
        let bit = |at, letter, bit| u32::from(right(at, letter)) * bit;
        Some(Self {
            mapping: Mapping {
                pid,
                start,
                end: (end >= start).then_some(end)?,
                offset: hex(offset)?,
                executable: right(2, b'x'),
                path: String::from_utf8_lossy(name).into_owned(),
                build_id: None,
            },
            name: name.to_vec(),
            inode: Inode {
                major: device(major)?,
                minor: device(minor)?,
                number: inode.parse().ok()?,
            },
            protection: bit(0, b'r', 1) | bit(1, b'w', 2) | bit(2, b'x', 4),
            flags: if right(3, b's') { 1 } else { 2 },
        })
    }

    /// The `PERF_RECORD_MMAP2` of this mapping: the flags of its header, and its body.
    pub(crate) fn record(&self) -> (u16, Vec<u8>) {
        let Mapping {
            pid,
            start,
            end,
            offset,
            executable,
            path,
            build_id,
        } = &self.mapping;
        let mut misc = bindings::PERF_RECORD_MISC_USER;
        if !executable {
            misc |= bindings::PERF_RECORD_MISC_MMAP_DATA;
        }
        let mut body = Vec::new();
        body.put_u32_ne(*pid);
        body.put_u32_ne(*pid);
        body.put_u64_ne(*start);
        body.put_u64_ne(end - start);
        body.put_u64_ne(*offset);
        match build_id {
            Some(id) => {
                misc |= bindings::PERF_RECORD_MISC_MMAP_BUILD_ID;
                body.put_slice(&build_id_field(id));
            }
            None => {
                body.put_u32_ne(self.inode.major);
                body.put_u32_ne(self.inode.minor);
                body.put_u64_ne(self.inode.number);
                // The inode's generation is unknown.
                body.put_u64_ne(0);
            }
        }
        body.put_u32_ne(self.protection);
        body.put_u32_ne(self.flags);
        let name = if path.is_empty() { "//anon" } else { path };
        body.put_slice(name.as_bytes());
        body.put_u8(0);
        (u16::try_from(misc).unwrap_or_default(), body)
    }
}

/// Encodes a build id for a record: its size in four bytes, then the id in twenty bytes.
fn build_id_field(id: &[u8]) -> [u8; 24] {
    let mut field = [0; 24];
    let size = id.len().min(20);
    field[0] = u8::try_from(size).unwrap_or_default();
    field[4..4 + size].copy_from_slice(&id[..size]);
    field
}

/// The build id of an ELF file; None if it cannot be read.
fn build_id(path: &Path) -> Option<Vec<u8>> {
    Elf::read(ElfSource::File(opened::regular_file(path)?))?.build_id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_an_mmap2_record() {
        let code = "5581c0a2b000-5581c0a2f000 r-xp 00002000 fe:01 1234     /bin/a b";
        let line = Line::parse(7, code.as_bytes()).unwrap();
        let (misc, body) = line.record();
        // `PERF_RECORD_MISC_USER`
        assert_eq!(misc, 2);
        assert_eq!(body[8..16], 0x5581_c0a2_b000_u64.to_ne_bytes());
        assert_eq!(body[16..24], 0x4000_u64.to_ne_bytes());
        assert_eq!(body[24..32], 0x2000_u64.to_ne_bytes());
        assert_eq!(body[32..40], [0xfe, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(body[40..48], 1234_u64.to_ne_bytes());
        assert_eq!(body[56..64], [5, 0, 0, 0, 2, 0, 0, 0]);
        assert!(body.ends_with(b"/bin/a b\0"));
        let data = "5581c0a2b000-5581c0a2f000 rw-s 00002000 fe:01 1234 /bin/a";
        let (misc, body) = Line::parse(7, data.as_bytes()).unwrap().record();
        // With `PERF_RECORD_MISC_MMAP_DATA`.
        assert_eq!(misc, 2 | 1 << 13);
        assert_eq!(body[56..64], [3, 0, 0, 0, 1, 0, 0, 0]);
        let anonymous = "7f00-7f10 r-xp 00000000 00:00 0 ";
        let (_, body) = Line::parse(7, anonymous.as_bytes()).unwrap().record();
        assert!(body.ends_with(b"//anon\0"));
        assert!(Line::parse(7, b"nonsense").is_none());
        assert!(Line::parse(7, b"7f10-7f00 r-xp 0 00:00 0").is_none());
    }

    #[test]
    fn the_build_id_replaces_device_and_inode() {
        let code = "1000-2000 r-xp 00000000 fe:01 1234 /lib/x";
        let mut line = Line::parse(7, code.as_bytes()).unwrap();
        line.mapping.build_id = Some((1..=20).collect());
        let (misc, body) = line.record();
        // With `PERF_RECORD_MISC_MMAP_BUILD_ID`.
        assert_eq!(misc, 2 | 1 << 14);
        assert_eq!(body[32..36], [20, 0, 0, 0]);
        assert_eq!(body[36..56], (1..=20).collect::<Vec<u8>>());
        let json = serde_json::to_string(&line.mapping).unwrap();
        assert_eq!(
            json,
            "{\"pid\":7,\"start\":\"0x1000\",\"end\":\"0x2000\",\"offset\":\"0x0\",\
             \"executable\":true,\"path\":\"/lib/x\",\
             \"build_id\":\"0102030405060708090a0b0c0d0e0f1011121314\"}"
        );
    }

    /// Libraries of distributions have build ids; this test's own program may have none.
    #[test]
    fn a_process_has_mapped_its_program_and_libraries() {
        use std::process::{Command, Stdio};

        // Runs `cat`, since this test may be a static program.
        let mut cat = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Once `cat` answers, its libraries are mapped.
        std::io::Write::write_all(cat.stdin.as_mut().unwrap(), b"x").unwrap();
        std::io::Read::read_exact(cat.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let program = std::fs::read_link(format!("/proc/{}/exe", cat.id())).unwrap();
        let lines = of_process(Path::new("/proc"), cat.id());
        drop(cat.stdin.take());
        cat.wait().unwrap();
        let of_program = lines
            .iter()
            .filter(|line| Path::new(&line.mapping.path) == program);
        let rights: Vec<bool> = of_program.map(|line| line.mapping.executable).collect();
        assert!(
            rights.contains(&true) && rights.contains(&false),
            "{rights:?}"
        );
        let with_id = |line: &&Line| line.mapping.build_id.is_some();
        let ids: Vec<_> = lines.iter().filter(with_id).collect();
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: only root may follow map_files");
        }
        assert!(ids.iter().all(|line| line.mapping.executable));
        assert!(
            ids.iter().any(|line| line.mapping.path.contains("libc")),
            "{ids:?}"
        );
    }
}
