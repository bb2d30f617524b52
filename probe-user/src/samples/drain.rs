//! Decodes AUX bytes and ring records to attributed samples: the state of one draining thread.

use std::{
    collections::HashMap,
    io, mem,
    sync::{Arc, Mutex, PoisonError},
};

use probe_common::{
    sample::DataSource,
    spe::{Class, Record, Records},
};

use super::{
    Access, AuxPosition, RecordCounts, Sample, SampleData, Sink, TaskInfo,
    clock::RecordClock,
    machine::DataSourceTables,
    process_tree::ProcessTree,
    regions::{RegionIndex, ViewCache},
    subtree::Subtree,
    tasks::Tasks,
};
use crate::{
    machine::cgroup::Hierarchy,
    sys::samples::{AccessRecord, AccessRecords, AccessSample},
};

/// Samples passed on together: they fit the CPU's first-level cache.
const BATCH: usize = 128;

/// Which sources give the thread of an SPE record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attribution {
    /// Context packets, if they hold thread ids of pmuscope's pid namespace.
    pub(super) by_context: bool,
    /// `PERF_RECORD_AUX`: its bytes belong to the task switched out at their end.
    pub(super) by_aux_record: bool,
}

/// Inputs that all draining threads share.
pub(super) struct SharedInputs<'a> {
    pub(super) clock: Option<RecordClock>,
    pub(super) attribution: Attribution,
    pub(super) sources: &'a DataSourceTables,
    pub(super) filter: SampleFilter<'a>,
    pub(super) tasks: &'a Mutex<Tasks>,
    /// Regions and phases; None without `--regions`.
    pub(super) region_index: Option<&'a Mutex<RegionIndex>>,
    pub(super) sink: &'a dyn Sink,
    /// Whether this is the last round.
    pub(super) last: bool,
}

/// Which samples of events to keep: the events sample all tasks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SampleFilter<'a> {
    /// The processes; None: all.
    pub(super) process_tree: Option<&'a ProcessTree>,
    /// The cgroups, with the hierarchy; None: all.
    pub(super) cgroups: Option<(&'a Mutex<Subtree>, &'a Hierarchy)>,
    /// Minimum latency in cycles; samples of unknown latency are kept.
    pub(super) min_latency: u32,
}

/// Owner of some AUX bytes, as far as the kernel reports it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AuxOwner {
    /// The thread of a buffer for one thread.
    pub(super) only: Option<u32>,
    /// The thread that wrote this stretch of the buffer, and the end of the stretch in ns of perf's
    /// clock.
    pub(super) stretch: Option<(u32, u64)>,
    pub(super) cpu: Option<u32>,
}

/// Incarnations of a thread id, each with its begin in ns of perf's clock.
pub(super) type Incarnations = Arc<[(u64, Arc<TaskInfo>)]>;

/// Decoding state of one draining thread.
pub(super) struct Drain {
    thread: usize,
    pub(super) counts: RecordCounts,
    /// Cache of the threads in this round's samples; None for unknown threads.
    threads: HashMap<u32, Option<Incarnations>>,
    /// The thread of the last sample.
    last: Option<(u32, Option<Incarnations>)>,
    views: ViewCache,
    batch: Vec<Sample>,
    bytes: Vec<u8>,
}

impl Drain {
    pub(super) fn new(thread: usize) -> Self {
        Self {
            thread,
            counts: RecordCounts::default(),
            threads: HashMap::new(),
            last: None,
            views: ViewCache::default(),
            batch: Vec::with_capacity(BATCH),
            bytes: Vec::new(),
        }
    }

    /// Takes AUX bytes by `take`, and passes them to the sink as they are.
    pub(super) fn take(
        &mut self,
        position: AuxPosition,
        shared: &SharedInputs<'_>,
        take: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<Vec<u8>> {
        let mut bytes = mem::take(&mut self.bytes);
        bytes.clear();
        take(&mut bytes);
        self.counts.aux_bytes += bytes.len() as u64;
        if !bytes.is_empty() {
            shared.sink.aux(position, &bytes)?;
        }
        Ok(bytes)
    }

    /// Passes the last samples to the sink, and keeps the memory of `bytes`.
    pub(super) fn done(&mut self, bytes: Vec<u8>, shared: &SharedInputs<'_>) -> io::Result<()> {
        self.bytes = bytes;
        self.flush(shared)
    }

    /// Decodes the bytes of one owner; `base` is their offset in the AUX area.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        base: usize,
        owner: AuxOwner,
        shared: &SharedInputs<'_>,
    ) -> io::Result<()> {
        for record in Records::at(bytes, base) {
            match record {
                Ok(record) => {
                    let sample = self.sample(record, owner, shared);
                    self.push(sample, shared)?;
                }
                Err(damage) => self.counts.bad.add(damage.kind),
            }
        }
        Ok(())
    }

    /// Takes ring records with samples of events by `take`, and passes those that match the filter
    /// to the sink.
    pub(super) fn events(
        &mut self,
        take: impl FnOnce(&mut Vec<u8>),
        shared: &SharedInputs<'_>,
    ) -> io::Result<()> {
        let mut bytes = mem::take(&mut self.bytes);
        bytes.clear();
        take(&mut bytes);
        let mut samples = AccessRecords::new(&bytes);
        for item in &mut samples {
            match item {
                AccessRecord::Sample(taken) => {
                    if let Some(sample) = self.access(&taken, shared) {
                        self.push(sample, shared)?;
                    }
                }
                AccessRecord::Lost(count) => self.counts.lost_samples += count,
                AccessRecord::Dropped(count) => self.counts.dropped_samples += count,
                AccessRecord::Throttled => self.counts.throttled += 1,
                AccessRecord::Other => {}
            }
        }
        self.counts.damaged_ring_bytes += samples.damaged as u64;
        self.done(bytes, shared)
    }

    fn push(&mut self, sample: Sample, shared: &SharedInputs<'_>) -> io::Result<()> {
        self.batch.push(sample);
        if self.batch.len() == BATCH {
            self.flush(shared)?;
        }
        Ok(())
    }

    /// Attributes a sample of an event; None if the filter drops it.
    fn access(&mut self, taken: &AccessSample, shared: &SharedInputs<'_>) -> Option<Sample> {
        let SampleFilter {
            process_tree,
            cgroups,
            min_latency,
        } = shared.filter;
        let known = |id: u32| (id != 0 && id != u32::MAX).then_some(id);
        if let Some(process_tree) = process_tree {
            self.counts.of_ended += u64::from(taken.pid == u32::MAX);
            if !process_tree.has(taken.pid, taken.time) {
                return None;
            }
        }
        let cgroup = match cgroups {
            Some((subtree, hierarchy)) => {
                let mut subtree = subtree.lock().unwrap_or_else(PoisonError::into_inner);
                let path = subtree.path(taken.cgroup, || hierarchy.walk().unwrap_or_default());
                self.counts.of_unknown_cgroups += u64::from(path.is_none());
                Some(path??)
            }
            None => None,
        };
        let weight = u32::try_from(taken.weight).unwrap_or(u32::MAX);
        let cycles = Some(weight).filter(|cycles| *cycles > 0);
        let is_short = cycles.is_some_and(|cycles| cycles < min_latency);
        if is_short || !DataSource::from_word(taken.data_source).is_access() {
            self.counts.left_out += 1;
            return None;
        }
        let mut sample = Sample {
            time: Some(taken.time),
            cpu: Some(taken.cpu),
            tid: known(taken.tid),
            task: None,
            cgroup,
            origin: None,
            region: None,
            phase: None,
            data: SampleData::Access(Access {
                pc: taken.pc,
                address: Some(taken.address).filter(|address| *address > 0),
                cycles,
                word: taken.data_source,
            }),
        };
        // An exited thread has no id any more; its process has one while other threads live.
        let id = sample.tid.or(known(taken.pid));
        self.attribute(&mut sample, id, Some(taken.time), shared);
        Some(sample)
    }

    fn flush(&mut self, shared: &SharedInputs<'_>) -> io::Result<()> {
        if !self.batch.is_empty() {
            shared.sink.samples(self.thread, &self.batch)?;
            self.batch.clear();
        }
        Ok(())
    }

    /// Attributes an SPE record of AUX bytes with this owner.
    fn sample(&mut self, record: Record, owner: AuxOwner, shared: &SharedInputs<'_>) -> Sample {
        let ticks = record.timestamp();
        let times = shared.clock.zip(ticks).map(|(clock, at)| clock.times(at));
        let time = times.and_then(|times| times.monotonic);
        let by_context = shared.attribution.by_context;
        let context = record.thread().filter(|_| by_context);
        let stretch = owner.stretch.filter(|_| shared.attribution.by_aux_record);
        let own = owner.only.or(context);
        let tid = own.or(stretch.map(|(tid, _)| tid));
        let perf_time = times.map(|times| times.perf);
        let at = perf_time.or(owner.stretch.map(|(_, time)| time));
        let mut sample = Sample {
            time,
            cpu: owner.cpu,
            tid,
            task: None,
            cgroup: None,
            origin: owner
                .cpu
                .and_then(|cpu| shared.sources.origin(cpu, &record)),
            region: None,
            phase: None,
            data: SampleData::Record(record),
        };
        self.counts.invalid += u64::from(Class::from_record(&record).is_invalid(&record));
        self.counts.thread_by_buffer += u64::from(own.is_none() && tid.is_some());
        self.attribute(&mut sample, tid, at, shared);
        sample
    }

    /// Adds the task of thread `id` at `at` (ns of perf's clock), the region and the phase, and
    /// counts the sample.
    fn attribute(
        &mut self,
        sample: &mut Sample,
        id: Option<u32>,
        at: Option<u64>,
        shared: &SharedInputs<'_>,
    ) {
        sample.task = id.and_then(|tid| self.task(tid, at, shared.tasks));
        if let (Some(index), Some(tid), Some(task)) = (shared.region_index, id, &sample.task) {
            let (thread, address) = ((task.pid, tid), sample.address());
            (sample.region, sample.phase) = self.views.lookup(index, thread, address, sample.time);
        }
        if sample.cgroup.is_none() {
            sample.cgroup = sample.task.as_ref().and_then(|task| task.cgroup.clone());
        }
        let counts = &mut self.counts;
        counts.samples += 1;
        counts.without_time += u64::from(sample.time.is_none());
        counts.without_thread += u64::from(sample.tid.is_none());
        counts.without_process += u64::from(id.is_some() && sample.task.is_none());
    }

    fn task(&mut self, tid: u32, at: Option<u64>, tasks: &Mutex<Tasks>) -> Option<Arc<TaskInfo>> {
        let incarnations = match &self.last {
            Some((last, incarnations)) if *last == tid => incarnations,
            _ => {
                let incarnations = self.threads.entry(tid).or_insert_with(|| {
                    let mut tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
                    tasks.incarnations(tid)
                });
                &self.last.insert((tid, incarnations.clone())).1
            }
        };
        incarnations
            .as_ref()
            .map(|incarnations| Arc::clone(at_time(incarnations, at)))
    }

    /// Ends a round: passes each sampled process to `on_process`, and clears the caches, since
    /// names and cgroups may change.
    pub(super) fn end_round(&mut self, mut on_process: impl FnMut(u32)) {
        self.last = None;
        self.views.end_round();
        for (_, incarnations) in self.threads.drain() {
            let incarnations = incarnations
                .iter()
                .flat_map(|incarnations| incarnations.iter());
            incarnations.for_each(|(_, task)| on_process(task.pid));
        }
    }
}

/// The incarnation at a time, or now. For times before the first record, the first one is the best
/// guess.
pub(super) fn at_time(incarnations: &[(u64, Arc<TaskInfo>)], time: Option<u64>) -> &Arc<TaskInfo> {
    let known = match time {
        _ if incarnations.len() == 1 => incarnations.first(),
        Some(time) => incarnations.iter().rev().find(|(since, _)| *since <= time),
        None => incarnations.last(),
    };
    &known.unwrap_or(&incarnations[0]).1
}
