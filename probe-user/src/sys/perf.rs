//! `perf_event_open(2)`, and the operations on its descriptors.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
    ptr,
};

use perf_event_open_sys::{self as raw, bindings};
use serde::{Deserialize, Serialize};

use super::roots::Roots;

/// The `exclude_*` bits of `perf_event_attr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exclude {
    /// `exclude_user`
    pub user: bool,
    /// `exclude_kernel`
    pub kernel: bool,
    /// `exclude_hv`
    pub hv: bool,
}

/// `PERF_TYPE_RAW` of `linux/perf_event.h`, which is also the type of x86's core PMU.
pub(crate) const TYPE_RAW: u32 = bindings::PERF_TYPE_RAW;

/// An event of a PMU, in the terms of `perf_event_attr`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attr {
    pub(crate) type_: u32,
    /// `config` to `config4`
    pub(crate) config: [u64; 5],
}

/// Size of `perf_event_attr` in this build.
#[expect(clippy::cast_possible_truncation, reason = "some hundred bytes")]
pub(crate) const ATTR_SIZE: u32 = size_of::<bindings::perf_event_attr>() as u32;

/// The tasks that an event counts.
#[derive(Clone, Copy)]
pub(crate) enum TaskScope<'a> {
    /// All tasks that run on a CPU.
    All,
    /// The calling thread.
    CurrentThread,
    /// A thread.
    Thread(u32),
    /// The tasks of a cgroup on a CPU; the descriptor is that of the cgroup's directory.
    Cgroup(BorrowedFd<'a>),
}

/// A reading of a counter, or the growth between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CounterReading {
    /// The count, not scaled.
    pub(crate) count: u64,
    /// Nanoseconds for which the event was enabled.
    pub(crate) enabled: u64,
    /// Nanoseconds for which the event was on the PMU.
    pub(crate) running: u64,
}

impl CounterReading {
    /// The growth since an earlier reading, at least 0.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            enabled: self.enabled.saturating_sub(earlier.enabled),
            running: self.running.saturating_sub(earlier.running),
        }
    }

    pub(crate) const fn add(&mut self, other: Self) {
        self.count += other.count;
        self.enabled += other.enabled;
        self.running += other.running;
    }

    /// Factor by which the count is scaled if the event was multiplexed on the PMU.
    #[expect(
        clippy::cast_precision_loss,
        reason = "nanoseconds between two readings"
    )]
    pub(crate) fn scale(self) -> f64 {
        match self.running {
            0 => 1.0,
            running => self.enabled.max(running) as f64 / running as f64,
        }
    }
}

/// Opens a counter on one CPU, in the group of `leader` if given. A group counts from [`enable`]
/// on: siblings that join a running leader of another software PMU (task-clock) are never scheduled
/// in (seen on 6.18).
pub(crate) fn open(
    event: &Attr,
    exclude: Exclude,
    cpu: u32,
    leader: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let mut attr = attr(event);
    set_exclude(&mut attr, exclude);
    if leader.is_none() {
        set_leader(&mut attr);
    }
    open_attr(&mut attr, TaskScope::All, Some(cpu), leader)
}

/// Opens a counter of the tasks of a cgroup on one CPU.
pub(crate) fn open_in_cgroup(
    event: &Attr,
    directory: BorrowedFd<'_>,
    cpu: u32,
) -> io::Result<OwnedFd> {
    open_attr(
        &mut attr(event),
        TaskScope::Cgroup(directory),
        Some(cpu),
        None,
    )
}

/// Opens a counter of a process before its exec, and of its descendants, on all CPUs. It counts
/// from the exec on.
pub(crate) fn open_command(event: &Attr, pid: u32) -> io::Result<OwnedFd> {
    let mut attr = attr(event);
    attr.set_disabled(1);
    attr.set_inherit(1);
    attr.set_enable_on_exec(1);
    open_attr(&mut attr, TaskScope::Thread(pid), None, None)
}

/// Opens the leader of a group that [`read_group`] reads as a whole; its siblings are opened by
/// [`open`].
pub(crate) fn open_leader(event: &Attr, exclude: Exclude, cpu: u32) -> io::Result<OwnedFd> {
    let mut attr = attr(event);
    set_exclude(&mut attr, exclude);
    set_leader(&mut attr);
    attr.read_format |= u64::from(bindings::PERF_FORMAT_GROUP);
    open_attr(&mut attr, TaskScope::All, Some(cpu), None)
}

/// Opens a counter of this thread's user mode on one CPU, in the group of `leader` if given. The
/// group is pinned: from [`enable`] on it counts at once, or never if other events hold the
/// counters. [`read_group`] reads it.
pub(crate) fn open_own(
    event: &Attr,
    cpu: u32,
    leader: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let mut attr = attr(event);
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    if leader.is_none() {
        set_leader(&mut attr);
        attr.set_pinned(1);
        attr.read_format |= u64::from(bindings::PERF_FORMAT_GROUP);
    }
    open_attr(&mut attr, TaskScope::CurrentThread, Some(cpu), leader)
}

/// Opens a disabled event that samples all tasks of one CPU every `period` events.
pub(crate) fn open_sampling(
    event: &Attr,
    exclude: Exclude,
    cpu: u32,
    period: u64,
) -> io::Result<OwnedFd> {
    let mut attr = attr(event);
    attr.__bindgen_anon_1.sample_period = period;
    attr.set_exclude_user(exclude.user.into());
    attr.set_exclude_kernel(exclude.kernel.into());
    attr.set_disabled(1);
    open_attr(&mut attr, TaskScope::All, Some(cpu), None)
}

/// How an event is sampled for a program, and the fields of its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SamplingOptions {
    /// Events from one sample to the next, or samples per second.
    pub(crate) rate: u64,
    /// Whether `rate` is samples per second.
    pub(crate) by_frequency: bool,
    /// `precise_ip`
    pub(crate) precise: u8,
    /// Whether to ask for a weight and a data source.
    pub(crate) weighed: bool,
}

/// Opens a disabled event that samples all tasks of one CPU for a program. In the group of
/// `leader`, if given, it is enabled with its leader.
///
/// `wakeup_events` is 1, though nothing is woken: without it Intel's driver delivers only one
/// record of a full PEBS buffer. `PERF_SAMPLE_PERIOD` is not among the fields: with it software
/// events would sample every event, whatever the period (`perf_swevent_event`).
pub(crate) fn open_overflowing(
    event: &Attr,
    exclude: Exclude,
    cpu: u32,
    options: SamplingOptions,
    leader: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let mut attr = attr(event);
    attr.__bindgen_anon_1.sample_period = options.rate;
    attr.set_freq(options.by_frequency.into());
    attr.set_precise_ip(options.precise.into());
    attr.sample_type = u64::from(bindings::PERF_SAMPLE_IP | bindings::PERF_SAMPLE_ADDR);
    if options.weighed {
        let fields = bindings::PERF_SAMPLE_WEIGHT | bindings::PERF_SAMPLE_DATA_SRC;
        attr.sample_type |= u64::from(fields);
    }
    attr.__bindgen_anon_2.wakeup_events = 1;
    set_exclude(&mut attr, exclude);
    attr.set_disabled(leader.is_none().into());
    open_attr(&mut attr, TaskScope::All, Some(cpu), leader)
}

/// `kernel.perf_event_paranoid`; None where it cannot be read.
pub(crate) fn paranoid() -> Option<String> {
    setting("perf_event_paranoid")
}

/// `kernel.perf_event_max_sample_rate`, in samples per second of a CPU; None where it cannot be
/// read.
#[must_use]
pub fn max_sample_rate() -> Option<u64> {
    setting("perf_event_max_sample_rate")?.parse().ok()
}

fn setting(name: &str) -> Option<String> {
    let path = Roots::default().proc.join("sys/kernel").join(name);
    let value = std::fs::read_to_string(path).ok()?;
    Some(value.trim().to_owned())
}

/// Starts an event, or a group by its leader.
pub(crate) fn enable(event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is a perf event's; the argument is plain.
    done(unsafe { raw::ioctls::ENABLE(event.as_raw_fd(), 0) })
}

/// Stops an event, or a group by its leader. Counts stay, and buffered samples are delivered.
pub(crate) fn disable(event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is a perf event's; the argument is plain.
    done(unsafe { raw::ioctls::DISABLE(event.as_raw_fd(), 0) })
}

/// The kernel's id of an event, which its records carry.
pub(crate) fn id(event: BorrowedFd<'_>) -> io::Result<u64> {
    let mut id = 0;
    // SAFETY: the descriptor is a perf event's; the kernel writes one word.
    done(unsafe { raw::ioctls::ID(event.as_raw_fd(), &raw mut id) })?;
    Ok(id)
}

/// Changes the period of an event. A running event drops its current period.
pub(crate) fn set_period(event: BorrowedFd<'_>, period: u64) -> io::Result<()> {
    // The argument is the address of the period.
    let address = ptr::from_ref(&period) as u64;
    // SAFETY: the descriptor is a perf event's; the kernel reads one word at the address.
    done(unsafe { raw::ioctls::PERIOD(event.as_raw_fd(), address) })
}

/// Redirects the records of `event` into the buffer of `owner`.
pub(crate) fn set_output(event: BorrowedFd<'_>, owner: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are perf events'.
    done(unsafe { raw::ioctls::SET_OUTPUT(event.as_raw_fd(), owner.as_raw_fd()) })
}

/// Converts the result of a system call that returns no value.
fn done(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Opens the software event that fires when a CPU switches between tasks of two cgroups (kernel
/// 5.13).
pub(crate) fn open_cgroup_switches(cpu: u32) -> io::Result<OwnedFd> {
    let event = Attr {
        type_: bindings::PERF_TYPE_SOFTWARE,
        config: [bindings::PERF_COUNT_SW_CGROUP_SWITCHES.into(), 0, 0, 0, 0],
    };
    open_attr(&mut attr(&event), TaskScope::All, Some(cpu), None)
}

/// Reads a counter; for another CPU's counter the kernel interrupts that CPU.
pub(crate) fn read(event: BorrowedFd<'_>) -> io::Result<CounterReading> {
    let mut words = [0; 3];
    let read = read_words(event, &mut words)?;
    let &[count, enabled, running] = &words[..read] else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    Ok(CounterReading {
        count,
        enabled,
        running,
    })
}

/// Reads the `counters` counters of a group at one moment, in the order of opening. The group was
/// opened by [`open_leader`]. Once its CPU is offline, only the leader is left in the group.
pub(crate) fn read_group(
    leader: BorrowedFd<'_>,
    counters: usize,
) -> io::Result<Vec<CounterReading>> {
    let mut words = vec![0; 3 + counters];
    let read = read_words(leader, &mut words)?;
    let &[members, enabled, running, ref counts @ ..] = &words[..read] else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    debug_assert_eq!(members, counts.len() as u64);
    let reading = |count: &u64| CounterReading {
        count: *count,
        enabled,
        running,
    };
    Ok(counts.iter().map(reading).collect())
}

/// Number of records of an event that did not fit its ring; None if the kernel does not count them
/// (before 6.0) or the event's CPU is gone. The event must be opened with [`FORMAT_LOST`].
pub(crate) fn lost(event: BorrowedFd<'_>) -> Option<u64> {
    let mut words = [0; 2];
    let read = read_words(event, &mut words).ok()?;
    let &[_, lost] = &words[..read] else {
        return None;
    };
    Some(lost)
}

/// Count of an event so far; None if its CPU is gone. The event's `read_format` must not have
/// `PERF_FORMAT_GROUP`; its other bits do not matter.
pub(crate) fn counted(event: BorrowedFd<'_>) -> Option<u64> {
    let mut words = [0; 4];
    let read = read_words(event, &mut words).ok()?;
    words[..read].first().copied()
}

/// `PERF_FORMAT_LOST` of `read_format` (kernel 6.0).
pub(crate) const FORMAT_LOST: u64 = bindings::PERF_FORMAT_LOST as u64;

/// Reads words and returns their number. It is 0 for an event in error state, whose CPU or PMU is
/// gone.
fn read_words(event: BorrowedFd<'_>, words: &mut [u64]) -> io::Result<usize> {
    let mut bytes = vec![0; size_of_val(words)];
    let read = rustix::io::read(event, &mut bytes)?;
    let chunks = bytes[..read].as_chunks::<8>().0;
    for (word, bytes) in words.iter_mut().zip(chunks) {
        *word = u64::from_ne_bytes(*bytes);
    }
    Ok(chunks.len())
}

/// Attributes of a counter that [`read`] can read.
fn attr(event: &Attr) -> bindings::perf_event_attr {
    let mut attr = bindings::perf_event_attr {
        read_format: u64::from(
            bindings::PERF_FORMAT_TOTAL_TIME_ENABLED | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING,
        ),
        ..Default::default()
    };
    set_event(&mut attr, event);
    attr
}

/// Sets type and config words.
pub(crate) fn set_event(attr: &mut bindings::perf_event_attr, event: &Attr) {
    attr.type_ = event.type_;
    [
        attr.config,
        attr.config1,
        attr.config2,
        attr.config3,
        attr.config4,
    ] = event.config;
}

/// Sets the `exclude_*` bits.
pub(crate) fn set_exclude(attr: &mut bindings::perf_event_attr, exclude: Exclude) {
    attr.set_exclude_user(exclude.user.into());
    attr.set_exclude_kernel(exclude.kernel.into());
    attr.set_exclude_hv(exclude.hv.into());
}

/// Makes an event the leader of a group, which counts from [`enable`] on.
///
/// Arm's driver skips disabled events when it checks whether a group fits, unless an exec enables
/// them (`validate_event` of `drivers/perf/arm_pmu.c`): a group with one counter too many would
/// open and never run. No thread of these events execs.
fn set_leader(attr: &mut bindings::perf_event_attr) {
    attr.set_disabled(1);
    attr.set_enable_on_exec(1);
}

/// Opens any event: of a CPU, or of a thread on all CPUs (`cpu` None).
pub(crate) fn open_attr(
    attr: &mut bindings::perf_event_attr,
    tasks: TaskScope<'_>,
    cpu: Option<u32>,
    leader: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    attr.size = ATTR_SIZE;
    let (pid, cgroup) = match tasks {
        TaskScope::All => (-1, 0),
        TaskScope::CurrentThread => (0, 0),
        TaskScope::Thread(tid) => (tid.cast_signed(), 0),
        TaskScope::Cgroup(directory) => (directory.as_raw_fd(), bindings::PERF_FLAG_PID_CGROUP),
    };
    let cpu = cpu.map_or(-1, u32::cast_signed);
    let leader = leader.map_or(-1, |fd| fd.as_raw_fd());
    let flags = u64::from(bindings::PERF_FLAG_FD_CLOEXEC | cgroup);
    // SAFETY: attr is a valid structure of the size it states; the kernel only reads and, on
    // E2BIG, writes its size.
    #[expect(clippy::disallowed_methods, reason = "the one place that opens events")]
    let fd = unsafe { raw::perf_event_open(attr, pid, cpu, leader, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
