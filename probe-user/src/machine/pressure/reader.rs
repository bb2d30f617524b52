//! [`PressureReader`] reads the kernel's files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use probe_common::CgroupId;

use super::{CgroupCounter, CgroupCounts, PressureReading};
use crate::{
    machine::{
        Machine,
        cgroup::{CgroupError, Hierarchy, is_at},
        io_stat,
        memory::field,
    },
    sys::clock::now,
};

/// Reads the counts of cgroups.
#[derive(Debug)]
pub(crate) struct PressureReader {
    counters: &'static [CgroupCounter],
    proc: PathBuf,
    pub(super) cgroup2: Hierarchy,
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
        // For the whole machine the kernel always writes 0 here (kernel/sched/psi.c, psi_show).
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
        self.read_io(&mut counts, &directory);
        let v1 = self.cpu.as_ref().and_then(|cpu| cpu.directory(path));
        if let Some(directory) = v1 {
            read_cpu_of_v1(&mut counts, &directory);
        }
        if !self.reads(CgroupCounter::Periods) {
            counts.quota = None;
        }
        Some(counts.filtered(|counter| self.reads(counter)))
    }

    /// Whether this reader reads the counter.
    fn reads(&self, counter: CgroupCounter) -> bool {
        self.counters.contains(&counter)
    }

    /// Reads lines such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
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

    /// Adds the counts of all devices.
    fn read_io(&self, counts: &mut CgroupCounts, directory: &Path) {
        let counters = [
            ("rbytes", CgroupCounter::IoReadBytes),
            ("wbytes", CgroupCounter::IoWriteBytes),
            ("rios", CgroupCounter::IoReads),
            ("wios", CgroupCounter::IoWrites),
        ];
        if !counters.iter().any(|(_, counter)| self.reads(*counter)) {
            return;
        }
        let Ok(text) = fs::read_to_string(directory.join("io.stat")) else {
            return;
        };
        for (key, counter) in counters {
            // The file is empty before the first I/O.
            counts.add(counter, Some(0));
            for (_, name, value) in io_stat::numbers(&text) {
                if name == key {
                    counts.add(counter, Some(value));
                }
            }
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
