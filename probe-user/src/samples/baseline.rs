//! Reference for the accuracy of sampling: a command's loads and stores, counted by the core PMU.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use super::{RecordError, error::open_reason};
use crate::{
    event::{self, Source},
    machine::Pmus,
    sys::perf,
};

/// Counts memory accesses of a command and its descendants: Arm's `MEM_ACCESS` (DDI 0487, event
/// 0x13), at all exception levels that SPE samples.
#[derive(Debug)]
pub struct AccessCounter(OwnedFd);

impl AccessCounter {
    /// Opens the counter for a process before its exec. It counts from that exec on.
    ///
    /// # Errors
    ///
    /// If the core PMU has no such event, or the kernel refuses it.
    pub fn open(pid: u32, pmus: &Pmus) -> Result<Self, RecordError> {
        let groups = event::parse("mem_access", pmus)?;
        let mut events = groups.into_iter().flat_map(|group| group.events);
        let Some(Source::Counter(counter)) = events.next().map(|event| event.source) else {
            unreachable!("`mem_access` is not a clock event, so it parses to a PMU counter")
        };
        let opened = perf::open_command(&counter.attr(), pid);
        opened.map(Self).map_err(|error| RecordError::Open {
            pmu: "mem_access".to_owned(),
            target: format!("process {pid}"),
            reason: open_reason(&error),
        })
    }

    /// Number of accesses so far, scaled if the counter was multiplexed; None if it never ran.
    ///
    /// # Errors
    ///
    /// If the counter cannot be read.
    pub fn read(&self) -> Result<Option<f64>, RecordError> {
        let perf::CounterReading {
            count,
            enabled,
            running,
        } = match perf::read(self.0.as_fd()) {
            Ok(reading) => reading,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(RecordError::Poll(error)),
        };
        if running == 0 {
            return Ok(None);
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "a relative error of 2^-53 does not matter here"
        )]
        let scaled = count as f64 * (enabled as f64 / running as f64);
        Ok(Some(scaled))
    }
}
