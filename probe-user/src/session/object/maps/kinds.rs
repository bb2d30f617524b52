//! The kinds of maps, and the operations of each.

use std::{
    collections::BTreeMap,
    marker::PhantomData,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd},
    sync::Arc,
};

use aya::{
    Ebpf, Pod,
    maps::{Map, MapData, PerCpuArray, RingBuf},
};
use probe_common::{Plain, SLOTS};

use super::{
    super::{io_error, missing, refused},
    Sizes, failed, label, take,
};
use crate::{machine::cpus::CpuList, session::SessionError, sys::bpf};

/// A map taken out of the object.
pub(in super::super) struct TakenMap {
    pub(in super::super) name: &'static str,
    pub(in super::super) map: Map,
    /// The CPUs for which a per-CPU map has values.
    pub(super) possible: Arc<CpuList>,
}

/// The data of a map for raw bpf(2) calls. Raw calls rely on the sizes of key and value, so these
/// are compared with the kernel's.
fn checked_data(name: &str, map: Map, sizes: Sizes) -> Result<MapData, SessionError> {
    let (Map::HashMap(data) | Map::LruHashMap(data) | Map::Queue(data)) = map else {
        return Err(missing(label(name)));
    };
    let info = data.info().map_err(|error| refused(label(name), &error))?;
    let found = [info.key_size(), info.value_size()].map(|bytes| bytes as usize);
    if found == sizes {
        Ok(data)
    } else {
        Err(SessionError::Bpf {
            what: label(name),
            reason: format!("it has {found:?} bytes a key and value, not {sizes:?}"),
        })
    }
}

/// A hash map. The kernel refuses a call that meets a busy map; such a call is repeated.
pub(crate) struct Hash<K, V> {
    name: &'static str,
    data: MapData,
    types: PhantomData<(K, V)>,
}

impl<K: Plain<Raw: Pod>, V: Plain<Raw: Pod>> Hash<K, V> {
    pub(super) const SIZES: Sizes = [size_of::<K>(), size_of::<V>()];

    pub(super) fn open(TakenMap { name, map, .. }: TakenMap) -> Result<Self, SessionError> {
        Ok(Self {
            name,
            data: checked_data(name, map, Self::SIZES)?,
            types: PhantomData,
        })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.data.fd().as_fd()
    }

    /// Every row, in a few calls (kernel 5.6). Rows that are inserted meanwhile may be missing.
    pub(crate) fn all(&self) -> Result<Vec<(K, V)>, SessionError> {
        let row = |key: &K::Raw, value: &V::Raw| (K::from_raw(key), V::from_raw(value));
        bpf::lookup_all(self.fd(), row).map_err(|source| failed("read", self.name, source))
    }

    /// The value of a row; None if there is no such row.
    pub(crate) fn get(&self, key: &K) -> Result<Option<V>, SessionError> {
        let value = bpf::lookup::<_, V::Raw>(self.fd(), &key.to_raw())
            .map_err(|source| failed("read", self.name, source))?;
        Ok(value.map(|value| V::from_raw(&value)))
    }

    /// Inserts or replaces a row.
    pub(crate) fn put(&self, key: &K, value: &V) -> Result<(), SessionError> {
        bpf::put(self.fd(), &key.to_raw(), &value.to_raw())
            .map_err(|source| failed("write to", self.name, source))
    }

    /// Inserts a row if there is none.
    pub(crate) fn add(&self, key: &K, value: &V) -> Result<(), SessionError> {
        bpf::add(self.fd(), &key.to_raw(), &value.to_raw())
            .map_err(|source| failed("write to", self.name, source))
    }

    /// The kernel's id of the map, unique since boot.
    pub(crate) fn id(&self) -> Result<u32, SessionError> {
        let info = self
            .data
            .info()
            .map_err(|error| refused(label(self.name), &error))?;
        Ok(info.id())
    }

    /// Removes a row and returns its last value (kernel 5.14); None if there is no such row.
    pub(crate) fn take(&self, key: &K) -> Result<Option<V>, SessionError> {
        let value = bpf::take::<_, V::Raw>(self.fd(), &key.to_raw())
            .map_err(|source| failed("free a row of", self.name, source))?;
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
    pub(super) const SIZES: Sizes = [0, size_of::<V>()];

    pub(super) fn open(TakenMap { name, map, .. }: TakenMap) -> Result<Self, SessionError> {
        Ok(Self {
            name,
            data: checked_data(name, map, Self::SIZES)?,
            types: PhantomData,
        })
    }

    /// Takes all values out of the queue.
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
    pub(super) const SIZES: Sizes = [size_of::<u32>(), size_of::<V>()];

    pub(super) fn open(TakenMap { name, map, .. }: TakenMap) -> Result<Self, SessionError> {
        let map = map
            .try_into()
            .map_err(|error| refused(label(name), &error))?;
        Ok(Self { name, map })
    }

    pub(crate) fn get(&self, index: u32) -> Result<V, SessionError> {
        let value = self
            .map
            .get(&index, 0)
            .map_err(|error| failed("read", self.name, io_error(error)))?;
        Ok(V::from_raw(&value))
    }

    pub(crate) fn set(&mut self, index: u32, value: &V) -> Result<(), SessionError> {
        self.map
            .set(index, value.to_raw(), 0)
            .map_err(|error| failed("write to", self.name, io_error(error)))
    }
}

/// An array with a value for each CPU at each index.
pub(crate) struct PerCpu<V: Plain<Raw: Pod>> {
    name: &'static str,
    map: PerCpuArray<MapData, V::Raw>,
    possible: Arc<CpuList>,
}

impl<V: Plain<Raw: Pod>> PerCpu<V> {
    #[cfg(test)]
    pub(super) const SIZES: Sizes = [size_of::<u32>(), size_of::<V>()];

    pub(super) fn open(taken: TakenMap) -> Result<Self, SessionError> {
        let TakenMap {
            name,
            map,
            possible,
        } = taken;
        let map = map
            .try_into()
            .map_err(|error| refused(label(name), &error))?;
        Ok(Self {
            name,
            map,
            possible,
        })
    }

    /// The value of every possible CPU, by the CPU's number.
    pub(crate) fn get(&self, index: u32) -> Result<BTreeMap<u32, V>, SessionError> {
        let values = self
            .map
            .get(&index, 0)
            .map_err(|error| failed("read", self.name, io_error(error)))?;
        Ok(by_cpu(&self.possible, values.iter().map(V::from_raw)))
    }
}

/// The values by CPU number. The kernel packs the values of the possible CPUs: a number that no CPU
/// has takes no space.
fn by_cpu<V>(possible: &CpuList, values: impl Iterator<Item = V>) -> BTreeMap<u32, V> {
    possible.iter().zip(values).collect()
}

/// A ring of records.
pub(crate) struct RingMap(RingBuf<MapData>);

impl RingMap {
    #[cfg(test)]
    pub(super) const SIZES: Sizes = [0, 0];

    pub(super) fn open(TakenMap { name, map, .. }: TakenMap) -> Result<Self, SessionError> {
        let ring = RingBuf::try_from(map).map_err(|error| refused(label(name), &error))?;
        Ok(Self(ring))
    }

    /// The ring's descriptor, which is readable when records are waiting.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the map has the descriptor as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.raw_fd()) }
    }

    /// The ring's descriptor, which is readable when records are waiting.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Takes every record out of the ring.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(&[u8])) {
        while let Some(record) = self.0.next() {
            each(&record);
        }
    }
}

/// One map for each slot of counters, with a perf event for each possible CPU. The events are
/// packed, since aya sizes such maps by the number of possible CPUs.
pub(crate) struct CounterMaps {
    slots: Vec<MapData>,
    possible: Arc<CpuList>,
}

impl CounterMaps {
    /// The name of a slot's map.
    pub(in super::super) fn name(slot: usize) -> String {
        format!("COUNTER{slot}")
    }

    pub(super) fn take(ebpf: &mut Ebpf, possible: Arc<CpuList>) -> Result<Self, SessionError> {
        let data = |slot| {
            let name = Self::name(slot);
            match take(ebpf, &name)? {
                Map::PerfEventArray(data) => Ok(data),
                _ => Err(missing(label(&name))),
            }
        };
        let slots = (0..SLOTS).map(data).collect::<Result<_, _>>()?;
        Ok(Self { slots, possible })
    }

    /// The index of a CPU's counter in each map. The programs have it in
    /// [`CpuState::place`](probe_common::CpuState::place).
    pub(crate) fn index_of(&self, cpu: u32) -> Result<u32, SessionError> {
        self.possible
            .position(cpu)
            .and_then(|index| u32::try_from(index).ok())
            .ok_or(SessionError::NotPossible(cpu))
    }

    /// Gives the programs the counter of a slot and CPU. The map keeps it open.
    pub(crate) fn set(
        &self,
        slot: usize,
        cpu: u32,
        counter: BorrowedFd<'_>,
    ) -> Result<(), SessionError> {
        let name = Self::name(slot);
        let map = self.slots.get(slot).ok_or_else(|| missing(label(&name)))?;
        bpf::set_perf_event(map.fd().as_fd(), self.index_of(cpu)?, counter)
            .map_err(|source| failed("hand a counter to", &name, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The firmware of some arm64 machines numbers CPUs with gaps.
    #[test]
    fn values_belong_to_the_possible_cpus_in_order() {
        let possible: CpuList = "0-1,4-5".parse().unwrap();
        let values = by_cpu(&possible, ["a", "b", "c", "d"].into_iter());
        assert_eq!(values, [(0, "a"), (1, "b"), (4, "c"), (5, "d")].into());
    }
}
