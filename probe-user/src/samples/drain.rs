//! Decodes AUX bytes and ring records into samples with their threads, processes and cgroups. A
//! [`Drain`] is the state of one of the threads that do so.

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

/// Number of samples passed to the sink at once: they fit the CPU's first-level cache.
const BATCH: usize = 128;

/// From which sources the thread of an SPE record is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attribution {
    /// Context packets, if they hold thread ids of pmuscope's pid namespace.
    pub(super) by_context: bool,
    /// `PERF_RECORD_AUX`, whose bytes belong to the task that is switched out at their end.
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
    pub(super) is_last_round: bool,
}

/// Which samples of events are kept, since events sample all tasks of a CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SampleFilter<'a> {
    /// The processes to keep; None: all.
    pub(super) process_tree: Option<&'a ProcessTree>,
    /// The cgroups to keep, and the hierarchy that lists new cgroups; None: all.
    pub(super) cgroups: Option<(&'a Mutex<Subtree>, &'a Hierarchy)>,
    /// Minimum latency in cycles; samples of unknown latency are kept.
    pub(super) min_latency: u32,
}

/// Owner of a range of AUX bytes, as far as the kernel reports it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AuxOwner {
    /// The buffer's thread, if the buffer belongs to a thread.
    pub(super) buffer_tid: Option<u32>,
    /// The thread that wrote the bytes, and when the kernel announced them, in ns of perf's clock;
    /// None if no record announced them.
    pub(super) writer: Option<(u32, u64)>,
    pub(super) cpu: Option<u32>,
}

/// The processes and names that a thread id had, in order: each with its start in ns of perf's
/// clock. Never empty.
pub(super) type Incarnations = Arc<[(u64, Arc<TaskInfo>)]>;

/// Decoding state of one draining thread.
pub(super) struct Drain {
    /// Number of the thread, from 0.
    thread: usize,
    pub(super) counts: RecordCounts,
    /// Cache of the threads in this round's samples; None for unknown threads.
    threads: HashMap<u32, Option<Incarnations>>,
    /// Id and incarnations of the last sample's thread.
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

    /// Gets AUX bytes by `copy_into`, passes them unchanged to the sink, and returns them.
    /// [`Self::done`] gets their memory back.
    pub(super) fn take_aux(
        &mut self,
        position: AuxPosition,
        shared: &SharedInputs<'_>,
        copy_into: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<Vec<u8>> {
        let mut bytes = mem::take(&mut self.bytes);
        bytes.clear();
        copy_into(&mut bytes);
        self.counts.aux_bytes += bytes.len() as u64;
        if !bytes.is_empty() {
            shared.sink.aux(position, &bytes)?;
        }
        Ok(bytes)
    }

    /// Passes the remaining samples to the sink, and keeps the memory of `bytes` for the next
    /// bytes.
    pub(super) fn done(&mut self, bytes: Vec<u8>, shared: &SharedInputs<'_>) -> io::Result<()> {
        self.bytes = bytes;
        self.flush(shared)
    }

    /// Decodes the AUX bytes of one owner; `base` is their offset in the AUX area.
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
                    let sample = self.spe_sample(record, owner, shared);
                    self.push(sample, shared)?;
                }
                Err(damage) => self.counts.bad.add(damage.kind),
            }
        }
        Ok(())
    }

    /// Gets ring records of events by `copy_into`, and passes the samples that match the filter to
    /// the sink.
    pub(super) fn decode_events(
        &mut self,
        copy_into: impl FnOnce(&mut Vec<u8>),
        shared: &SharedInputs<'_>,
    ) -> io::Result<()> {
        let mut bytes = mem::take(&mut self.bytes);
        bytes.clear();
        copy_into(&mut bytes);
        let mut records = AccessRecords::new(&bytes);
        for record in &mut records {
            match record {
                AccessRecord::Sample(access) => {
                    if let Some(sample) = self.event_sample(&access, shared) {
                        self.push(sample, shared)?;
                    }
                }
                AccessRecord::Lost(count) => self.counts.lost_samples += count,
                AccessRecord::Dropped(count) => self.counts.dropped_samples += count,
                AccessRecord::Throttled => self.counts.throttled += 1,
                AccessRecord::Other => {}
            }
        }
        self.counts.damaged_ring_bytes += records.damaged as u64;
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
    fn event_sample(&mut self, access: &AccessSample, shared: &SharedInputs<'_>) -> Option<Sample> {
        let SampleFilter {
            process_tree,
            cgroups,
            min_latency,
        } = shared.filter;
        let valid = |id: u32| (id != 0 && id != u32::MAX).then_some(id);
        if let Some(process_tree) = process_tree {
            self.counts.ended_task_samples += u64::from(access.pid == u32::MAX);
            if !process_tree.has(access.pid, access.time) {
                return None;
            }
        }
        let cgroup = match cgroups {
            Some((subtree, hierarchy)) => {
                let mut subtree = subtree.lock().unwrap_or_else(PoisonError::into_inner);
                let path = subtree.path(access.cgroup, || hierarchy.walk().unwrap_or_default());
                self.counts.unknown_cgroup_samples += u64::from(path.is_none());
                Some(path??)
            }
            None => None,
        };
        let weight = u32::try_from(access.weight).unwrap_or(u32::MAX);
        let cycles = Some(weight).filter(|cycles| *cycles > 0);
        let is_short = cycles.is_some_and(|cycles| cycles < min_latency);
        if is_short || !DataSource::from_word(access.data_source).is_access() {
            self.counts.left_out += 1;
            return None;
        }
        let mut sample = Sample {
            time: Some(access.time),
            cpu: Some(access.cpu),
            tid: valid(access.tid),
            task: None,
            cgroup,
            origin: None,
            region: None,
            phase: None,
            data: SampleData::Access(Access {
                pc: access.pc,
                address: Some(access.address).filter(|address| *address > 0),
                cycles,
                word: access.data_source,
            }),
        };
        // An exited thread has no id any more, but its process has one while other threads run.
        let id = sample.tid.or(valid(access.pid));
        self.attribute(&mut sample, id, Some(access.time), shared);
        Some(sample)
    }

    fn flush(&mut self, shared: &SharedInputs<'_>) -> io::Result<()> {
        if !self.batch.is_empty() {
            shared.sink.samples(self.thread, &self.batch)?;
            self.batch.clear();
        }
        Ok(())
    }

    /// Attributes an SPE record; `owner` is the owner of its AUX bytes.
    fn spe_sample(&mut self, record: Record, owner: AuxOwner, shared: &SharedInputs<'_>) -> Sample {
        let ticks = record.timestamp();
        let times = shared.clock.zip(ticks).map(|(clock, at)| clock.times(at));
        let time = times.and_then(|times| times.monotonic);
        let by_context = shared.attribution.by_context;
        let context = record.thread().filter(|_| by_context);
        let writer = owner.writer.filter(|_| shared.attribution.by_aux_record);
        let known_tid = owner.buffer_tid.or(context);
        let tid = known_tid.or(writer.map(|(tid, _)| tid));
        let perf_time = times.map(|times| times.perf);
        let at = perf_time.or(owner.writer.map(|(_, time)| time));
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
        self.counts.thread_by_buffer += u64::from(known_tid.is_none() && tid.is_some());
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

    /// The task of a thread id at `at` (ns of perf's clock), or now; None if it is unknown.
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

/// The incarnation at `time` (ns of perf's clock), or now. For a time before the first incarnation,
/// the first one is the best guess.
pub(super) fn at_time(incarnations: &[(u64, Arc<TaskInfo>)], time: Option<u64>) -> &Arc<TaskInfo> {
    let found = match time {
        _ if incarnations.len() == 1 => incarnations.first(),
        Some(time) => incarnations.iter().rev().find(|(since, _)| *since <= time),
        None => incarnations.last(),
    };
    &found.unwrap_or(&incarnations[0]).1
}
