//! From AUX bytes to samples: what a thread that drains buffers keeps from one buffer to the next.

use std::{
    collections::HashMap,
    io, mem,
    sync::{Arc, Mutex, PoisonError},
};

use probe_common::{
    sample::DataSource,
    spe::{Class, Record, Records, VirtualAddress},
};

use super::{
    Access, AuxPlace, Counts, Sample, Seen, Sink, Who,
    clock::Clock,
    kin::Kin,
    machine::Sources,
    regions::{Book, Viewer},
    subtree::Subtree,
    tasks::Tasks,
};
use crate::{
    machine::cgroup::Hierarchy,
    sys::samples::{Item, Samples, Taken},
};

/// Samples that are handed on together: they fit the CPU's first-level cache.
const BATCH: usize = 128;

/// How a record's thread is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attribution {
    /// Context packets hold thread ids of this process's pid namespace.
    pub(super) by_context: bool,
    /// The AUX bytes of one record are of the task that left the CPU at their end.
    pub(super) by_aux_record: bool,
}

/// What all threads look at while they drain.
pub(super) struct Shared<'a> {
    pub(super) clock: Option<Clock>,
    pub(super) attribution: Attribution,
    pub(super) sources: &'a Sources,
    pub(super) wanted: Wanted<'a>,
    pub(super) tasks: &'a Mutex<Tasks>,
    /// Where samples get their regions and phases from, if they do.
    pub(super) book: Option<&'a Mutex<Book>>,
    pub(super) sink: &'a dyn Sink,
    /// This is the last round.
    pub(super) last: bool,
}

/// Which samples of events are kept: those of all tasks are in the rings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted<'a> {
    /// The processes; none: of all that there are.
    pub(super) kin: Option<&'a Kin>,
    /// The cgroups, with the hierarchy; none: all.
    pub(super) cgroups: Option<(&'a Mutex<Subtree>, &'a Hierarchy)>,
    /// The least latency in cycles, where it is known.
    pub(super) least: u32,
}

/// The bytes of one owner, as far as the kernel has said who that is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owner {
    /// The thread that the buffer belongs to.
    pub(super) only: Option<u32>,
    /// The thread whose stretch of the buffer it is, and when that ended in ns of perf's clock.
    pub(super) stretch: Option<(u32, u64)>,
    pub(super) cpu: Option<u32>,
}

/// Since when, in ns of perf's clock, a thread was whom.
pub(super) type Lives = Arc<[(u64, Arc<Who>)]>;

/// A thread of this program, as far as it decodes.
pub(super) struct Drain {
    thread: usize,
    pub(super) counts: Counts,
    /// The threads that were met in this round; none where nothing is known of one.
    met: HashMap<u32, Option<Lives>>,
    /// The last one of them.
    last: Option<(u32, Option<Lives>)>,
    viewer: Viewer,
    batch: Vec<Sample>,
    bytes: Vec<u8>,
}

impl Drain {
    pub(super) fn new(thread: usize) -> Self {
        Self {
            thread,
            counts: Counts::default(),
            met: HashMap::new(),
            last: None,
            viewer: Viewer::default(),
            batch: Vec::with_capacity(BATCH),
            bytes: Vec::new(),
        }
    }

    /// Takes AUX bytes by `take`, and hands them on as they are.
    pub(super) fn take(
        &mut self,
        place: AuxPlace,
        shared: &Shared<'_>,
        take: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<Vec<u8>> {
        let mut bytes = mem::take(&mut self.bytes);
        bytes.clear();
        take(&mut bytes);
        self.counts.aux_bytes += bytes.len() as u64;
        if !bytes.is_empty() {
            shared.sink.aux(place, &bytes)?;
        }
        Ok(bytes)
    }

    /// Hands on the last samples, and takes the memory back.
    pub(super) fn done(&mut self, bytes: Vec<u8>, shared: &Shared<'_>) -> io::Result<()> {
        self.bytes = bytes;
        self.flush(shared)
    }

    /// Decodes the bytes of one owner; `base` is their offset in the area.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        base: usize,
        owner: Owner,
        shared: &Shared<'_>,
    ) -> io::Result<()> {
        for record in Records::at(bytes, base) {
            match record {
                Ok(record) => {
                    let sample = self.sample(record, owner, shared);
                    self.keep(sample, shared)?;
                }
                Err(damage) => self.counts.bad.add(damage.kind),
            }
        }
        Ok(())
    }

    /// Takes the samples of events by `take`, and hands on those that are wanted.
    pub(super) fn events(
        &mut self,
        take: impl FnOnce(&mut Vec<u8>),
        shared: &Shared<'_>,
    ) -> io::Result<()> {
        let mut bytes = mem::take(&mut self.bytes);
        bytes.clear();
        take(&mut bytes);
        let mut samples = Samples::new(&bytes);
        for item in &mut samples {
            match item {
                Item::Sample(taken) => {
                    if let Some(sample) = self.access(&taken, shared) {
                        self.keep(sample, shared)?;
                    }
                }
                Item::Lost(count) => self.counts.lost_samples += count,
                Item::Dropped(count) => self.counts.dropped_samples += count,
                Item::Throttled => self.counts.throttled += 1,
                Item::Other => {}
            }
        }
        self.counts.damaged_ring_bytes += samples.damaged as u64;
        self.done(bytes, shared)
    }

    fn keep(&mut self, sample: Sample, shared: &Shared<'_>) -> io::Result<()> {
        self.batch.push(sample);
        if self.batch.len() == BATCH {
            self.flush(shared)?;
        }
        Ok(())
    }

    /// A sample of an event; none where it is not wanted.
    fn access(&mut self, taken: &Taken, shared: &Shared<'_>) -> Option<Sample> {
        let Wanted {
            kin,
            cgroups,
            least,
        } = shared.wanted;
        let known = |id: u32| (id != 0 && id != u32::MAX).then_some(id);
        if let Some(kin) = kin {
            self.counts.of_ended += u64::from(taken.pid == u32::MAX);
            if !kin.has(taken.pid, taken.time) {
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
        let cycles = u32::try_from(taken.weight).unwrap_or(u32::MAX);
        let cycles = Some(cycles).filter(|cycles| *cycles > 0);
        let is_short = cycles.is_some_and(|cycles| cycles < least);
        if is_short || !DataSource::of(taken.data_source).is_said() {
            self.counts.left_out += 1;
            return None;
        }
        let address = Some(taken.address).filter(|address| *address > 0);
        let (tid, time) = (known(taken.tid), Some(taken.time));
        // A thread that has ended has no id any more, but its process has while others live.
        let whose = tid.or(known(taken.pid));
        let who = whose.and_then(|tid| self.who(tid, time, shared.tasks));
        let (region, phase) = match (shared.book, whose, &who) {
            (Some(book), Some(tid), Some(who)) => {
                self.viewer.place(book, (who.pid, tid), address, time)
            }
            _ => (None, None),
        };
        let counts = &mut self.counts;
        counts.samples += 1;
        counts.without_thread += u64::from(tid.is_none());
        counts.without_process += u64::from(whose.is_some() && who.is_none());
        Some(Sample {
            time,
            cpu: Some(taken.cpu),
            tid,
            cgroup: cgroup.or_else(|| who.as_ref()?.cgroup.clone()),
            who,
            origin: None,
            region,
            phase,
            seen: Seen::Access(Access {
                pc: taken.pc,
                address,
                cycles,
                word: taken.data_source,
            }),
        })
    }

    fn flush(&mut self, shared: &Shared<'_>) -> io::Result<()> {
        if !self.batch.is_empty() {
            shared.sink.samples(self.thread, &self.batch)?;
            self.batch.clear();
        }
        Ok(())
    }

    fn sample(&mut self, record: Record, owner: Owner, shared: &Shared<'_>) -> Sample {
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
        let who = tid.and_then(|tid| self.who(tid, at, shared.tasks));
        let (region, phase) = match (shared.book, tid, &who) {
            (Some(book), Some(tid), Some(who)) => {
                let address = record.virtual_address().map(VirtualAddress::address);
                self.viewer.place(book, (who.pid, tid), address, time)
            }
            _ => (None, None),
        };
        let counts = &mut self.counts;
        counts.samples += 1;
        counts.invalid += u64::from(Class::of(&record).is_invalid(&record));
        counts.without_time += u64::from(time.is_none());
        counts.without_thread += u64::from(tid.is_none());
        counts.without_process += u64::from(tid.is_some() && who.is_none());
        counts.thread_by_buffer += u64::from(own.is_none() && tid.is_some());
        Sample {
            time,
            cpu: owner.cpu,
            tid,
            cgroup: who.as_ref().and_then(|who| who.cgroup.clone()),
            who,
            origin: owner
                .cpu
                .and_then(|cpu| shared.sources.origin(cpu, &record)),
            region,
            phase,
            seen: Seen::Record(record),
        }
    }

    fn who(&mut self, tid: u32, at: Option<u64>, tasks: &Mutex<Tasks>) -> Option<Arc<Who>> {
        let lives = match &self.last {
            Some((last, lives)) if *last == tid => lives,
            _ => {
                let lives = self.met.entry(tid).or_insert_with(|| {
                    let mut tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
                    tasks.lives(tid)
                });
                &self.last.insert((tid, lives.clone())).1
            }
        };
        lives.as_ref().map(|lives| Arc::clone(at_time(lives, at)))
    }

    /// Ends a round: gives the processes that were met, and forgets them, since names and cgroups
    /// may change.
    pub(super) fn round_ends(&mut self, mut met: impl FnMut(u32)) {
        self.last = None;
        self.viewer.round_ends();
        for (_, lives) in self.met.drain() {
            let lives = lives.iter().flat_map(|lives| lives.iter());
            lives.for_each(|(_, who)| met(who.pid));
        }
    }
}

/// Whom the thread was at a time, or is. Before its first record the first name is the best guess.
pub(super) fn at_time(lives: &[(u64, Arc<Who>)], time: Option<u64>) -> &Arc<Who> {
    let known = match time {
        _ if lives.len() == 1 => lives.first(),
        Some(time) => lives.iter().rev().find(|(since, _)| *since <= time),
        None => lives.last(),
    };
    &known.unwrap_or(&lives[0]).1
}
