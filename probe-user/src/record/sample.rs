//! A sample as it is passed on, and the trait of its receivers.

use std::{io, sync::Arc};

use probe_common::spe::{Origin, Record};

use super::{EventFile, Mapping};

/// Who made a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Process, in the pid namespace of this process.
    pub pid: u32,
    /// The thread's name at that time.
    pub name: Arc<str>,
    /// The process's path in the cgroup2 hierarchy when the sample was read.
    pub cgroup: Option<Arc<str>>,
}

/// A decoded record with what is known about where it came from.
#[derive(Clone, Debug)]
pub struct Sample {
    /// ns of the kernel's `CLOCK_MONOTONIC`, whatever time namespace this is; none without a
    /// timestamp, or where it cannot be converted.
    pub time: Option<u64>,
    /// The CPU that made it.
    pub cpu: Option<u32>,
    /// Thread.
    pub tid: Option<u32>,
    /// Its process and names.
    pub who: Option<Arc<Who>>,
    /// Where a load's data came from, by the table of its core; none for other operations, and
    /// where the core has no table.
    pub origin: Option<Origin>,
    /// The tag of its address, or what memory that is; none without `--regions`.
    pub region: Option<Arc<str>>,
    /// The phase of its thread; none outside of phases, and without `--regions`.
    pub phase: Option<Arc<str>>,
    /// The record itself.
    pub record: Record,
}

/// The place of bytes in an AUX area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxPlace {
    /// Number of the area, from 0.
    pub area: u32,
    /// Bytes that went through the area before these.
    pub offset: u64,
    /// The CPU of an area that belongs to a CPU.
    pub cpu: Option<u32>,
    /// The thread of an area that belongs to a thread.
    pub tid: Option<u32>,
}

/// Receives the parts of a recording, from all threads that drain buffers. An output implements the
/// methods that it needs.
pub trait Sink: Sync {
    /// Samples that one of the threads has decoded; threads are numbered from 0.
    ///
    /// # Errors
    ///
    /// Where they cannot be written.
    fn samples(&self, _thread: usize, _samples: &[Sample]) -> io::Result<()> {
        Ok(())
    }

    /// Records as the kernel wrote them into a ring, whole ones.
    ///
    /// # Errors
    ///
    /// Where they cannot be written.
    fn ring(&self, _records: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// Bytes of an AUX area.
    ///
    /// # Errors
    ///
    /// Where they cannot be written.
    fn aux(&self, _place: AuxPlace, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// A file that a sampled process has mapped, once.
    fn mapping(&self, _mapping: &Arc<Mapping>) {}

    /// The events changed: these are all so far.
    fn events(&self, _events: Vec<EventFile>) {}

    /// All buffers were read: later samples are no older than those of this round.
    ///
    /// # Errors
    ///
    /// Where that cannot be written.
    fn round(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps nothing: for counting.
impl Sink for () {}
