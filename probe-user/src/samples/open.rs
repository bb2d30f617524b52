//! Opens the events of a recording and maps their buffers.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use perf_event_open_sys::bindings;

use super::{
    Buffers, RecordError, Size, SpeOptions,
    error::{map_reason, open_reason},
    options::{access_attr, follow_attr, spe_attr},
    period_control::PeriodControl,
    ring::{BufferRings, MapError},
};
use crate::{
    event::{sampling::SampledEvent, spe::SpeEvent},
    session::sampling::{FixedPeriod, refused},
    sys::{
        perf::{self, TaskScope},
        samples,
    },
};

/// One buffer, and the events that write into it.
pub(super) struct Buffer {
    pub(super) ring: BufferRings,
    /// The buffer's CPU; None if the buffer belongs to a thread.
    pub(super) cpu: Option<u32>,
    /// The buffer's thread; None if the buffer belongs to a CPU.
    pub(super) tid: Option<u32>,
    /// The sampling events; the first owns the buffer.
    pub(super) sampling_events: Vec<OwnedFd>,
    /// The events that follow processes.
    pub(super) follow: Vec<OwnedFd>,
    /// Group leaders of the sampling events.
    pub(super) leaders: Vec<OwnedFd>,
    /// Period controls, for events whose period the kernel does not adapt to their frequency.
    pub(super) period_controls: Vec<PeriodControl>,
}

impl Buffer {
    /// All events. Those that follow processes come first, so that a process is known before its
    /// samples.
    pub(super) fn events(&self) -> impl Iterator<Item = &OwnedFd> {
        self.follow.iter().chain(&self.sampling_events)
    }

    /// Counts the records and samples so far that did not fit the rings.
    pub(super) fn lost(&self) -> LostRecords {
        let sum = |events: &[OwnedFd]| {
            let lost = events.iter().filter_map(|event| perf::lost(event.as_fd()));
            lost.sum()
        };
        let (records, samples) = (sum(&self.follow), sum(&self.sampling_events));
        match self.ring.has_sample_ring() {
            true => LostRecords { records, samples },
            false => LostRecords {
                records: records + samples,
                samples: 0,
            },
        }
    }

    /// Enables all events.
    pub(super) fn enable(&self) -> Result<(), RecordError> {
        { self.events().chain(&self.leaders) }
            .try_for_each(|event| perf::enable(event.as_fd()).map_err(RecordError::Enable))
    }
}

/// Counts of records that did not fit rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LostRecords {
    /// Number of records about tasks, and with SPE about AUX bytes.
    pub(super) records: u64,
    /// Number of samples of events.
    pub(super) samples: u64,
}

impl LostRecords {
    /// Difference from an earlier count, at least 0.
    pub(super) const fn since(self, earlier: Self) -> Self {
        Self {
            records: self.records.saturating_sub(earlier.records),
            samples: self.samples.saturating_sub(earlier.samples),
        }
    }
}

/// Opens SPE buffers and their events with these options.
pub(super) struct Opener<'a> {
    pub(super) sampling: &'a SpeOptions,
    pub(super) buffers: Buffers,
    /// Whether events start at the exec of their task.
    pub(super) on_exec: bool,
}

impl Opener<'_> {
    /// Opens a buffer for the CPU `cpu`, or for a thread on any CPU if `cpu` is None. None if the
    /// thread has exited.
    pub(super) fn buffer(
        &self,
        event: &SpeEvent,
        scope: TaskScope<'_>,
        cpu: Option<u32>,
    ) -> Result<Option<Buffer>, RecordError> {
        let Some((spe, follow)) = self.open_events(event, scope, cpu)? else {
            return Ok(None);
        };
        let (ring, aux) = (self.buffers.ring, self.buffers.aux);
        let bytes = |size: Size| usize::try_from(size.0).unwrap_or(usize::MAX);
        let ring = BufferRings::map(&spe, bytes(ring), bytes(aux)).map_err(|error| {
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
        let tid = match (scope, cpu) {
            (TaskScope::Thread(tid), None) => Some(tid),
            (TaskScope::Thread(_), Some(_))
            | (TaskScope::All | TaskScope::CurrentThread | TaskScope::Cgroup(_), _) => None,
        };
        Ok(Some(Buffer {
            ring,
            cpu,
            tid,
            sampling_events: vec![spe],
            follow: vec![follow],
            leaders: Vec::new(),
            period_controls: Vec::new(),
        }))
    }

    /// Adds a thread to the buffer of a CPU. False if the thread has exited.
    pub(super) fn add_thread(
        &self,
        buffer: &mut Buffer,
        event: &SpeEvent,
        tid: u32,
    ) -> Result<bool, RecordError> {
        let Some((spe, follow)) = self.open_events(event, TaskScope::Thread(tid), buffer.cpu)?
        else {
            return Ok(false);
        };
        for event in [&spe, &follow] {
            perf::set_output(event.as_fd(), buffer.sampling_events[0].as_fd())
                .map_err(RecordError::Enable)?;
        }
        buffer.sampling_events.push(spe);
        buffer.follow.push(follow);
        Ok(true)
    }

    /// Opens the SPE event and the event that follows processes; None if the thread has exited.
    fn open_events(
        &self,
        event: &SpeEvent,
        scope: TaskScope<'_>,
        cpu: Option<u32>,
    ) -> Result<Option<(OwnedFd, OwnedFd)>, RecordError> {
        let attrs = [
            spe_attr(&event.counter, self.sampling, self.buffers),
            follow_attr(self.buffers),
        ];
        let mut opened = Vec::with_capacity(2);
        for mut attr in attrs {
            if matches!(scope, TaskScope::Thread(_)) {
                // Children of a thread inherit its events only if these write into a CPU's buffer:
                // the kernel allows no inheritance for a thread's buffer.
                attr.set_inherit(cpu.is_some().into());
                attr.set_enable_on_exec(self.on_exec.into());
            }
            match open(&mut attr, scope, cpu, None) {
                Ok(fd) => opened.push(fd),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
                Err(error) => {
                    return Err(RecordError::Open {
                        pmu: event.pmu.clone(),
                        target: describe_target(scope, cpu),
                        reason: open_reason(&error),
                    });
                }
            }
        }
        let follow = opened.pop();
        Ok(opened.pop().zip(follow))
    }
}

/// Opens the buffer of one CPU. Its memory-access events sample all tasks of the CPU, since kernels
/// before 6.2 support IBS neither per task nor per cgroup; `scope` selects the tasks to follow.
pub(super) fn access_buffer(
    events: &[SampledEvent],
    buffers: Buffers,
    scope: TaskScope<'_>,
    cpu: u32,
) -> Result<Buffer, RecordError> {
    let open_error = |event: &SampledEvent, error: &io::Error| RecordError::Open {
        pmu: event.name.clone(),
        target: describe_target(TaskScope::All, Some(cpu)),
        reason: refused(error, event),
    };
    let (mut sampling, mut leaders, mut period_controls) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        if !event.counter.scope.counts_on(cpu) {
            continue;
        }
        let mut group = None;
        if let Some(leader) = &event.leader {
            let mut attr = access_attr(leader, event, None, buffers);
            let fd = open(&mut attr, TaskScope::All, Some(cpu), None);
            group = Some(fd.map_err(|error| open_error(event, &error))?);
        }
        let fixed_period = FixedPeriod::for_event(event, event.rate);
        let rate = FixedPeriod::open_rate(fixed_period.as_ref(), event.rate);
        let mut attr = access_attr(&event.counter, event, Some(rate), buffers);
        let leader = group.as_ref().map(OwnedFd::as_fd);
        let fd = open(&mut attr, TaskScope::All, Some(cpu), leader);
        period_controls.extend(
            fixed_period.map(|fixed_period| PeriodControl::new(sampling.len(), fixed_period)),
        );
        sampling.push(fd.map_err(|error| open_error(event, &error))?);
        leaders.extend(group);
    }
    let mut attr = follow_attr(buffers);
    samples::use_monotonic_clock(&mut attr);
    let follow = open(&mut attr, scope, Some(cpu), None).map_err(|error| RecordError::Open {
        pmu: "the event that follows processes".to_owned(),
        target: describe_target(scope, Some(cpu)),
        reason: open_reason(&error),
    })?;
    let size = usize::try_from(buffers.ring.0).unwrap_or(usize::MAX);
    let ring =
        BufferRings::pair(&follow, &sampling[0], size).map_err(|error| RecordError::Map {
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
        sampling_events: sampling,
        follow: vec![follow],
        leaders,
        period_controls,
    })
}

/// The target of an event, as text for messages.
fn describe_target(scope: TaskScope<'_>, cpu: Option<u32>) -> String {
    let on = cpu.map_or(String::new(), |cpu| format!(" on CPU {cpu}"));
    match scope {
        TaskScope::Thread(tid) => format!("thread {tid}{on}"),
        TaskScope::Cgroup(_) => format!("the cgroup{on}"),
        TaskScope::All => format!("all tasks{on}"),
        TaskScope::CurrentThread => format!("this thread{on}"),
    }
}

/// Opens an event with `PERF_FORMAT_LOST`, if the kernel supports it (Linux 6.0).
fn open(
    attr: &mut bindings::perf_event_attr,
    scope: TaskScope<'_>,
    cpu: Option<u32>,
    leader: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    attr.read_format = perf::FORMAT_LOST;
    let opened = perf::open_attr(attr, scope, cpu, leader);
    let is_unsupported = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
    if opened.as_ref().is_err_and(is_unsupported) {
        attr.read_format = 0;
        return perf::open_attr(attr, scope, cpu, leader);
    }
    opened
}

#[cfg(test)]
mod tests {
    use super::LostRecords;

    /// A count smaller than the earlier one gives 0: kernels before 6.0, and events of CPUs that
    /// went offline, report none.
    #[test]
    fn losses_that_records_reported_are_not_counted_again() {
        let lost = |records, samples| LostRecords { records, samples };
        assert_eq!(lost(5, 12).since(lost(3, 12)), lost(2, 0));
        assert_eq!(lost(0, 4).since(lost(3, 1)), lost(0, 3));
    }
}
