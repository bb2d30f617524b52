//! Who uses devices, read beside the counters: what cgroups moved on block devices, and who holds
//! the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt as _,
    sync::Arc,
    time::{Duration, Instant},
};

use probe_common::CgroupId;
use serde::{Deserialize, Serialize};

use super::{
    Devices,
    holders::{self, Holders},
    io_stat::{self, CgroupIo, Moved},
};
use crate::machine::{
    Bdf, Machine, Roots,
    cgroup::{CgroupError, Hierarchy},
};

/// Looking at every descriptor of the machine may take one part in this of the time.
const COST: u32 = 50;

/// What is known of the use of devices at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// Bytes that cgroups moved on block devices since they were made.
    pub io: Vec<CgroupIo>,
    /// Who holds which device.
    pub holders: Arc<HeldBy>,
    /// They were looked up at this moment, and not some time before.
    pub fresh: bool,
}

/// Who holds which device, by the ids of cgroups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBy {
    by_device: BTreeMap<Bdf, BTreeSet<CgroupId>>,
    by_kernel: BTreeSet<Bdf>,
    unreadable: bool,
}

/// The use of devices in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceDeltas {
    /// Bytes by block device (`major:minor`), of each cgroup itself.
    pub moved: BTreeMap<String, BTreeMap<CgroupId, Moved>>,
    /// Whoever held a device at the beginning or the end.
    pub holders: BTreeMap<Bdf, BTreeSet<CgroupId>>,
    /// Devices that the kernel drives for every process of the host.
    pub by_kernel: BTreeSet<Bdf>,
    /// The descriptors of some process could not be read.
    pub unreadable: bool,
    /// Nobody looked at one end of the window or the other: who held a device then is not known.
    pub stale: bool,
}

impl DeviceDeltas {
    /// What happened between two moments.
    #[must_use]
    pub fn between(earlier: &DeviceUse, later: &DeviceUse) -> Self {
        let mut deltas = Self {
            moved: io_stat::deltas(&earlier.io, &later.io),
            stale: !(earlier.fresh && later.fresh),
            ..Self::default()
        };
        for held in [&earlier.holders, &later.holders] {
            for (device, cgroups) in &held.by_device {
                deltas.holders.entry(*device).or_default().extend(cgroups);
            }
            deltas.by_kernel.extend(&held.by_kernel);
            deltas.unreadable |= held.unreadable;
        }
        deltas
    }
}

/// Reads the use of devices in a session whose metrics are about them.
pub(crate) struct DeviceReader {
    roots: Roots,
    hierarchy: Hierarchy,
    /// The plan has block devices.
    blocks: bool,
    /// As they were looked up last, and when that may be done again.
    holders: Option<(Arc<HeldBy>, Duration)>,
}

impl DeviceReader {
    /// A reader of the use of these devices.
    pub(crate) fn new(devices: &Devices, machine: &Machine, hierarchy: &Hierarchy) -> Self {
        Self {
            roots: machine.roots().clone(),
            hierarchy: hierarchy.clone(),
            blocks: devices
                .iter()
                .any(|(_, _, device)| !device.blocks.is_empty()),
            holders: None,
        }
    }

    /// # Errors
    /// The cgroup hierarchy cannot be read.
    pub(crate) fn read(&mut self, now: Duration) -> Result<DeviceUse, CgroupError> {
        let recent = self.holders.as_ref().filter(|(_, again)| now < *again);
        let fresh = recent.is_none();
        let holders = match recent {
            Some((holders, _)) => Arc::clone(holders),
            None => {
                let began = Instant::now();
                let read = holders::read(&self.roots.proc, &self.roots.sys);
                let holders = Arc::new(HeldBy::of(&read, &self.hierarchy));
                let took = began.elapsed();
                tracing::debug!("looked for the holders of devices in {took:?}");
                self.holders = Some((Arc::clone(&holders), now + COST * took));
                holders
            }
        };
        let io = if self.blocks {
            io_stat::read(&self.hierarchy)?
        } else {
            Vec::new()
        };
        Ok(DeviceUse { io, holders, fresh })
    }
}

impl HeldBy {
    fn of(holders: &Holders, hierarchy: &Hierarchy) -> Self {
        let id = |path: &String| {
            let directory = hierarchy.directory(path)?;
            Some(CgroupId(fs::metadata(directory).ok()?.ino()))
        };
        let by_device = holders.by_device.iter();
        Self {
            by_device: by_device
                .map(|(device, paths)| (*device, paths.iter().filter_map(id).collect()))
                .collect(),
            by_kernel: holders.by_kernel.clone(),
            unreadable: holders.unreadable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::tree::Tree;

    #[test]
    fn a_window_with_a_look_at_one_end_only_is_stale() {
        let at = |fresh| DeviceUse {
            fresh,
            ..DeviceUse::default()
        };
        for (begin, end) in [(true, true), (true, false), (false, true), (false, false)] {
            let deltas = DeviceDeltas::between(&at(begin), &at(end));
            assert_eq!(deltas.stale, !(begin && end), "{begin} {end}");
        }
    }

    /// Looking took some time: nobody looks again before fifty times that have passed.
    #[test]
    fn the_pace_is_that_of_the_cost() {
        let proc = Tree::new();
        let mount = "30 1 0:26 / /nowhere rw - cgroup2 cgroup2 rw\n";
        proc.write("self/mountinfo", mount);
        let hierarchy = Hierarchy::find(proc.path()).unwrap();
        let mut reader = DeviceReader {
            roots: Roots::below(proc.path()),
            hierarchy,
            blocks: false,
            holders: None,
        };
        let began = Duration::from_secs(1000);
        assert!(reader.read(began).unwrap().fresh);
        let (_, again) = reader.holders.clone().unwrap();
        assert!(again > began);
        assert!(!reader.read(again - Duration::from_nanos(1)).unwrap().fresh);
        assert!(reader.read(again).unwrap().fresh);
    }
}
