//! Hotspots: the addresses of samples of events, by function and by the row of their owner.

use std::{collections::BTreeMap, sync::Arc};

use super::{Entity, Naming};
use crate::{
    snapshot::{CodeLocation, SampledAddress},
    window::SampleWindow,
};

/// A function, address or data page with samples of an event, for one row of the view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hotspot {
    /// The row.
    pub entity: Entity,
    /// Index into [`SampleWindow::events`].
    pub event: u8,
    /// Whether it is a data page.
    pub page: bool,
    /// The function, if its file names it.
    pub function: Option<Arc<str>>,
    /// The file or other module that contains it, if known.
    pub module: Option<Arc<str>>,
    /// Build id of the file.
    pub build_id: Option<Arc<[u8]>>,
    /// For code without a function name: its address, relative to the module if that is known. For
    /// a data page: the address of its first byte. Else 0.
    pub address: u64,
    /// Process of an address without a function or file; 0 for all other addresses, and in the
    /// kernel.
    pub tgid: u32,
}

/// The samples at a hotspot, and what they represent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HotspotCounts {
    /// Number of samples.
    pub samples: u64,
    /// Number of events that the samples stand for.
    pub events: f64,
}

/// All hotspots of a window; hidden owners are left out.
pub(super) fn by_owner(window: &SampleWindow, naming: &Naming) -> BTreeMap<Hotspot, HotspotCounts> {
    let mut hotspots: BTreeMap<Hotspot, HotspotCounts> = BTreeMap::new();
    for (key, counts) in &window.addresses {
        let Some(entity) = naming.entity(key.into()) else {
            continue;
        };
        let location = window.places.get(&key.code_key()).filter(|_| !key.page);
        let sum = hotspots
            .entry(Hotspot::new(entity, key, location))
            .or_default();
        sum.samples += counts.samples;
        sum.events += counts.events;
    }
    hotspots
}

impl Hotspot {
    /// The hotspot of an address. All instructions of a function share one hotspot.
    fn new(entity: Entity, key: &SampledAddress, location: Option<&CodeLocation>) -> Self {
        let (tgid, address, _) = key.code_key();
        let unresolved = Self {
            entity,
            event: key.event,
            page: key.page,
            function: None,
            module: None,
            build_id: None,
            address,
            tgid,
        };
        match location {
            Some(location) if location.function.is_none() && &*location.module == "[unknown]" => {
                unresolved
            }
            // Another process has other code at this address.
            Some(location) if location.function.is_none() && &*location.module == "[jit]" => Self {
                module: Some(Arc::clone(&location.module)),
                ..unresolved
            },
            Some(location) => Self {
                function: location.function.clone(),
                module: Some(Arc::clone(&location.module)),
                build_id: location.build_id.clone(),
                address: location.function.as_ref().map_or(location.offset, |_| 0),
                tgid: 0,
                ..unresolved
            },
            None => unresolved,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_common::CgroupId;

    #[test]
    fn instructions_of_a_function_are_one_hotspot() {
        let key = |address, tgid| SampledAddress {
            cgroup: CgroupId(7),
            address,
            tgid,
            event: 0,
            page: false,
            image: 0,
        };
        let location = |function: Option<&str>, module: &str, offset| CodeLocation {
            function: function.map(Into::into),
            module: module.into(),
            build_id: None,
            offset,
        };
        let spot = |key: &SampledAddress, location: &CodeLocation| {
            Hotspot::new(Entity::System, key, Some(location))
        };
        let (a, b) = (
            location(Some("spin"), "/bin/a", 5),
            location(Some("spin"), "/bin/a", 9),
        );
        assert_eq!(spot(&key(5, 1), &a), spot(&key(9, 2), &b));
        // Without a function, each address of a file is one hotspot for all processes.
        let (c, d) = (location(None, "/bin/a", 5), location(None, "/bin/a", 9));
        assert_eq!(spot(&key(5, 1), &c), spot(&key(1005, 2), &c));
        assert_ne!(spot(&key(5, 1), &c), spot(&key(5, 1), &d));
        // Code without a file is its process's own.
        let jit = location(None, "[jit]", 5);
        assert_ne!(spot(&key(5, 1), &jit), spot(&key(5, 2), &jit));
        assert_eq!(spot(&key(5, 1), &jit).module.as_deref(), Some("[jit]"));
        // Unknown code is distinguished by its process.
        let unknown = location(None, "[unknown]", 5);
        assert_ne!(spot(&key(5, 1), &unknown), spot(&key(5, 2), &unknown));
        assert_eq!(
            Hotspot::new(Entity::System, &key(5, 1), None),
            spot(&key(5, 1), &unknown)
        );
    }
}
