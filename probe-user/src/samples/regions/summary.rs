//! Sums of samples by region, phase and thread.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
};

use probe_common::spe::{Class, Source};
use serde::Serialize;

use crate::samples::{Sample, Sink};

/// Maximum number of groups per decoding thread. Samples of further groups go to a group without
/// region, phase and thread.
const MAX_ROWS: usize = 65_536;

/// The group of a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct SampleGroup {
    region: Option<Arc<str>>,
    phase: Option<Arc<str>>,
    pid: Option<u32>,
    tid: Option<u32>,
}

/// Sums of a group.
#[derive(Clone, Debug, Default)]
struct GroupSums {
    comm: Option<Arc<str>>,
    samples: u64,
    loads: u64,
    stores: u64,
    /// Number of samples with a latency.
    timed: u64,
    /// Sum of these latencies.
    cycles: u64,
    sources: BTreeMap<Source, u64>,
}

impl GroupSums {
    fn add(&mut self, other: &Self) {
        if self.comm.is_none() {
            self.comm.clone_from(&other.comm);
        }
        self.samples += other.samples;
        self.loads += other.loads;
        self.stores += other.stores;
        self.timed += other.timed;
        self.cycles += other.cycles;
        for (source, samples) in &other.sources {
            *self.sources.entry(*source).or_default() += samples;
        }
    }
}

/// Sums for a region, phase and thread. A field is None if rows are not grouped by it, or if it is
/// unknown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegionRow {
    /// A tag, or the kind of memory.
    pub region: Option<Arc<str>>,
    /// The nested phases, joined by slashes.
    pub phase: Option<Arc<str>>,
    /// The process.
    pub pid: Option<u32>,
    /// The thread.
    pub tid: Option<u32>,
    /// The thread's name.
    pub comm: Option<Arc<str>>,
    /// All samples: loads, stores and others.
    pub samples: u64,
    /// Samples of loads.
    pub loads: u64,
    /// Samples of stores.
    pub stores: u64,
    /// Mean latency in cycles, see [`Sample::cycles`]; None if no sample has a latency.
    pub mean_latency_cycles: Option<f64>,
    /// Load samples by data source; with SPE only on cores with a data-source table.
    pub sources: BTreeMap<&'static str, u64>,
}

/// What to group samples by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Region.
    Region,
    /// Phase.
    Phase,
    /// Thread.
    Thread,
    /// Region, phase and thread.
    All,
}

/// Sums up samples from all decoding threads.
#[derive(Debug)]
pub struct RegionSummary(Vec<Mutex<HashMap<SampleGroup, GroupSums>>>);

impl RegionSummary {
    /// Creates an empty summary for `threads` decoding threads.
    #[must_use]
    pub fn new(threads: NonZeroUsize) -> Self {
        Self((0..threads.get()).map(|_| Mutex::default()).collect())
    }

    /// The sums by group; groups with most samples come first.
    #[must_use]
    pub fn rows(&self, by: GroupBy) -> Vec<RegionRow> {
        let mut sums: BTreeMap<SampleGroup, GroupSums> = BTreeMap::new();
        for thread in &self.0 {
            let thread = thread.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, sum) in &*thread {
                let mut key = key.clone();
                if !matches!(by, GroupBy::Region | GroupBy::All) {
                    key.region = None;
                }
                if !matches!(by, GroupBy::Phase | GroupBy::All) {
                    key.phase = None;
                }
                if !matches!(by, GroupBy::Thread | GroupBy::All) {
                    (key.pid, key.tid) = (None, None);
                }
                sums.entry(key).or_default().add(sum);
            }
        }
        let by_thread = matches!(by, GroupBy::Thread | GroupBy::All);
        let mut rows: Vec<RegionRow> = { sums.into_iter() }
            .map(|(key, sum)| row(key, sum, by_thread))
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.samples));
        rows
    }
}

fn row(key: SampleGroup, sum: GroupSums, by_thread: bool) -> RegionRow {
    let sources = sum.sources.into_iter();
    #[expect(clippy::cast_precision_loss, reason = "cycles of samples, below 2^53")]
    let mean = |timed: u64| sum.cycles as f64 / timed as f64;
    RegionRow {
        region: key.region,
        phase: key.phase,
        pid: key.pid,
        tid: key.tid,
        comm: sum.comm.filter(|_| by_thread),
        samples: sum.samples,
        loads: sum.loads,
        stores: sum.stores,
        mean_latency_cycles: (sum.timed > 0).then(|| mean(sum.timed)),
        sources: sources
            .map(|(source, samples)| (source.name(), samples))
            .collect(),
    }
}

impl Sink for RegionSummary {
    fn samples(&self, thread: usize, samples: &[Sample]) -> io::Result<()> {
        let thread_sums = &self.0[thread % self.0.len()];
        let mut sums = thread_sums.lock().unwrap_or_else(PoisonError::into_inner);
        for sample in samples {
            let mut key = SampleGroup {
                region: sample.region.clone(),
                phase: sample.phase.clone(),
                pid: sample.task.as_ref().map(|task| task.pid),
                tid: sample.tid,
            };
            if sums.len() >= MAX_ROWS && !sums.contains_key(&key) {
                key = SampleGroup::default();
            }
            let sum = sums.entry(key).or_default();
            if sum.samples == 0 {
                sum.comm = sample.task.as_ref().map(|task| Arc::clone(&task.name));
            }
            sum.samples += 1;
            match sample.class() {
                Some(Class::Store) => sum.stores += 1,
                Some(Class::Load) => sum.loads += 1,
                _ => {}
            }
            if let Some(cycles) = sample.cycles() {
                sum.timed += 1;
                sum.cycles += u64::from(cycles);
            }
            if let Some(source) = sample.source() {
                *sum.sources.entry(source).or_default() += 1;
            }
        }
        Ok(())
    }
}
