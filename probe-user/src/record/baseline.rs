//! The other side of an accuracy: how many loads and stores a command has, counted by the core PMU.

use std::{
    io,
    os::fd::{FromRawFd as _, OwnedFd},
};

use perf_event_open_sys::{self as raw, bindings};

use super::{RecordError, error::open_reason, options::ATTR_SIZE};
use crate::{
    event::{self, Source},
    machine::Pmus,
};

/// A counter of the memory accesses of a command and what it starts: Arm's `MEM_ACCESS`
/// (DDI 0487, event 0x13), at all exception levels that SPE samples too.
#[derive(Debug)]
pub struct AccessCounter(OwnedFd);

impl AccessCounter {
    /// For a process that waits before its exec, from which on it counts.
    ///
    /// # Errors
    ///
    /// Where the core PMU has no such event, or the kernel refuses it.
    pub fn open(pid: u32, pmus: &Pmus) -> Result<Self, RecordError> {
        let groups = event::parse("mem_access", pmus)?;
        let mut events = groups.into_iter().flat_map(|group| group.events);
        let Some(Source::Counter(counter)) = events.next().map(|event| event.source) else {
            unreachable!("a name that is no clock is one counter")
        };
        let mut attr = bindings::perf_event_attr {
            type_: counter.type_,
            config: counter.config,
            read_format: u64::from(
                bindings::PERF_FORMAT_TOTAL_TIME_ENABLED | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING,
            ),
            ..Default::default()
        };
        attr.config1 = counter.config1;
        attr.config2 = counter.config2;
        attr.size = ATTR_SIZE;
        attr.set_disabled(1);
        attr.set_inherit(1);
        attr.set_enable_on_exec(1);
        let flags = u64::from(bindings::PERF_FLAG_FD_CLOEXEC);
        // SAFETY: attr is a valid structure of the size it states; the kernel only reads and, on
        // E2BIG, writes its size.
        let fd = unsafe { raw::perf_event_open(&raw mut attr, pid.cast_signed(), -1, -1, flags) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            return Err(RecordError::Open {
                pmu: "mem_access".to_owned(),
                target: format!("process {pid}"),
                reason: open_reason(&error),
            });
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Accesses so far, scaled where the counter was shared with others; none where it never ran.
    ///
    /// # Errors
    ///
    /// Where it cannot be read.
    pub fn read(&self) -> Result<Option<f64>, RecordError> {
        let mut bytes = [0; 24];
        let size = rustix::io::read(&self.0, &mut bytes)
            .map_err(|error| RecordError::Poll(error.into()))?;
        if size != bytes.len() {
            return Ok(None);
        }
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        let (count, enabled, running) = (word(0), word(8), word(16));
        if running == 0 {
            return Ok(None);
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "counts below 2^53 in any run that ends"
        )]
        let scaled = count as f64 * (enabled as f64 / running as f64);
        Ok(Some(scaled))
    }
}
