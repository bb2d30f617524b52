//! A table of addresses, in memory that is shared with the programs: reading its slots takes no
//! call.

use std::{mem::offset_of, os::fd::AsFd as _};

use aya::maps::{Map, MapData};
use probe_common::sample::{AddressKey, AddressRow, AddressSlot};
use rustix::mm::ProtFlags;

use super::{
    maps::{Taken, failed, of},
    missing, refused,
};
use crate::{session::SessionError, sys::ring::Mapping};

/// The slots of all CPUs.
pub(crate) struct Slots {
    mapping: Mapping,
    count: usize,
    /// Programs are loaded with its descriptor.
    _data: MapData,
}

impl Slots {
    #[cfg(test)]
    pub(super) const SIZES: super::maps::Sizes = [size_of::<u32>(), size_of::<AddressSlot>()];

    pub(super) fn open(Taken { name, map, .. }: Taken) -> Result<Self, SessionError> {
        let Map::Array(data) = map else {
            return Err(missing(of(name)));
        };
        let info = data.info().map_err(|error| refused(of(name), &error))?;
        let count = info.max_entries() as usize;
        let size = count * size_of::<AddressSlot>();
        let mapping = Mapping::new(data.fd().as_fd(), size, 0, ProtFlags::READ);
        Ok(Self {
            mapping: mapping.map_err(|source| failed("share the memory of", name, source))?,
            count,
            _data: data,
        })
    }

    /// The addresses of a generation to which no program adds any more.
    pub(crate) fn of(&self, generation: u64) -> impl Iterator<Item = (AddressKey, AddressRow)> {
        const GENERATION: usize =
            (offset_of!(AddressSlot, key) + offset_of!(AddressKey, generation)) / 8;
        let starts = (0..self.count).map(|slot| slot * AddressSlot::WORDS);
        let is_of = move |start: &usize| self.mapping.word(start + GENERATION) == generation;
        starts.filter(is_of).map(|start| {
            let words = std::array::from_fn(|at| self.mapping.word(start + at));
            let slot = AddressSlot::from_words(&words);
            (slot.key, slot.row)
        })
    }
}
