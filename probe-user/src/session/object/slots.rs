//! A table of sampled addresses or pages. Its memory is shared with the programs, so that reading
//! its slots takes no system call.

use std::{mem::offset_of, os::fd::AsFd as _};

use aya::maps::{Map, MapData};
use probe_common::sample::{AddressKey, AddressRow, AddressSlot};
use rustix::mm::ProtFlags;

use super::{
    maps::{TakenMap, failed, label},
    missing, refused,
};
use crate::{session::SessionError, sys::ring::SharedMapping};

/// The slots of all CPUs in one table.
pub(crate) struct Slots {
    mapping: SharedMapping,
    count: usize,
    /// Keeps the map's descriptor open: programs are loaded with it.
    _data: MapData,
}

impl Slots {
    #[cfg(test)]
    pub(super) const SIZES: super::maps::Sizes = [size_of::<u32>(), size_of::<AddressSlot>()];

    pub(super) fn open(TakenMap { name, map, .. }: TakenMap) -> Result<Self, SessionError> {
        let Map::Array(data) = map else {
            return Err(missing(label(name)));
        };
        let info = data.info().map_err(|error| refused(label(name), &error))?;
        let count = info.max_entries() as usize;
        let size = count * size_of::<AddressSlot>();
        let mapping = SharedMapping::new(data.fd().as_fd(), size, 0, ProtFlags::READ);
        Ok(Self {
            mapping: mapping.map_err(|source| failed("share the memory of", name, source))?,
            count,
            _data: data,
        })
    }

    /// The rows of a generation. It must be closed: no program adds to it any more.
    pub(crate) fn rows_of_generation(
        &self,
        generation: u64,
    ) -> impl Iterator<Item = (AddressKey, AddressRow)> {
        const GENERATION: usize =
            (offset_of!(AddressSlot, key) + offset_of!(AddressKey, generation)) / 8;
        let starts = (0..self.count).map(|slot| slot * AddressSlot::WORDS);
        let in_generation =
            move |start: &usize| self.mapping.word(start + GENERATION) == generation;
        starts.filter(in_generation).map(|start| {
            let words = std::array::from_fn(|at| self.mapping.word(start + at));
            let slot = AddressSlot::from_words(&words);
            (slot.key, slot.row)
        })
    }
}
