//! Records about processes that existed before the recording, as perf makes them: their names and
//! the files that they have mapped to execute. perf needs them to find symbols.

use std::{fs, path::Path};

use bytes::BufMut as _;
use perf_event_open_sys::bindings;

use super::wire::Stamp;
use crate::sys::records::put;

/// `PERF_RECORD_MISC_USER`: the mapping is of user space.
const USER: u16 = 2;

/// For a process and its threads; `id` is that of an event of the file.
pub(super) fn records(proc: &Path, pid: u32, id: u64) -> Vec<u8> {
    let process = proc.join(pid.to_string());
    let mut records = Vec::new();
    let mut add = |kind, misc, body: &[u8], tid| {
        // Before everything: at time 0.
        let stamp = Stamp {
            pid,
            tid,
            ..Stamp::default()
        };
        put(&mut records, (kind, misc), body, &stamp.trailer(id));
    };
    let threads = fs::read_dir(process.join("task")).into_iter().flatten();
    for thread in threads.flatten() {
        let tid = thread.file_name().to_str().and_then(|tid| tid.parse().ok());
        let name = fs::read(thread.path().join("comm"));
        if let (Some(tid), Ok(name)) = (tid, name) {
            let mut body = Vec::new();
            body.put_u32_ne(pid);
            body.put_u32_ne(tid);
            body.put_slice(name.strip_suffix(b"\n").unwrap_or(&name));
            body.put_u8(0);
            add(bindings::PERF_RECORD_COMM, 0, &body, tid);
        }
    }
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    for body in maps.lines().filter_map(|line| mapping(pid, line)) {
        add(bindings::PERF_RECORD_MMAP2, USER, &body, pid);
    }
    records
}

/// The body of a `PERF_RECORD_MMAP2`, from a line of `maps` (`proc_pid_maps(5)`); none where it is
/// not executable.
fn mapping(pid: u32, line: &str) -> Option<Vec<u8>> {
    let (range, rest) = line.split_once(' ')?;
    let (rights, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    let (device, rest) = rest.split_once(' ')?;
    let (inode, name) = rest.split_once(' ').unwrap_or((rest, ""));
    if rights.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (from, to) = range.split_once('-')?;
    let (from, to) = (hex(from)?, hex(to)?);
    let (major, minor) = device.split_once(':')?;
    let device = |text| u32::try_from(hex(text)?).ok();
    let mut body = Vec::new();
    body.put_u32_ne(pid);
    body.put_u32_ne(pid);
    body.put_u64_ne(from);
    body.put_u64_ne(to.checked_sub(from)?);
    body.put_u64_ne(hex(offset)?);
    body.put_u32_ne(device(major)?);
    body.put_u32_ne(device(minor)?);
    body.put_u64_ne(inode.parse().ok()?);
    // The inode's generation (unknown), protection (read and execute), flags (private).
    body.put_u64_ne(0);
    body.put_u32_ne(5);
    body.put_u32_ne(2);
    let name = name.trim_start();
    let name = if name.is_empty() { "//anon" } else { name };
    body.put_slice(name.as_bytes());
    body.put_u8(0);
    Some(body)
}

#[cfg(test)]
mod tests {
    use super::{super::wire::StampedEvents, *};
    use crate::sys::records::Event;

    #[test]
    fn this_process_has_its_name_and_its_program() {
        let pid = std::process::id();
        let bytes = records(Path::new("/proc"), pid, 8);
        let mut events = StampedEvents::new(&bytes);
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        let names: Vec<_> = events
            .by_ref()
            .filter_map(|(event, trailer)| match event {
                Event::Comm { pid, tid, name } => {
                    Some((pid, tid == Stamp::of(trailer).tid, name.to_vec()))
                }
                _ => None,
            })
            .collect();
        assert_eq!(events.damaged, 0);
        assert!(
            names.contains(&(pid, true, own.trim_end().into())),
            "{names:?}"
        );
        let program = std::env::current_exe().unwrap();
        let program = program.to_str().unwrap().as_bytes();
        assert!(bytes.windows(program.len()).any(|part| part == program));
    }

    #[test]
    fn only_what_can_be_executed_is_a_mapping() {
        let code = "5581c0a2b000-5581c0a2f000 r-xp 00002000 fe:01 1234     /bin/a b";
        let body = mapping(7, code).unwrap();
        assert_eq!(body[8..16], 0x5581_c0a2_b000_u64.to_ne_bytes());
        assert_eq!(body[16..24], 0x4000_u64.to_ne_bytes());
        assert_eq!(body[24..32], 0x2000_u64.to_ne_bytes());
        assert_eq!(body[32..40], [0xfe, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(body[40..48], 1234_u64.to_ne_bytes());
        assert!(body.ends_with(b"/bin/a b\0"));
        assert!(
            mapping(
                7,
                "5581c0a2b000-5581c0a2f000 rw-p 00002000 fe:01 1234 /bin/a"
            )
            .is_none()
        );
        let anonymous = "7f00-7f10 r-xp 00000000 00:00 0 ";
        assert!(mapping(7, anonymous).unwrap().ends_with(b"//anon\0"));
        assert!(mapping(7, "nonsense").is_none());
    }
}
