//! The maps of the object.

use std::{
    io,
    marker::PhantomData,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd},
    path::{Path, PathBuf},
};

use aya::{
    Ebpf, Pod,
    maps::{Map, MapData, MapInfo, PerCpuArray, RingBuf},
};
use aya_obj::Object as Compiled;
use probe_common::{
    Clock, CpuState, MarkerCpu, Plain, Process, SLOTS, Tree, UsageKey, UsageRow, Walk,
    sample::{SampleCpu, SampleKey, SampleRow},
    spe::{LineKey, LineRow, PageKey, PageRow, SpeClock, SpeCpu, SpeKey, SpeRow, SpeTask},
};

use super::{OBJECT, io_error, missing, refused, slots::Slots};
use crate::{session::SessionError, sys::bpf};

macro_rules! maps {
    ($($(#[$meta:meta])* $field:ident: $type:ty = $name:ident,)*) => {
        /// The names of the maps that user space reads or writes.
        pub(super) mod name {
            $(pub(in super::super) const $name: &str = stringify!($name);)*
        }

        /// The maps that user space reads or writes.
        pub(crate) struct Maps {
            $($(#[$meta])* pub(crate) $field: $type,)*
            /// The counters of each slot.
            pub(crate) counters: Counters,
        }

        impl Maps {
            /// Takes the maps out of the object. The programs hold them too, once they are loaded.
            pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self, SessionError> {
                Ok(Self {
                    $($field: <$type>::open(name::$name, take(ebpf, name::$name)?)?,)*
                    counters: Counters::take(ebpf)?,
                })
            }

            /// Name, sizes of key and value.
            #[cfg(test)]
            pub(super) const ALL: &[(&str, Sizes)] = &[$((name::$name, <$type>::SIZES),)*];
        }
    };
}

maps! {
    /// Who used how much of each counter, on which CPU.
    usage: Hash<UsageKey, UsageRow> = USAGE,
    /// What USAGE had no row for, by counter group.
    overflow: PerCpu<UsageRow> = OVERFLOW,
    /// What each CPU is doing, at index 0.
    state: PerCpu<CpuState> = STATE,
    /// The programs' clock, and the times of these maps, at index 0.
    clock: Array<Clock> = CLOCK,
    /// The records of what comes and goes.
    lifecycle: Ring = LIFECYCLE,
    /// What observed programs mark.
    markers: Ring = MARKERS,
    /// What became of these records, at index 0.
    marker_cpu: PerCpu<MarkerCpu> = MARKER_CPU,
    /// The walk over all processes, at index 0.
    walk: Array<Walk> = WALK,
    /// The processes that it is asked about.
    processes: Hash<u64, Process> = PROCESSES,
    /// The walk over all cgroups, at index 0.
    tree: Array<Tree> = TREE,
    /// The cgroups that it is asked about: 1 once it has met them.
    cgroups: Hash<u64, u64> = CGROUPS,
    /// Processes of a command that has no cgroup of its own.
    command: Hash<u32, u8> = COMMAND,
    /// Samples by owner.
    spe_rows: Hash<SpeKey, SpeRow> = SPE_ROWS,
    /// Samples that `SPE_ROWS` had no row for, by class.
    spe_overflow: PerCpu<SpeRow> = SPE_OVERFLOW,
    /// What became of everything that SPE wrote on each CPU, at index 0.
    spe_cpu: PerCpu<SpeCpu> = SPE_CPU,
    /// The pages that were accessed lately.
    spe_pages: Hash<PageKey, PageRow> = SPE_PAGES,
    /// The cache lines that were accessed lately.
    spe_lines: Hash<LineKey, LineRow> = SPE_LINES,
    /// Data sources that mean another core, by CPU.
    spe_peers: Array<u64> = SPE_PEERS,
    /// Ids of our own events, by CPU.
    spe_events: Array<u64> = SPE_EVENTS,
    /// By [`probe_common::spe::SpeSetting`].
    spe_settings: Array<u64> = SPE_SETTINGS,
    /// Two clocks: one is filled while the other is in use.
    spe_clocks: Array<SpeClock> = SPE_CLOCKS,
    /// Whose each thread is.
    spe_tasks: Hash<u64, SpeTask> = SPE_TASKS,
    /// Threads that exited.
    spe_exited: Queue<u64> = SPE_EXITED,
    /// Samples of events by owner.
    sample_rows: Hash<SampleKey, SampleRow> = SAMPLE_ROWS,
    /// The instructions that they were at.
    sample_addresses: Slots = SAMPLE_ADDRESSES,
    /// The data pages that they were at.
    sample_pages: Slots = SAMPLE_PAGES,
    /// What became of the samples of each event on each CPU.
    sample_cpu: PerCpu<SampleCpu> = SAMPLE_CPU,
    /// By [`probe_common::sample::SampleSetting`].
    sample_settings: Array<u64> = SAMPLE_SETTINGS,
}

/// The timeline of switches: only programs use it, user space sets its size.
pub(super) const SPE_SWITCHES: &str = "SPE_SWITCHES";

/// Maps that only programs use.
#[cfg(test)]
pub(super) const OF_PROGRAMS: [&str; 6] = [
    "RECORD",
    "SAMPLE_ZERO",
    "SPE_MOVE",
    SPE_SWITCHES,
    "SPE_WALK",
    "SPE_ZERO",
];

/// The maps that outlive a session where it has pins: what the attached programs write, and the
/// counters that they read. All others are of one process.
const PINNED: [&str; 5] = [
    name::USAGE,
    name::OVERFLOW,
    name::STATE,
    name::CLOCK,
    name::LIFECYCLE,
];

/// Each of those with its pin below a directory.
pub(super) fn pinned(directory: &Path) -> Vec<(String, PathBuf)> {
    let names = PINNED.into_iter().map(str::to_owned);
    let names = names.chain((0..SLOTS).map(Counters::name));
    names
        .map(|name| (name.clone(), directory.join(name)))
        .collect()
}

/// Whether all of them are pinned there, and are such as this object's.
pub(crate) fn can_use(directory: &Path) -> bool {
    let compiled = Compiled::parse(OBJECT).expect("the object was built with this program");
    pinned(directory).into_iter().all(|(name, path)| {
        let info = MapInfo::from_pin(path);
        compiled
            .maps
            .get(&name)
            .zip(info.ok())
            .is_some_and(|(map, info)| {
                let wanted = (map.map_type(), map.key_size(), map.value_size());
                let found = info.map_type().map(|kind| kind as u32);
                (wanted.1, wanted.2) == (info.key_size(), info.value_size())
                    && found.is_ok_and(|found| found == wanted.0)
            })
    })
}

/// Rows for which the pinned USAGE map has room; None where it cannot be asked.
pub(crate) fn rows_of(directory: &Path) -> Option<u32> {
    let info = MapInfo::from_pin(directory.join(name::USAGE)).ok()?;
    Some(info.max_entries())
}

/// Bytes of key and value.
pub(super) type Sizes = [usize; 2];

fn take(ebpf: &mut Ebpf, name: &str) -> Result<Map, SessionError> {
    ebpf.take_map(name).ok_or_else(|| missing(of(name)))
}

pub(super) fn of(name: &str) -> String {
    format!("map {name}")
}

/// A failed call of bpf(2).
pub(super) fn failed(verb: &str, name: &str, source: io::Error) -> SessionError {
    SessionError::Map {
        what: format!("{verb} the {name} map"),
        source,
    }
}

/// The data of a map for raw calls, which trust in its sizes: those are compared with the kernel's.
fn data(name: &str, map: Map, sizes: Sizes) -> Result<MapData, SessionError> {
    let (Map::HashMap(data) | Map::LruHashMap(data) | Map::Queue(data)) = map else {
        return Err(missing(of(name)));
    };
    let info = data.info().map_err(|error| refused(of(name), &error))?;
    let found = [info.key_size(), info.value_size()].map(|bytes| bytes as usize);
    if found == sizes {
        Ok(data)
    } else {
        Err(SessionError::Bpf {
            what: of(name),
            reason: format!("it has {found:?} bytes a key and value, not {sizes:?}"),
        })
    }
}

/// A hash map. No two calls wait for each other: one that meets a busy map is made again.
pub(crate) struct Hash<K, V> {
    name: &'static str,
    data: MapData,
    types: PhantomData<(K, V)>,
}

impl<K: Plain<Raw: Pod>, V: Plain<Raw: Pod>> Hash<K, V> {
    const SIZES: Sizes = [size_of::<K>(), size_of::<V>()];

    fn open(name: &'static str, map: Map) -> Result<Self, SessionError> {
        Ok(Self {
            name,
            data: data(name, map, Self::SIZES)?,
            types: PhantomData,
        })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.data.fd().as_fd()
    }

    /// Every row, in a few calls (kernel 5.6). Of rows that are made meanwhile some may be missing.
    pub(crate) fn all(&self) -> Result<Vec<(K, V)>, SessionError> {
        let row = |key: &K::Raw, value: &V::Raw| (K::from_raw(key), V::from_raw(value));
        bpf::lookup_all(self.fd(), row).map_err(|source| failed("read", self.name, source))
    }

    /// None where there is no such row.
    pub(crate) fn get(&self, key: &K) -> Result<Option<V>, SessionError> {
        let value = bpf::lookup::<_, V::Raw>(self.fd(), &key.to_raw());
        let value = value.map_err(|source| failed("read", self.name, source))?;
        Ok(value.map(|value| V::from_raw(&value)))
    }

    /// Makes a row, or replaces it.
    pub(crate) fn put(&self, key: &K, value: &V) -> Result<(), SessionError> {
        bpf::put(self.fd(), &key.to_raw(), &value.to_raw())
            .map_err(|source| failed("write to", self.name, source))
    }

    /// Makes a row where there is none.
    pub(crate) fn add(&self, key: &K, value: &V) -> Result<(), SessionError> {
        bpf::add(self.fd(), &key.to_raw(), &value.to_raw())
            .map_err(|source| failed("write to", self.name, source))
    }

    /// The kernel's number of the map, which no other has had since boot.
    pub(crate) fn id(&self) -> Result<u32, SessionError> {
        let info = self
            .data
            .info()
            .map_err(|error| refused(of(self.name), &error))?;
        Ok(info.id())
    }

    /// Removes a row and returns its last value (kernel 5.14); None where there is no such row.
    pub(crate) fn take(&self, key: &K) -> Result<Option<V>, SessionError> {
        let value = bpf::take::<_, V::Raw>(self.fd(), &key.to_raw());
        let value = value.map_err(|source| failed("free a row of", self.name, source))?;
        Ok(value.map(|value| V::from_raw(&value)))
    }
}

/// A queue.
pub(crate) struct Queue<V> {
    name: &'static str,
    data: MapData,
    types: PhantomData<V>,
}

impl<V: Plain<Raw: Pod>> Queue<V> {
    const SIZES: Sizes = [0, size_of::<V>()];

    fn open(name: &'static str, map: Map) -> Result<Self, SessionError> {
        Ok(Self {
            name,
            data: data(name, map, Self::SIZES)?,
            types: PhantomData,
        })
    }

    /// Takes all that is in the queue.
    pub(crate) fn drain(&self) -> Result<Vec<V>, SessionError> {
        let next = || bpf::pop::<V::Raw>(self.data.fd().as_fd()).transpose();
        std::iter::from_fn(next)
            .map(|value| value.map(|value| V::from_raw(&value)))
            .collect::<Result<_, _>>()
            .map_err(|source| failed("read", self.name, source))
    }
}

/// An array.
pub(crate) struct Array<V: Plain<Raw: Pod>> {
    name: &'static str,
    map: aya::maps::Array<MapData, V::Raw>,
}

impl<V: Plain<Raw: Pod>> Array<V> {
    #[cfg(test)]
    const SIZES: Sizes = [size_of::<u32>(), size_of::<V>()];

    fn open(name: &'static str, map: Map) -> Result<Self, SessionError> {
        let map = map.try_into().map_err(|error| refused(of(name), &error))?;
        Ok(Self { name, map })
    }

    pub(crate) fn get(&self, index: u32) -> Result<V, SessionError> {
        let value = self.map.get(&index, 0);
        let value = value.map_err(|error| failed("read", self.name, io_error(error)))?;
        Ok(V::from_raw(&value))
    }

    pub(crate) fn set(&mut self, index: u32, value: &V) -> Result<(), SessionError> {
        self.map
            .set(index, value.to_raw(), 0)
            .map_err(|error| failed("write to", self.name, io_error(error)))
    }
}

/// An array that each CPU has its own of.
pub(crate) struct PerCpu<V: Plain<Raw: Pod>> {
    name: &'static str,
    map: PerCpuArray<MapData, V::Raw>,
}

impl<V: Plain<Raw: Pod>> PerCpu<V> {
    #[cfg(test)]
    const SIZES: Sizes = [size_of::<u32>(), size_of::<V>()];

    fn open(name: &'static str, map: Map) -> Result<Self, SessionError> {
        let map = map.try_into().map_err(|error| refused(of(name), &error))?;
        Ok(Self { name, map })
    }

    /// The value of every possible CPU.
    pub(crate) fn get(&self, index: u32) -> Result<Vec<V>, SessionError> {
        let values = self.map.get(&index, 0);
        let values = values.map_err(|error| failed("read", self.name, io_error(error)))?;
        Ok(values.iter().map(V::from_raw).collect())
    }
}

/// The ring of records.
pub(crate) struct Ring(RingBuf<MapData>);

impl Ring {
    #[cfg(test)]
    const SIZES: Sizes = [0, 0];

    fn open(name: &'static str, map: Map) -> Result<Self, SessionError> {
        let ring = RingBuf::try_from(map).map_err(|error| refused(of(name), &error))?;
        Ok(Self(ring))
    }

    /// The same.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the map has the descriptor as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.raw_fd()) }
    }

    /// Readable where records are to be taken.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Takes every record.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(&[u8])) {
        while let Some(record) = self.0.next() {
            each(&record);
        }
    }
}

/// One map for each slot of counters, with a perf event by CPU.
pub(crate) struct Counters(Vec<MapData>);

impl Counters {
    /// The map of a slot.
    pub(super) fn name(slot: usize) -> String {
        format!("COUNTER{slot}")
    }

    fn take(ebpf: &mut Ebpf) -> Result<Self, SessionError> {
        let data = |slot| {
            let name = Self::name(slot);
            match take(ebpf, &name)? {
                Map::PerfEventArray(data) => Ok(data),
                _ => Err(missing(of(&name))),
            }
        };
        (0..SLOTS).map(data).collect::<Result<_, _>>().map(Self)
    }

    /// Hands the counter of a slot and CPU to the programs; the map keeps it alive.
    pub(crate) fn set(
        &self,
        slot: usize,
        cpu: u32,
        counter: BorrowedFd<'_>,
    ) -> Result<(), SessionError> {
        let name = Self::name(slot);
        let map = self.0.get(slot).ok_or_else(|| missing(of(&name)))?;
        bpf::set_perf_event(map.fd().as_fd(), cpu, counter)
            .map_err(|source| failed("hand a counter to", &name, source))
    }
}
