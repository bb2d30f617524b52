//! Records about processes that existed before the recording, as perf makes them: their names and
//! what they have mapped. perf needs them to find symbols.

use std::{fs, path::Path};

use bytes::BufMut as _;
use perf_event_open_sys::bindings;

use super::{mapping, wire::Stamp};
use crate::sys::records::put;

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
    for line in mapping::of_process(proc, pid) {
        let (misc, body) = line.record();
        add(bindings::PERF_RECORD_MMAP2, misc, &body, pid);
    }
    records
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
                Event::Comm { pid, tid, name, .. } => {
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
}
