//! The kernel log: messages of the programs about rare and surprising events. Tracing shows them
//! under the target `kernel` at the level `debug`. If tracing does not show that level, the
//! programs are loaded without messages.

use aya::{Ebpf, EbpfLoader};
use aya_log::{EbpfLogger, Level};
use log::{Log, Metadata, Record};
use probe_common::LogKind;

use super::{globals, refused};
use crate::session::SessionError;

/// The ring of messages, by aya-log's name.
pub(super) const RING: &str = "AYA_LOGS";

/// Bytes of the ring, for some 500 messages: a power of two, and a multiple of 64 KiB pages.
const RING_SIZE: u32 = 128 << 10;

/// Level of programs without messages.
const LEVEL_OFF: u8 = 0;
/// Level of programs with all messages.
const LEVEL_ALL: u8 = Level::Debug as u8;

/// Whether tracing shows the messages.
pub(crate) fn is_shown() -> bool {
    tracing::enabled!(target: "kernel", tracing::Level::DEBUG)
}

/// Bytes of the ring: one page if no messages are sent. A pinned ring always has room for the
/// messages of later sessions.
pub(crate) fn ring_size(shown: bool, pinned: bool) -> u32 {
    match shown || pinned {
        true => RING_SIZE,
        false => u32::try_from(rustix::param::page_size()).unwrap_or(RING_SIZE),
    }
}

/// Loads the programs with or without messages.
pub(super) fn configure(loader: &mut EbpfLoader<'_>, shown: bool, pinned: bool) {
    globals::AYA_LOG_LEVEL.set(loader, if shown { &LEVEL_ALL } else { &LEVEL_OFF });
    loader.map_max_entries(RING, ring_size(shown, pinned));
}

/// The reader of the messages.
pub(crate) struct KernelLog(EbpfLogger<ToTracing>);

impl KernelLog {
    /// Takes the ring out of the object.
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self, SessionError> {
        let logger = EbpfLogger::init_with_logger(ebpf, ToTracing)
            .map_err(|error| refused("the kernel log", &error))?;
        Ok(Self(logger))
    }

    /// Shows every message in the ring.
    pub(crate) fn drain(&mut self) {
        self.0.flush();
    }
}

/// Turns messages into text for tracing.
struct ToTracing;

impl Log for ToTracing {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let values = record.args().to_string();
        match message_text(&values) {
            Some(words) => tracing::debug!(target: "kernel", "{words}"),
            None => tracing::error!("a message of the kernel log is none of ours: {values}"),
        }
    }

    fn flush(&self) {}
}

/// The text of a message with these values: kind, CPU, four values whose meaning depends on the
/// kind, and the number of suppressed messages before it. None if the values are no message.
fn message_text(values: &str) -> Option<String> {
    let values: Result<Vec<u64>, _> = values.split(' ').map(str::parse).collect();
    let [kind, cpu, a, b, c, d, suppressed] = values.ok()?.try_into().ok()?;
    let what = match LogKind::ALL.get(usize::try_from(kind).ok()?)? {
        LogKind::RowRefused => {
            let error = d.cast_signed();
            format!("no row for cgroup {a}, process {b}, group {c}: error {error}")
        }
        LogKind::CounterBack => format!("the counter in slot {a} went back from {b} to {c}"),
        LogKind::SwitchMissed => format!(
            "a switch to thread {a} was missed, from cgroup {b} to {c}, in a slice of {d} ns"
        ),
        LogKind::ChunkUnreadable => format!("a chunk of {a} bytes up to {b} could not be read"),
        LogKind::EventLost => {
            let error = c.cast_signed();
            format!("a record of kind {a} about {b} was lost: error {error}")
        }
    };
    Some(format!(
        "kernel, CPU {cpu}: {what}; {suppressed} more before"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_message_names_its_values() {
        // -7 as the programs send it.
        assert_eq!(
            message_text("0 3 42 0 1 18446744073709551609 5").unwrap(),
            "kernel, CPU 3: no row for cgroup 42, process 0, group 1: error -7; 5 more before"
        );
        for other in [
            "",
            "0 3",
            "9 3 42 0 1 2 5",
            "0 3 42 0 1 x 5",
            "0 3 42 0 1 2 5 6",
        ] {
            assert_eq!(message_text(other), None, "{other}");
        }
    }
}
