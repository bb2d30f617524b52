//! Pressure, throttling, I/O and memory events of cgroups (Documentation/accounting/psi.rst,
//! Documentation/scheduler/sched-bwc.rst, Documentation/admin-guide/cgroup-v2.rst).

mod reader;

use std::time::Duration;

use probe_common::CgroupId;
use serde::{Deserialize, Serialize};

pub(crate) use self::reader::PressureReader;

/// A quantity that the kernel counts for a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupCounter {
    /// Microseconds in which a task was runnable and not running. As all pressure, an average over
    /// the CPUs that were not idle.
    CpuSome,
    /// Part of [`Self::CpuSome`] in which no task made progress (Linux 5.13).
    CpuFull,
    /// Microseconds in which a task waited for memory: reclaim, refaults, swap.
    MemorySome,
    /// Part of [`Self::MemorySome`] in which no task made progress.
    MemoryFull,
    /// Microseconds in which a task waited for I/O.
    IoSome,
    /// Part of [`Self::IoSome`] in which no task made progress.
    IoFull,
    /// Periods of the cgroup's own quota in which it had something to run.
    Periods,
    /// Part of [`Self::Periods`] in which it was throttled.
    ThrottledPeriods,
    /// Nanoseconds for which the cgroup's own quota throttled it, added up over CPUs.
    Throttled,
    /// Times that the cgroup was throttled because it used more than `memory.high`.
    MemoryHigh,
    /// Times that the cgroup was about to use more than `memory.max`.
    MemoryMax,
    /// Times that an allocation was about to fail.
    Ooms,
    /// Processes killed for want of memory.
    OomKills,
    /// Pages read back after they were evicted.
    Refaults,
    /// Bytes read from block devices.
    IoReadBytes,
    /// Bytes written to block devices.
    IoWriteBytes,
    /// Reads of block devices.
    IoReads,
    /// Writes to block devices.
    IoWrites,
}

impl CgroupCounter {
    /// All of them, in their order in [`CgroupCounts`].
    pub const ALL: [Self; 18] = [
        Self::CpuSome,
        Self::CpuFull,
        Self::MemorySome,
        Self::MemoryFull,
        Self::IoSome,
        Self::IoFull,
        Self::Periods,
        Self::ThrottledPeriods,
        Self::Throttled,
        Self::MemoryHigh,
        Self::MemoryMax,
        Self::Ooms,
        Self::OomKills,
        Self::Refaults,
        Self::IoReadBytes,
        Self::IoWriteBytes,
        Self::IoReads,
        Self::IoWrites,
    ];

    /// The counters that are read with CPU waits: other reasons why a container does not run.
    pub const BESIDE_WAITS: &[Self] = &[Self::MemorySome, Self::IoSome, Self::Throttled];

    /// Whether this is pressure. Pressure times of two cgroups overlap, and have no sum.
    #[must_use]
    pub fn is_pressure(self) -> bool {
        self as usize <= Self::IoFull as usize
    }

    /// Whether this counts the cgroup alone. All other counters include its descendants.
    #[must_use]
    pub fn is_own(self) -> bool {
        matches!(
            self,
            Self::Periods | Self::ThrottledPeriods | Self::Throttled
        )
    }
}

/// Counts of a cgroup since it was created, in the order of [`CgroupCounter::ALL`]. None: not
/// reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CgroupCounts {
    /// The counts.
    #[serde(with = "counts")]
    pub(crate) counts: [Option<u64>; CgroupCounter::ALL.len()],
    /// CPUs that the cgroup's own quota allows. None: no quota.
    pub quota: Option<f64>,
}

/// The counts of all cgroups at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PressureReading {
    /// The cgroups that could be read, sorted by id.
    pub cgroups: Vec<(CgroupId, CgroupCounts)>,
    /// The whole machine's pressure.
    pub machine: CgroupCounts,
    /// `CLOCK_MONOTONIC` at the reading.
    pub at: Duration,
    /// Only [`CgroupCounter::BESIDE_WAITS`] were read.
    #[serde(default)]
    pub beside_waits: bool,
}

/// What was added between two readings.
#[derive(Clone, Debug, Default)]
pub struct PressureDelta {
    /// By cgroup, sorted by id.
    pub cgroups: Vec<(CgroupId, CgroupCounts)>,
    /// The whole machine's pressure.
    pub machine: CgroupCounts,
    /// The time between the readings.
    pub length: Duration,
    /// Only [`CgroupCounter::BESIDE_WAITS`] were read.
    pub beside_waits: bool,
}

impl CgroupCounts {
    /// A count.
    #[must_use]
    pub fn get(&self, counter: CgroupCounter) -> Option<u64> {
        self.counts[counter as usize]
    }

    fn add(&mut self, counter: CgroupCounter, added: Option<u64>) {
        if let Some(added) = added {
            let count = self.counts[counter as usize].get_or_insert(0);
            *count = count.saturating_add(added);
        }
    }

    /// These counts with the count of `counter` replaced.
    #[must_use]
    pub fn with(mut self, counter: CgroupCounter, count: Option<u64>) -> Self {
        self.counts[counter as usize] = count;
        self
    }

    /// The counts that `keep` keeps; the others are None.
    pub(crate) fn filtered(&self, keep: impl Fn(CgroupCounter) -> bool) -> Self {
        self.combined(self, |counter, count, _| count.filter(|_| keep(counter)))
    }

    /// What was added since an earlier reading. A count that fell was reset, so the difference is
    /// unknown.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.combined(earlier, |_, later, earlier| later?.checked_sub(earlier?))
    }

    /// The sum of two cgroups, neither of which is within the other.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let sum = self.combined(other, |counter, a, b| match counter {
            _ if counter.is_pressure() => None,
            _ => Some(a?.saturating_add(b?)),
        });
        let quota = self.quota.zip(other.quota).map(|(a, b)| a + b);
        Self { quota, ..sum }
    }

    /// The sum of two windows of the same cgroup. A count that one of them lacks is unknown in the
    /// sum.
    #[must_use]
    pub fn then(&self, later: &Self) -> Self {
        self.combined(later, |_, a, b| Some(a?.saturating_add(b?)))
    }

    /// The sum of two readings, in which a count that only one of them has is kept.
    pub(crate) fn merged(&self, other: &Self) -> Self {
        self.combined(other, |_, a, b| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            _ => a.or(b),
        })
    }

    fn combined(
        &self,
        other: &Self,
        combine: impl Fn(CgroupCounter, Option<u64>, Option<u64>) -> Option<u64>,
    ) -> Self {
        let mut result = *self;
        for counter in CgroupCounter::ALL {
            let (a, b) = (self.get(counter), other.get(counter));
            result.counts[counter as usize] = combine(counter, a, b);
        }
        result
    }
}

impl PressureDelta {
    /// What was added between two readings. A cgroup that is not in the earlier reading is new,
    /// since the session knows every cgroup: all its counts were added.
    #[must_use]
    pub fn between(earlier: &PressureReading, later: &PressureReading) -> Self {
        let before = |id: CgroupId| {
            let position = earlier.cgroups.binary_search_by_key(&id, |(id, _)| *id);
            position.ok().map(|at| &earlier.cgroups[at].1)
        };
        let added = |(id, counts): &(CgroupId, CgroupCounts)| {
            let added = before(*id).map_or(*counts, |before| counts.since(before));
            (*id, added)
        };
        Self {
            cgroups: later.cgroups.iter().map(added).collect(),
            machine: later.machine.since(&earlier.machine),
            length: later.at.saturating_sub(earlier.at),
            beside_waits: later.beside_waits,
        }
    }
}

/// Serialises the counts as a list, since earlier versions recorded fewer of them.
mod counts {
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer, de::Error as _};

    use super::CgroupCounter;

    type Counts = [Option<u64>; CgroupCounter::ALL.len()];

    pub(super) fn serialize<S: Serializer>(counts: &Counts, to: S) -> Result<S::Ok, S::Error> {
        counts.as_slice().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Counts, D::Error> {
        let list = Vec::deserialize(from)?;
        let mut counts = Counts::default();
        let known = counts.get_mut(..list.len());
        known
            .ok_or_else(|| D::Error::invalid_length(list.len(), &"the counts of a cgroup"))?
            .copy_from_slice(&list);
        Ok(counts)
    }
}

#[cfg(test)]
mod tests;
