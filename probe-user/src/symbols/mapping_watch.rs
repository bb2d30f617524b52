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

/// Size of a CPU's ring in bytes: the records of some hundred short processes.
const RING: usize = 256 << 10;
/// Pause between two drains, in which records collect. The file of a process that ends sooner may
/// be gone with its container; its name, build id and offsets remain.
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
        RING >> 10
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

/// The epoll data of the wake descriptor; the data of a ring is its CPU.
const WAKE: u64 = u64::MAX;

/// The event and ring of a CPU.
struct CpuRing {
    event: OwnedFd,
    records: RecordRing,
}

impl CpuRing {
    fn open(cpu: u32) -> Result<Self, FollowError> {
        let mut attr = tracking_attr();
        attr.set_ksymbol(1);
        attr.set_use_clockid(1);
        // The clock of the BPF programs (`bpf_ktime_get_ns`).
        attr.clockid = ClockId::Monotonic as i32;
        attr.set_watermark(1);
        // Wake up at each record: the thread limits its rate by pauses.
        attr.__bindgen_anon_2.wakeup_watermark = 1;
        let open = |error| FollowError::Open { cpu, error };
        let event = perf::open_attr(&mut attr, TaskScope::All, Some(cpu), None).map_err(open)?;
        let records = RecordRing::map(event.as_fd(), RING)
            .map_err(|error| FollowError::Map { cpu, error })?;
        perf::enable(event.as_fd()).map_err(open)?;
        Ok(Self { event, records })
    }
}

/// Time and bytes of a record.
type TimedRecord = (u64, Vec<u8>);

#[derive(Default)]
struct Rings {
    of_cpus: BTreeMap<u32, CpuRing>,
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
        let failed = |error: rustix::io::Errno| FollowError::Thread(error.into());
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN).map_err(failed)?;
        let shared = Arc::new(SharedRings {
            rings: Mutex::default(),
            watched,
            epoll,
            wake,
            ended: false.into(),
        });
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
        // Reads pending records of CPUs that are removed.
        self.shared.drain();
        let mut rings = locked(&self.shared.rings);
        rings.of_cpus.retain(|cpu, _| cpus.contains(cpu));
        let before = rings.of_cpus.len();
        let mut result = Ok(());
        for cpu in cpus {
            if rings.of_cpus.contains_key(cpu) {
                continue;
            }
            match self.shared.open(*cpu) {
                Ok(ring) => {
                    rings.of_cpus.insert(*cpu, ring);
                }
                Err(error) => result = result.and(Err(error)),
            }
        }
        let opened = rings.of_cpus.len() > before;
        drop(rings);
        if opened {
            // What happened on the new CPUs before was not recorded.
            locked(&self.shared.watched).mappings.mark_stale();
        }
        result
    }

    /// Reads all records from before this call.
    pub(super) fn catch_up(&self) {
        self.shared.drain();
        // Records that the first drain left pending.
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
    fn run(&self) {
        while !self.ended.load(std::sync::atomic::Ordering::Acquire) {
            self.wait();
            self.drain();
            thread::sleep(PAUSE);
        }
    }

    fn open(&self, cpu: u32) -> Result<CpuRing, FollowError> {
        let ring = CpuRing::open(cpu)?;
        let data = EventData::new_u64(u64::from(cpu));
        // Closing a ring's event removes it from epoll.
        epoll::add(&self.epoll, &ring.event, data, EventFlags::IN)
            .map_err(|error| FollowError::Thread(error.into()))?;
        Ok(ring)
    }

    fn wake(&self) {
        // The write fails only if the counter is full: then the thread is awake.
        let _written = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Waits for a record.
    fn wait(&self) {
        let mut ready = Vec::with_capacity(16);
        // An interrupted wait is treated as a short one.
        let _waited = epoll::wait(&self.epoll, spare_capacity(&mut ready), None);
        for event in ready {
            let (flags, source) = (event.flags, event.data.u64());
            if source == WAKE {
                let mut count = [0; 8];
                let _read = rustix::io::read(&self.wake, &mut count);
            } else if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                // The event of an offline CPU would be ready all the time.
                let rings = locked(&self.rings);
                let ring = u32::try_from(source)
                    .ok()
                    .and_then(|cpu| rings.of_cpus.get(&cpu));
                // The ring may have been replaced meanwhile: the new one is added to epoll again.
                let _gone = ring.map(|ring| epoll::delete(&self.epoll, &ring.event));
            }
        }
    }

    /// Reads all rings, and handles, in order of time, the records that no older record can still
    /// precede.
    fn drain(&self) {
        let mut rings = locked(&self.rings);
        let Rings { of_cpus, pending } = &mut *rings;
        let mut records = std::mem::take(pending);
        let first = records.len();
        of_cpus
            .values_mut()
            .for_each(|ring| take(ring, &mut records));
        // A ring may have received records after it was read that are older than the newest record
        // of a ring read later. A second pass reads them.
        let newest = records.iter().map(|(time, _)| *time).max();
        if records.len() > first {
            of_cpus
                .values_mut()
                .for_each(|ring| take(ring, &mut records));
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

/// Takes the records out of a ring.
fn take(ring: &mut CpuRing, into: &mut Vec<TimedRecord>) {
    let mut bytes = Vec::new();
    ring.records.take(&mut bytes);
    let mut rest = &bytes[..];
    // Each record has a header with its size, after type and flags.
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

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
