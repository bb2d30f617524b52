//! Watches the forks, execs, exits and mappings of all processes by the kernel's records: a dummy
//! event on each CPU, and a thread that reads their rings ([`MappingWatch`]).

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::{
    buffer::spare_capacity,
    event::{
        EventfdFlags,
        epoll::{self, CreateFlags, EventData, EventFlags},
        eventfd,
    },
    time::ClockId,
};

use super::watched_processes::WatchedProcesses;
use crate::sys::{
    perf::{self, TaskScope},
    ring::RecordRing,
    wire::{Stamp, StampedRecords, tracking_attr},
};

/// Size of a CPU's ring in bytes: it holds the records of some hundred short processes.
const RING_BYTES: usize = 256 << 10;
/// Pause between two drains, in which records collect. If a process ends within a pause, its file
/// may be gone with its container; then only the file's name, build id and offsets are known.
const PAUSE: Duration = Duration::from_millis(5);

/// Why processes cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// An event could not be opened.
    #[error(
        "the kernel refuses to tell of processes that begin and end (CPU {cpu}: {error}): run \
         pmuscope as root or with CAP_PERFMON; without, processes that end before they are looked \
         at have no names of functions"
    )]
    Open {
        /// The CPU.
        cpu: u32,
        /// The kernel's error.
        error: io::Error,
    },
    /// The ring could not be mapped.
    #[error(
        "cannot map the {} KiB in which the kernel tells of processes on CPU {cpu} ({error}): \
         raise kernel.perf_event_mlock_kb, or run pmuscope with CAP_IPC_LOCK",
        RING_BYTES >> 10
    )]
    Map {
        /// The CPU.
        cpu: u32,
        /// The kernel's error.
        error: io::Error,
    },
    /// The thread could not be started.
    #[error("cannot start the thread that follows processes ({0}): raise the limit of tasks")]
    Thread(io::Error),
}

/// The epoll data of the wake descriptor; the data of a ring is its number.
const WAKE: u64 = u64::MAX;

/// The event and ring of a CPU.
struct CpuRing {
    /// Distinguishes it from an earlier ring of the same CPU.
    number: u64,
    event: OwnedFd,
    records: RecordRing,
}

impl CpuRing {
    fn open(cpu: u32, number: u64) -> Result<Self, FollowError> {
        let mut attr = tracking_attr();
        attr.set_ksymbol(1);
        attr.set_use_clockid(1);
        // The clock of the BPF programs (`bpf_ktime_get_ns`).
        attr.clockid = ClockId::Monotonic as i32;
        attr.set_watermark(1);
        // Wakes the thread at each record; pauses limit its rate.
        attr.__bindgen_anon_2.wakeup_watermark = 1;
        let open = |error| FollowError::Open { cpu, error };
        let event = perf::open_attr(&mut attr, TaskScope::All, Some(cpu), None).map_err(open)?;
        let records = RecordRing::map(event.as_fd(), RING_BYTES)
            .map_err(|error| FollowError::Map { cpu, error })?;
        perf::enable(event.as_fd()).map_err(open)?;
        Ok(Self {
            number,
            event,
            records,
        })
    }
}

/// Time and bytes of a record.
type TimedRecord = (u64, Vec<u8>);

#[derive(Default)]
struct Rings {
    by_cpu: BTreeMap<u32, CpuRing>,
    /// Number of rings that were opened.
    opened: u64,
    /// Records that wait for older records of other CPUs.
    pending: Vec<TimedRecord>,
}

/// State shared by the thread and its owner.
struct SharedRings {
    rings: Mutex<Rings>,
    watched: Arc<Mutex<WatchedProcesses>>,
    /// Waits for a record in any ring, and for `wake`.
    epoll: OwnedFd,
    /// Wakes the thread so that it ends.
    wake: OwnedFd,
    /// Whether the thread has to end.
    ended: std::sync::atomic::AtomicBool,
}

/// Watches processes until it is dropped.
pub(super) struct MappingWatch {
    shared: Arc<SharedRings>,
    thread: Option<JoinHandle<()>>,
}

impl MappingWatch {
    pub(super) fn start(
        cpus: &[u32],
        watched: Arc<Mutex<WatchedProcesses>>,
    ) -> Result<Self, FollowError> {
        let shared = Arc::new(SharedRings::new(watched)?);
        let mut watch = Self {
            shared,
            thread: None,
        };
        watch.set_cpus(cpus)?;
        let shared = Arc::clone(&watch.shared);
        let thread = thread::Builder::new()
            .name("symbols".to_owned())
            .spawn(move || shared.run())
            .map_err(FollowError::Thread)?;
        watch.thread = Some(thread);
        Ok(watch)
    }

    /// Changes the watched CPUs. A CPU that fails does not affect the others; the first error is
    /// returned.
    pub(super) fn set_cpus(&mut self, cpus: &[u32]) -> Result<(), FollowError> {
        // Reads the records of CPUs that are removed.
        self.shared.drain();
        let mut rings = locked(&self.shared.rings);
        rings.by_cpu.retain(|cpu, _| cpus.contains(cpu));
        let before = rings.by_cpu.len();
        let mut result = Ok(());
        for cpu in cpus {
            if rings.by_cpu.contains_key(cpu) {
                continue;
            }
            rings.opened += 1;
            let ring = CpuRing::open(*cpu, rings.opened);
            match ring.and_then(|ring| self.shared.insert(&mut rings, *cpu, ring)) {
                Ok(()) => {}
                Err(error) => result = result.and(Err(error)),
            }
        }
        let opened = rings.by_cpu.len() > before;
        drop(rings);
        if opened {
            // Earlier forks, execs and mappings on the new CPUs were not recorded.
            locked(&self.shared.watched).mappings.mark_stale();
        }
        result
    }

    /// Handles all records from before this call.
    pub(super) fn catch_up(&self) {
        self.shared.drain();
        // The first drain may leave some of these records pending.
        self.shared.drain();
    }
}

impl Drop for MappingWatch {
    fn drop(&mut self) {
        self.shared
            .ended
            .store(true, std::sync::atomic::Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // The thread has no result.
            let _ended = thread.join();
        }
    }
}

impl SharedRings {
    fn new(watched: Arc<Mutex<WatchedProcesses>>) -> Result<Self, FollowError> {
        let failed = |error: rustix::io::Errno| FollowError::Thread(error.into());
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN).map_err(failed)?;
        Ok(Self {
            rings: Mutex::default(),
            watched,
            epoll,
            wake,
            ended: false.into(),
        })
    }

    fn run(&self) {
        while !self.ended.load(std::sync::atomic::Ordering::Acquire) {
            self.wait();
            self.drain();
            thread::sleep(PAUSE);
        }
    }

    fn insert(&self, rings: &mut Rings, cpu: u32, ring: CpuRing) -> Result<(), FollowError> {
        let data = EventData::new_u64(ring.number);
        // Closing a ring's event removes it from epoll.
        epoll::add(&self.epoll, &ring.event, data, EventFlags::IN)
            .map_err(|error| FollowError::Thread(error.into()))?;
        rings.by_cpu.insert(cpu, ring);
        Ok(())
    }

    fn wake(&self) {
        // The write fails only if the counter is full. Then the thread is woken already.
        let _written = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Waits for a record in any ring, or for a wake-up.
    fn wait(&self) {
        let mut ready = Vec::with_capacity(16);
        // An interrupted wait is treated as a short wait.
        let _waited = epoll::wait(&self.epoll, spare_capacity(&mut ready), None);
        for event in ready {
            let (flags, source) = (event.flags, event.data.u64());
            if source == WAKE {
                let mut count = [0; 8];
                let _read = rustix::io::read(&self.wake, &mut count);
            } else if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                self.forget(source);
            }
        }
    }

    /// Removes the event of an offline CPU from epoll, since it would be ready all the time.
    fn forget(&self, number: u64) {
        let rings = locked(&self.rings);
        // A ring that was replaced meanwhile is closed, and so no longer in epoll.
        let ring = rings.by_cpu.values().find(|ring| ring.number == number);
        let _gone = ring.map(|ring| epoll::delete(&self.epoll, &ring.event));
    }

    /// Reads all rings. Handles records in order of time, up to the time for which no older record
    /// can still be in a ring.
    fn drain(&self) {
        let mut rings = locked(&self.rings);
        let Rings {
            by_cpu, pending, ..
        } = &mut *rings;
        let mut records = std::mem::take(pending);
        let pending_count = records.len();
        by_cpu
            .values_mut()
            .for_each(|ring| take_records(ring, &mut records));
        // After a ring was read, it may have received records that are older than the newest record
        // of a ring read later. A second pass reads these records.
        let newest = records.iter().map(|(time, _)| *time).max();
        if records.len() > pending_count {
            by_cpu
                .values_mut()
                .for_each(|ring| take_records(ring, &mut records));
        }
        records.sort_by_key(|(time, _)| *time);
        let ready = newest.map_or(0, |newest| {
            records.partition_point(|(time, _)| *time <= newest)
        });
        *pending = records.split_off(ready);
        let mut watched = locked(&self.watched);
        for (time, record) in &records {
            for (event, _) in StampedRecords::new(record) {
                watched.on_record(&event, *time);
            }
        }
        watched.open_new_files();
    }
}

/// Moves the records of a ring to `into`.
fn take_records(ring: &mut CpuRing, into: &mut Vec<TimedRecord>) {
    let mut bytes = Vec::new();
    ring.records.take(&mut bytes);
    let mut rest = &bytes[..];
    // A record begins with its type, flags and size.
    while let Some(size) = rest.get(6..8).and_then(|size| size.try_into().ok()) {
        let size = usize::from(u16::from_ne_bytes(size));
        let Some((record, after)) = rest.split_at_checked(size).filter(|_| size > 0) else {
            break;
        };
        let time = StampedRecords::new(record)
            .next()
            .map(|(_, trailer)| Stamp::parse(trailer).time);
        into.extend(time.map(|time| (time, record.to_vec())));
        rest = after;
    }
}

/// Locks a mutex, even if a thread panicked while it held the lock.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::net::UnixStream, path::Path};

    use super::*;
    use crate::sys::ring::fake;

    /// A ring whose event is a socket, and the other end of the socket.
    fn ring(number: u64) -> (CpuRing, UnixStream) {
        let (event, kernel) = UnixStream::pair().unwrap();
        let ring = CpuRing {
            number,
            event: event.into(),
            records: fake::records(4096),
        };
        (ring, kernel)
    }

    /// A CPU goes offline, and is online again before the thread handles that its event has ended.
    #[test]
    fn a_ring_that_replaced_an_ended_one_still_wakes_the_thread() {
        let watched = WatchedProcesses::new(Path::new("/proc"));
        let shared = SharedRings::new(Arc::new(Mutex::new(watched))).unwrap();
        let insert = |ring| shared.insert(&mut locked(&shared.rings), 3, ring).unwrap();
        // The events that wake the thread now, by their epoll data.
        let ready = || {
            let mut ready = Vec::with_capacity(16);
            let now = rustix::event::Timespec::default();
            epoll::wait(&shared.epoll, spare_capacity(&mut ready), Some(&now)).unwrap();
            let ready: Vec<u64> = ready.iter().map(|event| event.data.u64()).collect();
            ready
        };
        let (first, offline) = ring(1);
        insert(first);
        drop(offline);
        assert_eq!(ready(), [1]);
        let (second, mut kernel) = ring(2);
        insert(second);
        shared.forget(1);
        kernel.write_all(b"record").unwrap();
        assert_eq!(ready(), [2]);
        // Without its ring's event, the thread would be awake all the time.
        drop(kernel);
        shared.forget(2);
        assert!(ready().is_empty());
    }
}
