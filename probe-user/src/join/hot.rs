//! The addresses that sampled events were at, under the names that the view has for their owners.

use std::collections::BTreeMap;

use super::{Entity, Naming};
use crate::window::{Owner, SampledWindow};

/// Where samples of an event were, for one row of the view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// Whose they are.
    pub entity: Entity,
    /// Index into [`SampledWindow::events`].
    pub event: u8,
    /// Whether it is a data page.
    pub page: bool,
    /// Of an instruction; of a data page, the address of its first byte.
    pub address: u64,
    /// Process whose address it is; 0: the kernel's.
    pub tgid: u32,
}

/// Samples at a spot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpotCounts {
    /// Samples.
    pub samples: u64,
    /// The sum of their periods.
    pub periods: u64,
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
        let spot = Spot {
            entity,
            event: key.event,
            page: key.page,
            address: key.address,
            tgid: key.tgid,
        };
        let sum = spots.entry(spot).or_default();
        sum.samples += counts.samples;
        sum.periods = sum.periods.wrapping_add(counts.periods);
    }
    spots
}
