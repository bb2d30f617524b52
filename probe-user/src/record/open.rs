//! Opening the events of a recording and mapping their buffers.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
};

use perf_event_open_sys::{self as raw, bindings};

use super::{
    Buffers, RecordError, Sampling, Size,
    error::{map_reason, open_reason},
    options::{SpeEvent, follow_attr, spe_attr},
    ring::{MapError, Ring},
};

/// One buffer, and the events that write into it.
pub(super) struct Buffer {
    pub(super) ring: Ring,
    /// The CPU of a buffer that belongs to a CPU.
    pub(super) cpu: Option<u32>,
    /// The thread of a buffer that belongs to a thread.
    pub(super) tid: Option<u32>,
    /// The SPE events; the first owns the buffer.
    pub(super) spe: Vec<OwnedFd>,
    /// The events that follow processes.
    pub(super) follow: Vec<OwnedFd>,
}

/// Whom an event samples.
#[derive(Clone, Copy)]
pub(super) enum Whom<'a> {
    Thread(u32),
    Cgroup(&'a File),
}

/// How events are opened.
pub(super) struct Opener<'a> {
    pub(super) sampling: &'a Sampling,
    pub(super) buffers: Buffers,
    /// The events start when their task executes a program.
    pub(super) on_exec: bool,
}

impl Opener<'_> {
    /// A buffer for one CPU (`cpu`), or for a thread wherever it runs. None where the first thread
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
        redirect(&follow, &spe).map_err(RecordError::Enable)?;
        let tid = match whom {
            Whom::Thread(tid) if cpu.is_none() => Some(tid),
            Whom::Thread(_) | Whom::Cgroup(_) => None,
        };
        Ok(Some(Buffer {
            ring,
            cpu,
            tid,
            spe: vec![spe],
            follow: vec![follow],
        }))
    }

    /// One more thread into the buffer of a CPU. False where it has ended.
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
            redirect(event, &buffer.spe[0]).map_err(RecordError::Enable)?;
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
                // Children of a task are sampled too, where the buffer is of a CPU; the kernel has
                // no such thing for buffers of a thread.
                attr.set_inherit(cpu.is_some().into());
                attr.set_enable_on_exec(self.on_exec.into());
            }
            match open(&mut attr, whom, cpu) {
                Ok(fd) => opened.push(fd),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
                Err(error) => {
                    let on = cpu.map_or(String::new(), |cpu| format!(" on CPU {cpu}"));
                    let target = match whom {
                        Whom::Thread(tid) => format!("thread {tid}{on}"),
                        Whom::Cgroup(_) => format!("the cgroup{on}"),
                    };
                    return Err(RecordError::Open {
                        pmu: event.counter.pmu.clone().unwrap_or_default(),
                        target,
                        reason: open_reason(&error),
                    });
                }
            }
        }
        let follow = opened.pop();
        Ok(opened.pop().zip(follow))
    }
}

fn open(
    attr: &mut bindings::perf_event_attr,
    whom: Whom<'_>,
    cpu: Option<u32>,
) -> io::Result<OwnedFd> {
    let (pid, cgroup) = match whom {
        Whom::Thread(tid) => (tid.cast_signed(), 0),
        Whom::Cgroup(directory) => (directory.as_raw_fd(), bindings::PERF_FLAG_PID_CGROUP),
    };
    let cpu = cpu.map_or(-1, u32::cast_signed);
    let flags = u64::from(bindings::PERF_FLAG_FD_CLOEXEC | cgroup);
    let mut open = |read_format: u64| -> RawFd {
        attr.read_format = read_format;
        // SAFETY: attr is a valid structure of the size it states; the kernel only reads and, on
        // E2BIG, writes its size.
        unsafe { raw::perf_event_open(attr, pid, cpu, -1, flags) }
    };
    let mut fd = open(u64::from(bindings::PERF_FORMAT_LOST));
    if fd < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
        // Kernels before 6.0 do not count lost records per event.
        fd = open(0);
    }
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What the event writes goes into the buffer of `owner`.
fn redirect(event: &OwnedFd, owner: &OwnedFd) -> io::Result<()> {
    // SAFETY: both descriptors are perf events'.
    check(unsafe { raw::ioctls::SET_OUTPUT(event.as_raw_fd(), owner.as_raw_fd()) })
}

pub(super) fn enable(event: impl AsFd) -> io::Result<()> {
    // SAFETY: the descriptor is a perf event's; the argument is plain.
    check(unsafe { raw::ioctls::ENABLE(event.as_fd().as_raw_fd(), 0) })
}

pub(super) fn disable(event: impl AsFd) -> io::Result<()> {
    // SAFETY: as above.
    check(unsafe { raw::ioctls::DISABLE(event.as_fd().as_raw_fd(), 0) })
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The number by which records name the event (`PERF_EVENT_IOC_ID`).
pub(super) fn id(event: &OwnedFd) -> io::Result<u64> {
    let mut id = 0;
    // SAFETY: the kernel writes a word to the address.
    check(unsafe { raw::ioctls::ID(event.as_raw_fd(), &raw mut id) })?;
    Ok(id)
}

/// How many records of the event did not fit its ring, where the kernel counts them (6.0).
pub(super) fn lost(event: &OwnedFd) -> Option<u64> {
    let mut bytes = [0; 16];
    // An event whose CPU has gone reads as end of file.
    let size = rustix::io::read(event, &mut bytes).ok()?;
    let (_, lost) = bytes.split_at(8);
    let lost = lost.first_chunk().map(|word| u64::from_ne_bytes(*word));
    lost.filter(|_| size == 16)
}
