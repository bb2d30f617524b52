//! Use of devices, read together with the counters: bytes that cgroups moved on block devices, and
//! holders of other devices.

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
    holders::{self, HolderPaths},
    io_stat::{self, CgroupIo, IoBytes},
};
use crate::machine::{
    Bdf, Machine, Roots,
    cgroup::{CgroupError, Hierarchy},
};

/// Scans of all descriptors of the machine may take at most 1/`RESCAN_DIVISOR` of the time.
const RESCAN_DIVISOR: u32 = 50;

/// The use of devices at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// Bytes that cgroups moved on block devices since their creation.
    pub io: Vec<CgroupIo>,
    /// The holders of each device.
    pub holders: Arc<DeviceHolders>,
    /// Whether holders were scanned for this reading, not for an earlier one.
    pub fresh: bool,
}

/// The holders of each device, as ids of cgroups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceHolders {
    by_device: BTreeMap<Bdf, BTreeSet<CgroupId>>,
    /// As [`HolderPaths::by_kernel`].
    by_kernel: BTreeSet<Bdf>,
    /// As [`HolderPaths::unreadable`].
    unreadable: bool,
}

/// The use of devices in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceDeltas {
    /// Bytes that each cgroup itself moved, by block device (`major:minor`).
    pub moved: BTreeMap<String, BTreeMap<CgroupId, IoBytes>>,
    /// Holders of each device at the start or the end of the window.
    pub holders: BTreeMap<Bdf, BTreeSet<CgroupId>>,
    /// Devices that the kernel drives for every process of the host.
    pub by_kernel: BTreeSet<Bdf>,
    /// Whether descriptors of a process could not be read.
    pub unreadable: bool,
    /// Whether holders at the start or the end of the window are from an earlier scan.
    pub stale: bool,
}

impl DeviceDeltas {
    /// The use between two readings.
    #[must_use]
    pub fn between(earlier: &DeviceUse, later: &DeviceUse) -> Self {
        let mut deltas = Self {
            moved: io_stat::deltas(&earlier.io, &later.io),
            stale: !(earlier.fresh && later.fresh),
            ..Self::default()
        };
        for holders in [&earlier.holders, &later.holders] {
            for (device, cgroups) in &holders.by_device {
                deltas.holders.entry(*device).or_default().extend(cgroups);
            }
            deltas.by_kernel.extend(&holders.by_kernel);
            deltas.unreadable |= holders.unreadable;
        }
        deltas
    }
}

/// Reads the use of devices for a session with metrics of devices.
pub(crate) struct DeviceReader {
    roots: Roots,
    hierarchy: Hierarchy,
    /// Whether there are block devices.
    blocks: bool,
    /// Result of the last scan, and the time from which the next scan may run.
    holders: Option<(Arc<DeviceHolders>, Duration)>,
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

    /// Reads the use of devices. Holders are those of an earlier scan if the next may not run
    /// `now`.
    ///
    /// # Errors
    /// The cgroup hierarchy cannot be read.
    pub(crate) fn read(&mut self, now: Duration) -> Result<DeviceUse, CgroupError> {
        let recent = self
            .holders
            .as_ref()
            .filter(|(_, next_scan)| now < *next_scan);
        let fresh = recent.is_none();
        let holders = match recent {
            Some((holders, _)) => Arc::clone(holders),
            None => {
                let start = Instant::now();
                let paths = holders::read(&self.roots.proc, &self.roots.sys);
                let holders = Arc::new(DeviceHolders::from_paths(&paths, &self.hierarchy));
                let elapsed = start.elapsed();
                tracing::debug!("looked for the holders of devices in {elapsed:?}");
                self.holders = Some((Arc::clone(&holders), now + RESCAN_DIVISOR * elapsed));
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

impl DeviceHolders {
    fn from_paths(holders: &HolderPaths, hierarchy: &Hierarchy) -> Self {
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
    use test_support::Tree;

    use super::*;

    #[test]
    fn a_window_without_scans_at_both_ends_is_stale() {
        let reading = |fresh| DeviceUse {
            fresh,
            ..DeviceUse::default()
        };
        for (begin, end) in [(true, true), (true, false), (false, true), (false, false)] {
            let deltas = DeviceDeltas::between(&reading(begin), &reading(end));
            assert_eq!(deltas.stale, !(begin && end), "{begin} {end}");
        }
    }

    /// So that rescans take at most 2% of the time.
    #[test]
    fn the_next_scan_waits_in_proportion_to_its_cost() {
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
        let first_scan = Duration::from_secs(1000);
        assert!(reader.read(first_scan).unwrap().fresh);
        let (_, next_scan) = reader.holders.clone().unwrap();
        assert!(next_scan > first_scan);
        assert!(
            !reader
                .read(next_scan - Duration::from_nanos(1))
                .unwrap()
                .fresh
        );
        assert!(reader.read(next_scan).unwrap().fresh);
    }
}
