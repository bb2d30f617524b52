//! A sample as it is passed on, and the trait of its receivers.

use std::{io, sync::Arc};

use probe_common::{
    sample::DataSource,
    spe::{Class, Operation, Origin, Record, Source},
};

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

/// What a sample of an event says of a memory access (`PERF_RECORD_SAMPLE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Address of the instruction.
    pub pc: u64,
    /// Virtual address of the data; none where the core did not say it.
    pub address: Option<u64>,
    /// The sample's weight, which is the latency in cycles; none where the core did not say it.
    pub cycles: Option<u32>,
    /// `perf_mem_data_src`: operation, level, snoop, TLB.
    pub word: u64,
}

/// What was sampled, as its source tells it.
#[derive(Clone, Copy, Debug)]
pub enum Seen {
    /// By Arm's SPE.
    Record(Record),
    /// By an event of memory accesses.
    Access(Access),
}

/// What was sampled with what is known about where it came from.
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
    /// Path in the cgroup2 hierarchy: as the sample itself says it where it does, else that of
    /// its process.
    pub cgroup: Option<Arc<str>>,
    /// Where a load's data came from, by the table of its core; none for other operations, and
    /// where the core has no table.
    pub origin: Option<Origin>,
    /// The tag of its address, or what memory that is; none without `--regions`.
    pub region: Option<Arc<str>>,
    /// The phase of its thread; none outside of phases, and without `--regions`.
    pub phase: Option<Arc<str>>,
    /// The sample itself.
    pub seen: Seen,
}

impl Sample {
    /// SPE's record.
    #[must_use]
    pub const fn record(&self) -> Option<&Record> {
        match &self.seen {
            Seen::Record(record) => Some(record),
            Seen::Access(_) => None,
        }
    }

    /// What an event said.
    #[must_use]
    pub const fn access(&self) -> Option<&Access> {
        match &self.seen {
            Seen::Record(_) => None,
            Seen::Access(access) => Some(access),
        }
    }

    /// Whether it is a load or a store; none of other operations.
    #[must_use]
    pub fn class(&self) -> Option<Class> {
        match &self.seen {
            Seen::Record(record) => match record.operation()? {
                Operation::LoadStore(op) if op.is_store() => Some(Class::Store),
                Operation::LoadStore(_) => Some(Class::Load),
                _ => None,
            },
            Seen::Access(access) => Some(DataSource::of(access.word).said()?.class),
        }
    }

    /// Virtual address of the data.
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        match &self.seen {
            Seen::Record(record) => Some(record.virtual_address()?.address()),
            Seen::Access(access) => access.address,
        }
    }

    /// Its latency in cycles: of SPE from dispatch to completion, of events as
    /// [`Access::cycles`].
    #[must_use]
    pub fn cycles(&self) -> Option<u32> {
        match &self.seen {
            Seen::Record(record) => record.total_latency().map(u32::from),
            Seen::Access(access) => access.cycles,
        }
    }

    /// Where a load's data came from.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        match &self.seen {
            Seen::Record(_) => Some(self.origin?.source),
            Seen::Access(access) => DataSource::of(access.word).said()?.source,
        }
    }

    /// Whether that had the line modified, as far as the core says it.
    #[must_use]
    pub fn is_modified(&self) -> Option<bool> {
        /// `mem_snoop` (bits 19 to 23): all but `NA`, and `HITM`.
        const SAID: u64 = 0x1e;
        const MODIFIED: u64 = 0x10;
        match &self.seen {
            Seen::Record(_) => Some(self.origin?.modified),
            Seen::Access(access) => {
                let snoop = access.word >> 19;
                let is_load = self.class() == Some(Class::Load);
                (is_load && snoop & SAID != 0).then_some(snoop & MODIFIED != 0)
            }
        }
    }
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

/// Metadata, by names and values, that is made when it is asked for.
pub type News<'a> = &'a dyn Fn() -> Vec<(String, String)>;

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

    /// All buffers were read: later samples are no older than those of this round. `news` is
    /// metadata that came since it was called last.
    ///
    /// # Errors
    ///
    /// Where that cannot be written.
    fn round(&self, _news: News<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps nothing: for counting.
impl Sink for () {}
