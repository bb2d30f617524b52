//! Opening the events of a recording and mapping their buffers.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use perf_event_open_sys::bindings;

use super::{
    Buffers, RecordError, Sampling, Size,
    error::{map_reason, open_reason},
    hold::Holder,
    options::{access_attr, follow_attr, spe_attr},
    ring::{MapError, Ring},
};
use crate::{
    event::{sampling::SampledEvent, spe::SpeEvent},
    session::sampling::{Held, refused},
    sys::{
        perf::{self, Whom},
        samples,
    },
};

/// One buffer, and the events that write into it.
pub(super) struct Buffer {
    pub(super) ring: Ring,
    /// The CPU of a buffer that belongs to a CPU.
    pub(super) cpu: Option<u32>,
    /// The thread of a buffer that belongs to a thread.
    pub(super) tid: Option<u32>,
    /// The events that sample; the first owns the buffer.
    pub(super) spe: Vec<OwnedFd>,
    /// The events that follow processes.
    pub(super) follow: Vec<OwnedFd>,
    /// What leads the groups of events that sample.
    pub(super) leaders: Vec<OwnedFd>,
    /// Events whose frequency the kernel does not hold.
    pub(super) held: Vec<Holder>,
}

impl Buffer {
    /// Its events: those that follow processes first, so that no sample comes before its process.
    pub(super) fn events(&self) -> impl Iterator<Item = &OwnedFd> {
        self.follow.iter().chain(&self.spe)
    }

    /// What did not fit its rings so far.
    pub(super) fn lost(&self) -> Lost {
        let of = |events: &[OwnedFd]| {
            let lost = events.iter().filter_map(|event| perf::lost(event.as_fd()));
            lost.sum()
        };
        let (records, samples) = (of(&self.follow), of(&self.spe));
        match self.ring.is_of_events() {
            true => Lost { records, samples },
            false => Lost {
                records: records + samples,
                samples: 0,
            },
        }
    }

    /// Starts them.
    pub(super) fn enable(&self) -> Result<(), RecordError> {
        { self.events().chain(&self.leaders) }
            .try_for_each(|event| perf::enable(event.as_fd()).map_err(RecordError::Enable))
    }
}

/// Records that did not fit into rings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lost {
    /// About tasks, and of SPE about AUX bytes.
    pub(super) records: u64,
    /// Samples of events.
    pub(super) samples: u64,
}

impl Lost {
    pub(super) const fn and(self, other: Self) -> Self {
        Self {
            records: self.records + other.records,
            samples: self.samples + other.samples,
        }
    }
}

/// How events are opened.
pub(super) struct Opener<'a> {
    pub(super) sampling: &'a Sampling,
    pub(super) buffers: Buffers,
    /// The events start when their task executes a program.
    pub(super) on_exec: bool,
}

impl Opener<'_> {
    /// Makes a buffer for one CPU (`cpu`), or for a thread on any CPU. None where the first thread
    /// has ended.
    pub(super) fn buffer(
        &self,
        event: &SpeEvent,
        whom: Whom<'_>,
        cpu: Option<u32>,
    ) -> Result<Option<Buffer>, RecordError> {
        let Some((spe, follow)) = self.events(event, whom, cpu)? else {
            return Ok(None);
        };
        let (ring, aux) = (self.buffers.ring, self.buffers.aux);
        let bytes = |size: Size| usize::try_from(size.0).unwrap_or(usize::MAX);
        let ring = Ring::map(&spe, bytes(ring), bytes(aux)).map_err(|error| {
            let (what, size, error) = match error {
                MapError::Ring(error) => ("--ring", ring, error),
                MapError::Aux(error) => ("--aux", aux, error),
            };
            RecordError::Map {
                what,
                size,
                reason: map_reason(&error),
            }
        })?;
        perf::set_output(follow.as_fd(), spe.as_fd()).map_err(RecordError::Enable)?;
        let tid = match (whom, cpu) {
            (Whom::Thread(tid), None) => Some(tid),
            (Whom::Thread(_), Some(_)) | (Whom::All | Whom::Own | Whom::Cgroup(_), _) => None,
        };
        Ok(Some(Buffer {
            ring,
            cpu,
            tid,
            spe: vec![spe],
            follow: vec![follow],
            leaders: Vec::new(),
            held: Vec::new(),
        }))
    }

    /// Adds a thread to the buffer of a CPU. False where the thread has ended.
    pub(super) fn join(
        &self,
        buffer: &mut Buffer,
        event: &SpeEvent,
        tid: u32,
    ) -> Result<bool, RecordError> {
        let Some((spe, follow)) = self.events(event, Whom::Thread(tid), buffer.cpu)? else {
            return Ok(false);
        };
        for event in [&spe, &follow] {
            perf::set_output(event.as_fd(), buffer.spe[0].as_fd()).map_err(RecordError::Enable)?;
        }
        buffer.spe.push(spe);
        buffer.follow.push(follow);
        Ok(true)
    }

    /// The SPE event and the one that follows processes.
    fn events(
        &self,
        event: &SpeEvent,
        whom: Whom<'_>,
        cpu: Option<u32>,
    ) -> Result<Option<(OwnedFd, OwnedFd)>, RecordError> {
        let attrs = [
            spe_attr(&event.counter, self.sampling, self.buffers),
            follow_attr(self.buffers),
        ];
        let mut opened = Vec::with_capacity(2);
        for mut attr in attrs {
            if matches!(whom, Whom::Thread(_)) {
                // Children of a task are sampled too in the buffer of a CPU. The kernel does not
                // allow inheritance for buffers of a thread.
                attr.set_inherit(cpu.is_some().into());
                attr.set_enable_on_exec(self.on_exec.into());
            }
            match open(&mut attr, whom, cpu, None) {
                Ok(fd) => opened.push(fd),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
                Err(error) => {
                    return Err(RecordError::Open {
                        pmu: event.pmu.clone(),
                        target: on(whom, cpu),
                        reason: open_reason(&error),
                    });
                }
            }
        }
        let follow = opened.pop();
        Ok(opened.pop().zip(follow))
    }
}

/// Makes the buffer of one CPU for events of memory accesses of all its tasks; `whom` is followed.
/// Kernels before 6.2 take IBS neither for a task nor for a cgroup.
pub(super) fn of_accesses(
    events: &[SampledEvent],
    buffers: Buffers,
    whom: Whom<'_>,
    cpu: u32,
) -> Result<Buffer, RecordError> {
    let refused = |event: &SampledEvent, error: &io::Error| RecordError::Open {
        pmu: event.name.clone(),
        target: on(Whom::All, Some(cpu)),
        reason: refused(error, event),
    };
    let (mut sampling, mut leaders, mut holders) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        if !event.counter.scope.counts_on(cpu) {
            continue;
        }
        let mut group = None;
        if let Some(leader) = &event.leader {
            let mut attr = access_attr(leader, event, None, buffers);
            let fd = open(&mut attr, Whom::All, Some(cpu), None);
            group = Some(fd.map_err(|error| refused(event, &error))?);
        }
        let held = Held::of(event, event.rate);
        let rate = Held::opened_at(held.as_ref(), event.rate);
        let mut attr = access_attr(&event.counter, event, Some(rate), buffers);
        let leader = group.as_ref().map(OwnedFd::as_fd);
        let fd = open(&mut attr, Whom::All, Some(cpu), leader);
        holders.extend(held.map(|held| Holder::new(sampling.len(), held)));
        sampling.push(fd.map_err(|error| refused(event, &error))?);
        leaders.extend(group);
    }
    let mut attr = follow_attr(buffers);
    samples::by_monotonic(&mut attr);
    let follow = open(&mut attr, whom, Some(cpu), None);
    let follow = follow.map_err(|error| RecordError::Open {
        pmu: "the event that follows processes".to_owned(),
        target: on(whom, Some(cpu)),
        reason: open_reason(&error),
    })?;
    let size = usize::try_from(buffers.ring.0).unwrap_or(usize::MAX);
    let ring = Ring::pair(&follow, &sampling[0], size).map_err(|error| RecordError::Map {
        what: "--ring",
        size: buffers.ring,
        reason: map_reason(&error),
    })?;
    for event in &sampling[1..] {
        perf::set_output(event.as_fd(), sampling[0].as_fd()).map_err(RecordError::Enable)?;
    }
    Ok(Buffer {
        ring,
        cpu: Some(cpu),
        tid: None,
        spe: sampling,
        follow: vec![follow],
        leaders,
        held: holders,
    })
}

/// For whom an event is, in words.
fn on(whom: Whom<'_>, cpu: Option<u32>) -> String {
    let on = cpu.map_or(String::new(), |cpu| format!(" on CPU {cpu}"));
    match whom {
        Whom::Thread(tid) => format!("thread {tid}{on}"),
        Whom::Cgroup(_) => format!("the cgroup{on}"),
        Whom::All => format!("all tasks{on}"),
        Whom::Own => format!("this thread{on}"),
    }
}

/// Opens an event whose lost records the kernel counts, if it can (Linux 6.0).
fn open(
    attr: &mut bindings::perf_event_attr,
    whom: Whom<'_>,
    cpu: Option<u32>,
    leader: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    attr.read_format = perf::FORMAT_LOST;
    let opened = perf::open_attr(attr, whom, cpu, leader);
    let too_old = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
    if opened.as_ref().is_err_and(too_old) {
        attr.read_format = 0;
        return perf::open_attr(attr, whom, cpu, leader);
    }
    opened
}
