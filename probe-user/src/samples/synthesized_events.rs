//! Synthesizes COMM and MMAP2 records for processes that exist before the recording, as perf itself
//! does: `perf report` needs them to resolve symbols.

use std::{fs, path::Path};

use bytes::BufMut as _;
use perf_event_open_sys::bindings;

use super::{mapping, wire::Stamp};
use crate::sys::records::put;

/// COMM records of a process's threads, and MMAP2 records of its mappings. `id` is the event id in
/// their trailers.
pub(super) fn synthesize(proc: &Path, pid: u32, id: u64) -> Vec<u8> {
    let process = proc.join(pid.to_string());
    let mut records = Vec::new();
    let mut add = |kind, misc, body: &[u8], tid| {
        // Time 0 sorts the record before all others.
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
    for line in mapping::of_process(proc, pid) {
        let (misc, body) = line.record();
        add(bindings::PERF_RECORD_MMAP2, misc, &body, pid);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::{super::wire::StampedRecords, *};
    use crate::sys::records::PerfRecord;

    #[test]
    fn records_of_this_process_have_its_name_and_program() {
        let pid = std::process::id();
        let bytes = synthesize(Path::new("/proc"), pid, 8);
        let mut events = StampedRecords::new(&bytes);
        let comm = fs::read_to_string("/proc/self/comm").unwrap();
        let names: Vec<_> = events
            .by_ref()
            .filter_map(|(event, trailer)| match event {
                PerfRecord::Comm { pid, tid, name, .. } => {
                    Some((pid, tid == Stamp::parse(trailer).tid, name.to_vec()))
                }
                _ => None,
            })
            .collect();
        assert_eq!(events.damaged, 0);
        assert!(
            names.contains(&(pid, true, comm.trim_end().into())),
            "{names:?}"
        );
        let path = std::env::current_exe().unwrap();
        let program = path.to_str().unwrap().as_bytes();
        assert!(bytes.windows(program.len()).any(|part| part == program));
    }
}
