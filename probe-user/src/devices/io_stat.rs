//! Bytes that cgroups moved on block devices, by `major:minor`: `io.stat` of cgroup2
//! (Documentation/admin-guide/cgroup-v2.rst, "IO Interface Files").
//!
//! The file of a cgroup includes its descendants, also removed ones. The cgroup's own bytes are the
//! file's minus those of the descendants. A cgroup without the io controller has no such file: its
//! bytes count for the nearest ancestor with one.

use std::{collections::BTreeMap, fs};

use probe_common::CgroupId;
use serde::{Deserialize, Serialize};

use crate::machine::{
    cgroup::{CgroupError, Hierarchy},
    io_stat::numbers,
};

/// Bytes read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoBytes {
    /// Bytes read from the block device.
    pub read: u64,
    /// Bytes written to the block device.
    pub written: u64,
}

/// The `io.stat` of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupIo {
    /// The cgroup.
    pub id: CgroupId,
    /// Its path.
    pub path: String,
    /// Bytes by `major:minor`, of this cgroup and its descendants, since their creation.
    pub total: BTreeMap<String, IoBytes>,
}

/// Reads the file of every cgroup that has one.
///
/// # Errors
/// The hierarchy cannot be read.
pub(super) fn read(hierarchy: &Hierarchy) -> Result<Vec<CgroupIo>, CgroupError> {
    let cgroups = hierarchy.walk()?.into_iter();
    let io = cgroups.filter_map(|(id, path)| {
        let file = hierarchy.directory(&path)?.join("io.stat");
        let total = parse(&fs::read_to_string(file).ok()?);
        Some(CgroupIo { id, path, total })
    });
    Ok(io.collect())
}

/// The bytes by device (`major:minor`).
fn parse(text: &str) -> BTreeMap<String, IoBytes> {
    let mut by_device: BTreeMap<String, IoBytes> = BTreeMap::new();
    for (device, name, value) in numbers(text) {
        let moved = by_device.entry(device.to_owned()).or_default();
        match name {
            "rbytes" => moved.read = value,
            "wbytes" => moved.written = value,
            _ => {}
        }
    }
    by_device
}

/// Bytes that each cgroup itself moved between two readings, by device. Bytes of a cgroup removed
/// between the readings count for its parent.
#[must_use]
pub(super) fn deltas(
    earlier: &[CgroupIo],
    later: &[CgroupIo],
) -> BTreeMap<String, BTreeMap<CgroupId, IoBytes>> {
    let before: BTreeMap<CgroupId, &CgroupIo> =
        earlier.iter().map(|cgroup| (cgroup.id, cgroup)).collect();
    let delta = |cgroup: &CgroupIo, device: &str, now: &IoBytes| {
        let moved = before.get(&cgroup.id).and_then(|old| old.total.get(device));
        let old = moved.copied().unwrap_or_default();
        IoBytes {
            read: now.read.saturating_sub(old.read),
            written: now.written.saturating_sub(old.written),
        }
    };
    let by_path: BTreeMap<&str, CgroupId> = later
        .iter()
        .map(|cgroup| (cgroup.path.as_str(), cgroup.id))
        .collect();
    let mut own: BTreeMap<String, BTreeMap<CgroupId, IoBytes>> = BTreeMap::new();
    for cgroup in later {
        for (device, now) in &cgroup.total {
            let of_device = own.entry(device.clone()).or_default();
            of_device.insert(cgroup.id, delta(cgroup, device, now));
        }
    }
    for cgroup in later {
        let Some(parent) = nearest_ancestor(&cgroup.path, &by_path) else {
            continue;
        };
        for (device, now) in &cgroup.total {
            let delta = delta(cgroup, device, now);
            if let Some(above) = own.get_mut(device).and_then(|it| it.get_mut(&parent)) {
                // Files are read one after the other, so a descendant may show more than its
                // ancestor.
                above.read = above.read.saturating_sub(delta.read);
                above.written = above.written.saturating_sub(delta.written);
            }
        }
    }
    for of_device in own.values_mut() {
        of_device.retain(|_, moved| *moved != IoBytes::default());
    }
    own.retain(|_, of_device| !of_device.is_empty());
    own
}

/// The nearest ancestor of a path that is in `by_path`.
fn nearest_ancestor(path: &str, by_path: &BTreeMap<&str, CgroupId>) -> Option<CgroupId> {
    let mut path = path.trim_end_matches('/');
    while let Some((above, _)) = path.rsplit_once('/') {
        let name = if above.is_empty() { "/" } else { above };
        if let Some(id) = by_path.get(name) {
            return Some(*id);
        }
        path = above;
    }
    None
}

#[cfg(test)]
mod tests {
    use test_support::Tree;

    use super::*;

    const NVME: &str = "259:0";

    fn io(id: u64, path: &str, read: u64, written: u64) -> CgroupIo {
        let moved = IoBytes { read, written };
        CgroupIo {
            id: CgroupId(id),
            path: path.to_owned(),
            total: [(NVME.to_owned(), moved)].into(),
        }
    }

    fn nvme_deltas(earlier: &[CgroupIo], later: &[CgroupIo]) -> Vec<(u64, u64, u64)> {
        let deltas = deltas(earlier, later);
        let by_cgroup = deltas.get(NVME).into_iter().flatten();
        by_cgroup
            .map(|(id, moved)| (id.0, moved.read, moved.written))
            .collect()
    }

    #[test]
    fn io_stat_is_parsed() {
        let text = "259:0 rbytes=4096 wbytes=512 rios=1 wios=2 dbytes=0 dios=0\n8:16 \n\
                    7:0 rbytes=x\n";
        let read = parse(text);
        assert_eq!(
            read[NVME],
            IoBytes {
                read: 4096,
                written: 512
            }
        );
        assert_eq!(read.len(), 1, "a device without numbers has moved nothing");
    }

    /// The cgroups are a pod with two containers, below slices without the io controller.
    #[test]
    fn own_bytes_exclude_descendants() {
        let earlier = [
            io(1, "/", 1000, 100),
            io(2, "/kubepods.slice/pod", 700, 70),
            io(3, "/kubepods.slice/pod/a", 500, 50),
        ];
        let later = [
            io(1, "/", 2000, 100),
            io(2, "/kubepods.slice/pod", 1600, 70),
            io(3, "/kubepods.slice/pod/a", 900, 50),
            io(4, "/kubepods.slice/pod/b", 450, 0),
        ];
        // Of 1,000 bytes the pod read 900, its containers 400 and 450.
        assert_eq!(
            nvme_deltas(&earlier, &later),
            [(1, 100, 0), (2, 50, 0), (3, 400, 0), (4, 450, 0)]
        );
    }

    #[test]
    fn bytes_of_a_removed_cgroup_count_for_its_parent() {
        let earlier = [io(1, "/", 100, 0), io(2, "/a", 80, 0)];
        assert_eq!(nvme_deltas(&earlier, &[io(1, "/", 130, 0)]), [(1, 30, 0)]);
    }

    #[test]
    fn the_hierarchy_is_read_with_ids() {
        let root = Tree::new();
        root.dir("a/b");
        root.write("a/io.stat", "259:0 rbytes=7 wbytes=8\n");
        let hierarchy = Hierarchy {
            mount: root.path().to_owned(),
            root: "/".to_owned(),
        };
        let all = read(&hierarchy).unwrap();
        let [cgroup] = all.as_slice() else {
            panic!("{all:?}")
        };
        assert_eq!(
            (cgroup.path.as_str(), cgroup.total[NVME].written),
            ("/a", 8)
        );
        assert_ne!(cgroup.id, CgroupId(0));
    }
}
