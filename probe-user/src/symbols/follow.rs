//! Follows all processes by the kernel's records of forks, execs, exits and mappings: an event for
//! each CPU that counts nothing, and a thread that reads their rings.

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

use super::watched::Watched;
use crate::sys::{
    perf::{self, Whom},
    ring::Records,
    wire::{Stamp, StampedEvents, follow_attr},
};

/// Bytes of the ring of one CPU: some hundred processes that begin and end.
const RING: usize = 256 << 10;
/// How long records wait for each other. A process that lives for less leaves its name, build id
/// and offsets, but its file may be gone with its container.
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
        /// What the kernel says.
        error: io::Error,
    },
    /// The memory that is shared with the kernel could not be mapped.
    #[error(
        "cannot map the {} KiB in which the kernel tells of processes on CPU {cpu} ({error}): \
         raise kernel.perf_event_mlock_kb, or run pmuscope with CAP_IPC_LOCK",
        RING >> 10
    )]
    Map {
        /// The CPU.
        cpu: u32,
        /// What the kernel says.
        error: io::Error,
    },
    /// The thread could not be started.
    #[error("cannot start the thread that follows processes ({0}): raise the limit of tasks")]
    Thread(io::Error),
}

/// What the descriptor that wakes is among the CPUs.
const WAKE: u64 = u64::MAX;

/// The rings of the CPUs that are followed.
struct Ring {
    event: OwnedFd,
    records: Records,
}

impl Ring {
    fn open(cpu: u32) -> Result<Self, FollowError> {
        let mut attr = follow_attr();
        attr.set_ksymbol(1);
        attr.set_use_clockid(1);
        // That of the programs' samples.
        attr.clockid = ClockId::Monotonic as i32;
        attr.set_watermark(1);
        // At each record: the thread makes the pauses.
        attr.__bindgen_anon_2.wakeup_watermark = 1;
        let open = |error| FollowError::Open { cpu, error };
        let event = perf::open_attr(&mut attr, Whom::All, Some(cpu), None).map_err(open)?;
        let records =
            Records::map(event.as_fd(), RING).map_err(|error| FollowError::Map { cpu, error })?;
        perf::enable(event.as_fd()).map_err(open)?;
        Ok(Self { event, records })
    }
}

/// A record with its time, as bytes: it waits for those of other CPUs.
type Held = (u64, Vec<u8>);

#[derive(Default)]
struct Rings {
    of_cpus: BTreeMap<u32, Ring>,
    /// Records that came while others of the same time may still have been on their way.
    held: Vec<Held>,
}

/// What the thread and its owner share.
struct Shared {
    rings: Mutex<Rings>,
    watched: Arc<Mutex<Watched>>,
    /// Waits for a record in any of the rings, by its CPU, and for the descriptor that wakes.
    epoll: OwnedFd,
    /// Wakes the thread: it shall end.
    wake: OwnedFd,
    ended: std::sync::atomic::AtomicBool,
}

/// Follows processes until it is dropped.
pub(super) struct Follower {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    pub(super) fn start(cpus: &[u32], watched: Arc<Mutex<Watched>>) -> Result<Self, FollowError> {
        let failed = |error: rustix::io::Errno| FollowError::Thread(error.into());
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN).map_err(failed)?;
        let shared = Arc::new(Shared {
            rings: Mutex::default(),
            watched,
            epoll,
            wake,
            ended: false.into(),
        });
        let mut follower = Self {
            shared,
            thread: None,
        };
        follower.cpus(cpus)?;
        let shared = Arc::clone(&follower.shared);
        let thread = thread::Builder::new().name("symbols".to_owned());
        let thread = thread
            .spawn(move || shared.run())
            .map_err(FollowError::Thread)?;
        follower.thread = Some(thread);
        Ok(follower)
    }

    /// Follows these CPUs from now on. Where one of them cannot be followed the others are; the
    /// first error is told.
    pub(super) fn cpus(&mut self, cpus: &[u32]) -> Result<(), FollowError> {
        // What the others have told is read first.
        self.shared.drain();
        let mut rings = locked(&self.shared.rings);
        rings.of_cpus.retain(|cpu, _| cpus.contains(cpu));
        let before = rings.of_cpus.len();
        let mut followed = Ok(());
        for cpu in cpus {
            if rings.of_cpus.contains_key(cpu) {
                continue;
            }
            match self.shared.open(*cpu) {
                Ok(ring) => {
                    rings.of_cpus.insert(*cpu, ring);
                }
                Err(error) => followed = followed.and(Err(error)),
            }
        }
        let opened = rings.of_cpus.len() > before;
        drop(rings);
        if opened {
            // What was done there before was told to nobody.
            locked(&self.shared.watched).mappings.gap();
        }
        followed
    }

    /// Reads all that has happened before this call.
    pub(super) fn catch_up(&self) {
        self.shared.drain();
        // What the first drain held back.
        self.shared.drain();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared
            .ended
            .store(true, std::sync::atomic::Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ended = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        while !self.ended.load(std::sync::atomic::Ordering::Acquire) {
            self.wait();
            self.drain();
            thread::sleep(PAUSE);
        }
    }

    fn open(&self, cpu: u32) -> Result<Ring, FollowError> {
        let ring = Ring::open(cpu)?;
        let data = EventData::new_u64(u64::from(cpu));
        // A ring that goes takes its event out of it.
        epoll::add(&self.epoll, &ring.event, data, EventFlags::IN)
            .map_err(|error| FollowError::Thread(error.into()))?;
        Ok(ring)
    }

    fn wake(&self) {
        // It fails only where the counter is at its end: then the thread is awake.
        let _written = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Waits for a record.
    fn wait(&self) {
        let mut ready = Vec::with_capacity(16);
        // An interrupted wait is a short one.
        let _waited = epoll::wait(&self.epoll, spare_capacity(&mut ready), None);
        for event in ready {
            let (flags, of) = (event.flags, event.data.u64());
            if of == WAKE {
                let mut count = [0; 8];
                let _read = rustix::io::read(&self.wake, &mut count);
            } else if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                // The event of a CPU that went offline is always ready.
                let rings = locked(&self.rings);
                let ring = u32::try_from(of)
                    .ok()
                    .and_then(|cpu| rings.of_cpus.get(&cpu));
                // Its ring may be a new one by now, which is waited for again then.
                let _gone = ring.map(|ring| epoll::delete(&self.epoll, &ring.event));
            }
        }
    }

    /// Reads all rings, and hands on in their order what cannot have anything before it on its way.
    fn drain(&self) {
        let mut rings = locked(&self.rings);
        let Rings { of_cpus, held } = &mut *rings;
        let mut records = std::mem::take(held);
        let first = records.len();
        of_cpus
            .values_mut()
            .for_each(|ring| take(ring, &mut records));
        // A ring that was read before another one may have got a record that is older than the
        // newest of the other: it is there now.
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
        *held = records.split_off(ready);
        let mut watched = locked(&self.watched);
        for (time, record) in &records {
            for (event, _) in StampedEvents::new(record) {
                watched.learn(&event, *time);
            }
        }
        watched.keep_new();
    }
}

/// Takes the records out of a ring.
fn take(ring: &mut Ring, into: &mut Vec<Held>) {
    let mut bytes = Vec::new();
    ring.records.take(&mut bytes);
    let mut rest = &bytes[..];
    // Each with its header, which has its size behind type and flags.
    while let Some(size) = rest.get(6..8).and_then(|size| size.try_into().ok()) {
        let size = usize::from(u16::from_ne_bytes(size));
        let Some((record, behind)) = rest.split_at_checked(size).filter(|_| size > 0) else {
            break;
        };
        let time = StampedEvents::new(record)
            .next()
            .map(|(_, trailer)| Stamp::of(trailer).time);
        into.extend(time.map(|time| (time, record.to_vec())));
        rest = behind;
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
