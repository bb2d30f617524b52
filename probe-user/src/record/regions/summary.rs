//! The samples of a recording added up by region, phase and thread.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
};

use probe_common::spe::{Class, Source};
use serde::Serialize;

use crate::record::{Sample, Sink};

/// Rows of one decoding thread; what has no room is in a row without region, phase and thread.
const ROWS: usize = 65_536;

/// Whose samples they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    region: Option<Arc<str>>,
    phase: Option<Arc<str>>,
    pid: Option<u32>,
    tid: Option<u32>,
}

/// What they add up to.
#[derive(Clone, Debug, Default)]
struct Sum {
    comm: Option<Arc<str>>,
    samples: u64,
    loads: u64,
    stores: u64,
    /// Those with a total latency.
    timed: u64,
    cycles: u64,
    sources: BTreeMap<Source, u64>,
}

impl Sum {
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

/// Samples of a region, in a phase, of a thread. What is none was not asked for or is not known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// A tag, or what memory it is.
    pub region: Option<Arc<str>>,
    /// The phases, with a slash between.
    pub phase: Option<Arc<str>>,
    /// The process.
    pub pid: Option<u32>,
    /// The thread.
    pub tid: Option<u32>,
    /// Its name.
    pub comm: Option<Arc<str>>,
    /// Samples, of loads, of stores, and others.
    pub samples: u64,
    /// Samples of loads.
    pub loads: u64,
    /// Samples of stores.
    pub stores: u64,
    /// Mean latency in cycles, see [`Sample::cycles`]; none where no sample has one.
    pub mean_latency_cycles: Option<f64>,
    /// Samples of loads by where their data came from; of cores with a table.
    pub sources: BTreeMap<&'static str, u64>,
}

/// By what samples are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Region.
    Region,
    /// Phase.
    Phase,
    /// Thread.
    Thread,
    /// All three.
    All,
}

/// Adds up samples, from all threads that decode.
#[derive(Debug)]
pub struct Summary(Vec<Mutex<HashMap<Key, Sum>>>);

impl Summary {
    /// An empty one, for that many threads.
    #[must_use]
    pub fn new(threads: NonZeroUsize) -> Self {
        Self((0..threads.get()).map(|_| Mutex::default()).collect())
    }

    /// The sums, those of most samples first.
    #[must_use]
    pub fn rows(&self, by: By) -> Vec<Row> {
        let mut sums: BTreeMap<Key, Sum> = BTreeMap::new();
        for thread in &self.0 {
            let thread = thread.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, sum) in &*thread {
                let mut key = key.clone();
                if !matches!(by, By::Region | By::All) {
                    key.region = None;
                }
                if !matches!(by, By::Phase | By::All) {
                    key.phase = None;
                }
                if !matches!(by, By::Thread | By::All) {
                    (key.pid, key.tid) = (None, None);
                }
                sums.entry(key).or_default().add(sum);
            }
        }
        let named = matches!(by, By::Thread | By::All);
        let mut rows: Vec<Row> = { sums.into_iter() }
            .map(|(key, sum)| row(key, sum, named))
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.samples));
        rows
    }
}

fn row(key: Key, sum: Sum, named: bool) -> Row {
    let sources = sum.sources.into_iter();
    #[expect(clippy::cast_precision_loss, reason = "cycles of samples, below 2^53")]
    let mean = |timed: u64| sum.cycles as f64 / timed as f64;
    Row {
        region: key.region,
        phase: key.phase,
        pid: key.pid,
        tid: key.tid,
        comm: sum.comm.filter(|_| named),
        samples: sum.samples,
        loads: sum.loads,
        stores: sum.stores,
        mean_latency_cycles: (sum.timed > 0).then(|| mean(sum.timed)),
        sources: sources
            .map(|(source, samples)| (source.name(), samples))
            .collect(),
    }
}

impl Sink for Summary {
    fn samples(&self, thread: usize, samples: &[Sample]) -> io::Result<()> {
        let sums = &self.0[thread % self.0.len()];
        let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
        for sample in samples {
            let mut key = Key {
                region: sample.region.clone(),
                phase: sample.phase.clone(),
                pid: sample.who.as_ref().map(|who| who.pid),
                tid: sample.tid,
            };
            if sums.len() >= ROWS && !sums.contains_key(&key) {
                key = Key::default();
            }
            let sum = sums.entry(key).or_default();
            if sum.samples == 0 {
                sum.comm = sample.who.as_ref().map(|who| Arc::clone(&who.name));
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
