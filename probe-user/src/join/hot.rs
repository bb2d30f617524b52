//! The addresses that sampled events were at, under the names that the view has for their owners.

use std::{collections::BTreeMap, sync::Arc};

use super::{Entity, Naming};
use crate::{
    snapshot::{Place, SampledAddress},
    window::{Owner, SampledWindow},
};

/// Where samples of an event were, for one row of the view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// The row that they belong to.
    pub entity: Entity,
    /// Index into [`SampledWindow::events`].
    pub event: u8,
    /// Whether it is a data page.
    pub page: bool,
    /// The function, where its file names it.
    pub function: Option<Arc<str>>,
    /// The file or other thing that it is in, where that is known.
    pub module: Option<Arc<str>>,
    /// Of the file.
    pub build_id: Option<Arc<[u8]>>,
    /// Of a place without a function: its address, in the module where that is known. Of a data
    /// page, the address of its first byte.
    pub address: u64,
    /// Process whose address it is, where it has no function and is in no file; 0: the kernel's.
    pub tgid: u32,
}

/// Samples at a spot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpotCounts {
    /// Samples.
    pub samples: u64,
    /// What they stand for.
    pub events: f64,
}

/// All spots of a window; who is not shown is left out.
pub(super) fn by_owner(window: &SampledWindow, naming: &Naming) -> BTreeMap<Spot, SpotCounts> {
    let mut spots: BTreeMap<Spot, SpotCounts> = BTreeMap::new();
    for (key, counts) in &window.addresses {
        let owner = Owner {
            cgroup: key.cgroup,
            tgid: key.tgid,
        };
        let Some(entity) = naming.entity(owner) else {
            continue;
        };
        let place = window.places.get(&key.place()).filter(|_| !key.page);
        let sum = spots.entry(Spot::of(entity, key, place)).or_default();
        sum.samples += counts.samples;
        sum.events += counts.events;
    }
    spots
}

impl Spot {
    /// Instructions of one function are one spot.
    fn of(entity: Entity, key: &SampledAddress, place: Option<&Place>) -> Self {
        let (tgid, address, _) = key.place();
        let plain = Self {
            entity,
            event: key.event,
            page: key.page,
            function: None,
            module: None,
            build_id: None,
            address,
            tgid,
        };
        match place {
            // The place is unknown.
            Some(place) if place.function.is_none() && &*place.module == "[unknown]" => plain,
            // Another process has other code there.
            Some(place) if place.function.is_none() && &*place.module == "[jit]" => Self {
                module: Some(Arc::clone(&place.module)),
                ..plain
            },
            Some(place) => Self {
                function: place.function.clone(),
                module: Some(Arc::clone(&place.module)),
                build_id: place.build_id.clone(),
                address: place.function.as_ref().map_or(place.offset, |_| 0),
                tgid: 0,
                ..plain
            },
            None => plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_common::CgroupId;

    #[test]
    fn instructions_of_a_function_are_one_spot_and_others_their_own() {
        let key = |address, tgid| SampledAddress {
            cgroup: CgroupId(7),
            address,
            tgid,
            event: 0,
            page: false,
            image: 0,
        };
        let place = |function: Option<&str>, module: &str, offset| Place {
            function: function.map(Into::into),
            module: module.into(),
            build_id: None,
            offset,
        };
        let spot = |key: &SampledAddress, place: &Place| Spot::of(Entity::System, key, Some(place));
        let (a, b) = (
            place(Some("spin"), "/bin/a", 5),
            place(Some("spin"), "/bin/a", 9),
        );
        assert_eq!(spot(&key(5, 1), &a), spot(&key(9, 2), &b));
        // Without a function each address of a file is a spot, the same in all processes.
        let (c, d) = (place(None, "/bin/a", 5), place(None, "/bin/a", 9));
        assert_eq!(spot(&key(5, 1), &c), spot(&key(1005, 2), &c));
        assert_ne!(spot(&key(5, 1), &c), spot(&key(5, 1), &d));
        // Code without a file is its process's own.
        let jit = place(None, "[jit]", 5);
        assert_ne!(spot(&key(5, 1), &jit), spot(&key(5, 2), &jit));
        assert_eq!(spot(&key(5, 1), &jit).module.as_deref(), Some("[jit]"));
        // What nothing is known of is told by its process.
        let unknown = place(None, "[unknown]", 5);
        assert_ne!(spot(&key(5, 1), &unknown), spot(&key(5, 2), &unknown));
        assert_eq!(
            Spot::of(Entity::System, &key(5, 1), None),
            spot(&key(5, 1), &unknown)
        );
    }
}
