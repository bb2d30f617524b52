//! Pressure, throttling and memory events of cgroups (Documentation/accounting/psi.rst,
//! Documentation/scheduler/sched-bwc.rst, Documentation/admin-guide/cgroup-v2.rst).

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use probe_common::CgroupId;
use serde::{Deserialize, Serialize};

use super::{
    Machine,
    cgroup::{CgroupError, Hierarchy, is_at},
    memory::field,
};
use crate::sys::clock::now;

/// What the kernel counts of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupCounter {
    /// Microseconds in which a task was runnable and not running. As all pressure, an average over
    /// the CPUs that were not idle.
    CpuSome,
    /// Part of it in which no task made progress (Linux 5.13).
    CpuFull,
    /// Microseconds in which a task waited for memory: reclaim, refaults, swap.
    MemorySome,
    /// Part of it in which no task made progress.
    MemoryFull,
    /// Microseconds in which a task waited for I/O.
    IoSome,
    /// Part of it in which no task made progress.
    IoFull,
    /// Periods of its own quota in which it had something to run.
    Periods,
    /// Of these, those in which it was throttled.
    ThrottledPeriods,
    /// Nanoseconds for which its own quota throttled it, added up over CPUs.
    Throttled,
    /// Times that it was throttled because it used more than `memory.high`.
    MemoryHigh,
    /// Times that it was about to use more than `memory.max`.
    MemoryMax,
    /// Times that an allocation was about to fail.
    Ooms,
    /// Processes killed for want of memory.
    OomKills,
    /// Pages read back after they were evicted.
    Refaults,
}

impl CgroupCounter {
    /// All of them, in their order in [`CgroupCounts`].
    pub const ALL: [Self; 14] = [
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
    ];

    /// The counters that are read with CPU waits: other reasons why a container does not run.
    pub const BESIDE_WAITS: &[Self] = &[Self::MemorySome, Self::IoSome, Self::Throttled];

    /// Whether it is pressure: times of two cgroups overlap, and have no sum.
    #[must_use]
    pub fn is_pressure(self) -> bool {
        self as usize <= Self::IoFull as usize
    }

    /// Whether it is of the cgroup itself. All others include the cgroups below.
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
    pub(crate) counts: [Option<u64>; CgroupCounter::ALL.len()],
    /// CPUs that its own quota allows. None: no quota.
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

    fn add(&mut self, counter: CgroupCounter, more: Option<u64>) {
        if let Some(more) = more {
            let count = self.counts[counter as usize].get_or_insert(0);
            *count = count.saturating_add(more);
        }
    }

    /// The same with another count.
    #[must_use]
    pub fn with(mut self, counter: CgroupCounter, count: Option<u64>) -> Self {
        self.counts[counter as usize] = count;
        self
    }

    /// Only these counts.
    pub(crate) fn filtered(&self, keep: impl Fn(CgroupCounter) -> bool) -> Self {
        self.combined(self, |counter, count, _| count.filter(|_| keep(counter)))
    }

    /// What was added since an earlier reading. A count that was larger then began again: what was
    /// added is not known.
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

    /// The sum of two windows of the same cgroup. What one of them lacks is unknown in the sum.
    #[must_use]
    pub fn then(&self, later: &Self) -> Self {
        self.combined(later, |_, a, b| Some(a?.saturating_add(b?)))
    }

    /// The counts that are known in either, added up.
    pub(crate) fn merged(&self, other: &Self) -> Self {
        self.combined(other, |_, a, b| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            _ => a.or(b),
        })
    }

    fn combined(
        &self,
        other: &Self,
        with: impl Fn(CgroupCounter, Option<u64>, Option<u64>) -> Option<u64>,
    ) -> Self {
        let mut result = *self;
        for counter in CgroupCounter::ALL {
            let (a, b) = (self.get(counter), other.get(counter));
            result.counts[counter as usize] = with(counter, a, b);
        }
        result
    }
}

impl PressureDelta {
    /// A cgroup that is not in the earlier reading is new: the session knows every cgroup.
    #[must_use]
    pub fn between(earlier: &PressureReading, later: &PressureReading) -> Self {
        let before = |id: CgroupId| {
            let found = earlier.cgroups.binary_search_by_key(&id, |(id, _)| *id);
            found.ok().map(|at| &earlier.cgroups[at].1)
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

/// Reads the counts of cgroups.
#[derive(Debug)]
pub(crate) struct PressureReader {
    counters: &'static [CgroupCounter],
    proc: PathBuf,
    cgroup2: Hierarchy,
    /// The hierarchy of v1 with the CPU controller, if cgroup2 does not have it.
    cpu: Option<Hierarchy>,
}

impl PressureReader {
    /// Reads these counters.
    ///
    /// # Errors
    ///
    /// There is no cgroup2.
    pub(crate) fn new(
        machine: &Machine,
        counters: &'static [CgroupCounter],
    ) -> Result<Self, CgroupError> {
        let proc = machine.procfs().to_owned();
        Ok(Self {
            counters,
            cgroup2: machine.hierarchy()?.clone(),
            cpu: Hierarchy::for_controller(&proc, "cpu")?,
            proc,
        })
    }

    /// The counts of these cgroups, without those that are gone. Paths are as in /proc/PID/cgroup;
    /// a cgroup of v1 is looked up by the same path.
    pub(crate) fn read<'a>(
        &self,
        cgroups: impl Iterator<Item = (CgroupId, &'a str)>,
    ) -> PressureReading {
        let at = now();
        let mut cgroups: Vec<_> = cgroups
            .filter(|(id, _)| id.is_cgroup() && *id != CgroupId::ROOT)
            .filter(|(id, path)| is_at(&self.cgroup2, path, *id))
            .filter_map(|(id, path)| Some((id, self.cgroup(path)?)))
            .collect();
        cgroups.sort_unstable_by_key(|(id, _)| *id);
        let mut machine = CgroupCounts::default();
        let directory = self.proc.join("pressure");
        self.read_pressure(&mut machine, |resource| directory.join(resource));
        // The kernel writes 0 there (kernel/sched/psi.c, psi_show).
        machine.counts[CgroupCounter::CpuFull as usize] = None;
        let machine = machine.filtered(|counter| self.reads(counter));
        PressureReading {
            cgroups,
            machine,
            at,
            beside_waits: !self.reads(CgroupCounter::Periods),
        }
    }

    fn cgroup(&self, path: &str) -> Option<CgroupCounts> {
        let directory = self.cgroup2.directory(path)?;
        let mut counts = CgroupCounts::default();
        self.read_pressure(&mut counts, |resource| {
            directory.join(format!("{resource}.pressure"))
        });
        self.read_v2(&mut counts, &directory);
        let v1 = self.cpu.as_ref().and_then(|cpu| cpu.directory(path));
        if let Some(directory) = v1 {
            read_cpu_of_v1(&mut counts, &directory);
        }
        if !self.reads(CgroupCounter::Periods) {
            counts.quota = None;
        }
        Some(counts.filtered(|counter| self.reads(counter)))
    }

    fn reads(&self, counter: CgroupCounter) -> bool {
        self.counters.contains(&counter)
    }

    /// Lines such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
    fn read_pressure(&self, counts: &mut CgroupCounts, file: impl Fn(&str) -> PathBuf) {
        use CgroupCounter::{CpuFull, CpuSome, IoFull, IoSome, MemoryFull, MemorySome};
        for (resource, [some, full]) in [
            ("cpu", [CpuSome, CpuFull]),
            ("memory", [MemorySome, MemoryFull]),
            ("io", [IoSome, IoFull]),
        ] {
            if !self.reads(some) && !self.reads(full) {
                continue;
            }
            let text = fs::read_to_string(file(resource)).unwrap_or_default();
            for line in text.lines() {
                let total = line
                    .rsplit_once(" total=")
                    .and_then(|(_, it)| it.parse().ok());
                match line.split(' ').next() {
                    Some("some") => counts.add(some, total),
                    Some("full") => counts.add(full, total),
                    _ => {}
                }
            }
        }
    }

    fn read_v2(&self, counts: &mut CgroupCounts, directory: &Path) {
        use CgroupCounter::{
            MemoryHigh, MemoryMax, OomKills, Ooms, Periods, Refaults, Throttled, ThrottledPeriods,
        };
        let text = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
        let mut read = ("", String::new());
        for (file, key, counter, factor) in [
            ("cpu.stat", "nr_periods", Periods, 1),
            ("cpu.stat", "nr_throttled", ThrottledPeriods, 1),
            ("cpu.stat", "throttled_usec", Throttled, 1000),
            ("memory.events", "high", MemoryHigh, 1),
            ("memory.events", "max", MemoryMax, 1),
            ("memory.events", "oom", Ooms, 1),
            ("memory.events", "oom_kill", OomKills, 1),
            ("memory.stat", "workingset_refault_anon", Refaults, 1),
            ("memory.stat", "workingset_refault_file", Refaults, 1),
        ] {
            if !self.reads(counter) {
                continue;
            }
            if read.0 != file {
                read = (file, text(file));
            }
            let count = field(&read.1, key);
            counts.add(counter, count.and_then(|it| it.checked_mul(factor)));
        }
        if self.reads(Periods) {
            let max = text("cpu.max");
            let numbers = max.trim().split_once(' ');
            counts.quota = numbers.and_then(|(quota, period)| cpus(quota, period));
        }
    }
}

fn read_cpu_of_v1(counts: &mut CgroupCounts, directory: &Path) {
    let text = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
    let stat = text("cpu.stat");
    for (key, counter) in [
        ("nr_periods", CgroupCounter::Periods),
        ("nr_throttled", CgroupCounter::ThrottledPeriods),
        ("throttled_time", CgroupCounter::Throttled),
    ] {
        counts.add(counter, field(&stat, key));
    }
    counts.quota = cpus(&text("cpu.cfs_quota_us"), &text("cpu.cfs_period_us"));
}

/// The CPUs that a quota allows. None if there is none: `max` in cgroup2, -1 in v1.
fn cpus(quota: &str, period: &str) -> Option<f64> {
    let positive = |text: &str| text.trim().parse::<f64>().ok().filter(|it| *it > 0.0);
    Some(positive(quota)? / positive(period)?)
}

#[cfg(test)]
mod tests;
