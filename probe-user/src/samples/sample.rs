//! Decoded samples, and the trait [`Sink`] of outputs.

use std::{io, sync::Arc};

use probe_common::{
    sample::DataSource,
    spe::{Class, Operation, Origin, Record, Source},
};

use super::{EventDescription, Mapping};

/// The task of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskInfo {
    /// Process id, in the pid namespace of pmuscope.
    pub pid: u32,
    /// The thread's name at the time of the sample.
    pub name: Arc<str>,
    /// Path of the process's cgroup in the cgroup2 hierarchy when the sample was read.
    pub cgroup: Option<Arc<str>>,
}

/// A memory access that an event sampled (`PERF_RECORD_SAMPLE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Address of the instruction.
    pub pc: u64,
    /// Virtual address of the data; None if the core does not report it.
    pub address: Option<u64>,
    /// The sample's weight: the latency in cycles; None if the core does not report it.
    pub cycles: Option<u32>,
    /// `perf_mem_data_src`: operation, level, snoop, TLB.
    pub word: u64,
}

/// The data of a sample, by backend.
#[derive(Clone, Copy, Debug)]
pub enum SampleData {
    /// A record of Arm's SPE.
    Record(Record),
    /// A sample of a memory-access event.
    Access(Access),
}

/// A sample with its attribution.
#[derive(Clone, Debug)]
pub struct Sample {
    /// ns of the kernel's `CLOCK_MONOTONIC`, whatever the time namespace; None without a timestamp,
    /// or if it cannot be converted.
    pub time: Option<u64>,
    /// The CPU that took the sample.
    pub cpu: Option<u32>,
    /// Thread id.
    pub tid: Option<u32>,
    /// The thread's process, name and cgroup; None if they are unknown.
    pub task: Option<Arc<TaskInfo>>,
    /// Path in the cgroup2 hierarchy: of the cgroup id in the sample if it has one, else of the
    /// process.
    pub cgroup: Option<Arc<str>>,
    /// Data source of a load, by the table of the core; None for other operations, and on cores
    /// without a table.
    pub origin: Option<Origin>,
    /// The tag of the address, or the kind of memory; None without `--regions`.
    pub region: Option<Arc<str>>,
    /// The phase of the thread; None outside of phases, and without `--regions`.
    pub phase: Option<Arc<str>>,
    /// The sampled data.
    pub data: SampleData,
}

impl Sample {
    /// The SPE record; None for sampled events.
    #[must_use]
    pub const fn record(&self) -> Option<&Record> {
        match &self.data {
            SampleData::Record(record) => Some(record),
            SampleData::Access(_) => None,
        }
    }

    /// The access that an event sampled; None for SPE.
    #[must_use]
    pub const fn access(&self) -> Option<&Access> {
        match &self.data {
            SampleData::Record(_) => None,
            SampleData::Access(access) => Some(access),
        }
    }

    /// Load or store; None for other operations.
    #[must_use]
    pub fn class(&self) -> Option<Class> {
        match &self.data {
            SampleData::Record(record) => match record.operation()? {
                Operation::LoadStore(op) if op.is_store() => Some(Class::Store),
                Operation::LoadStore(_) => Some(Class::Load),
                _ => None,
            },
            SampleData::Access(access) => Some(DataSource::from_word(access.word).decode()?.class),
        }
    }

    /// Virtual address of the data; None if the sample has none.
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        match &self.data {
            SampleData::Record(record) => Some(record.virtual_address()?.address()),
            SampleData::Access(access) => access.address,
        }
    }

    /// Latency in cycles: with SPE from dispatch to completion, with events [`Access::cycles`].
    /// None if the sample has none.
    #[must_use]
    pub fn cycles(&self) -> Option<u32> {
        match &self.data {
            SampleData::Record(record) => record.total_latency().map(u32::from),
            SampleData::Access(access) => access.cycles,
        }
    }

    /// Data source of a load; None for other operations, or if it is unknown.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        match &self.data {
            SampleData::Record(_) => Some(self.origin?.source),
            SampleData::Access(access) => DataSource::from_word(access.word).decode()?.source,
        }
    }

    /// Whether the cache line was modified in the data source; None if the core does not report it.
    #[must_use]
    pub fn is_modified(&self) -> Option<bool> {
        /// Bits of `mem_snoop` (19 to 23 of the word), except `NA`.
        const REPORTED: u64 = 0x1e;
        /// `HITM`.
        const MODIFIED: u64 = 0x10;
        match &self.data {
            SampleData::Record(_) => Some(self.origin?.modified),
            SampleData::Access(access) => {
                let snoop = access.word >> 19;
                let is_load = self.class() == Some(Class::Load);
                (is_load && snoop & REPORTED != 0).then_some(snoop & MODIFIED != 0)
            }
        }
    }
}

/// Position of bytes in the AUX area of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxPosition {
    /// Number of the buffer, from 0.
    pub area: u32,
    /// Number of bytes that were written into this AUX area before.
    pub offset: u64,
    /// The CPU of a buffer for one CPU.
    pub cpu: Option<u32>,
    /// The thread of a buffer for one thread.
    pub tid: Option<u32>,
}

/// Metadata (keys and values) that is computed on demand.
pub type LazyMetadata<'a> = &'a dyn Fn() -> Vec<(String, String)>;

/// Receives a recording, from all draining threads. An output implements the methods that it needs.
pub trait Sink: Sync {
    /// Takes a batch of samples that one of the threads has decoded; threads are numbered from 0.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    fn samples(&self, _thread: usize, _samples: &[Sample]) -> io::Result<()> {
        Ok(())
    }

    /// Takes whole records, as the kernel wrote them into a ring.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    fn ring(&self, _records: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// Takes bytes of an AUX area.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    fn aux(&self, _position: AuxPosition, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// Takes a mapped file of a sampled process; each is passed once.
    fn mapping(&self, _mapping: &Arc<Mapping>) {}

    /// Takes all events so far, whenever their list has changed.
    fn events(&self, _events: Vec<EventDescription>) {}

    /// Ends a round: all buffers were read, and later samples are not older than samples of this
    /// round. `news` gives the metadata that is new since its last call.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    fn round(&self, _news: LazyMetadata<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// Discards everything, for recordings that only count.
impl Sink for () {}
