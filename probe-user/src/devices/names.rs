//! Names of PCI devices in the kernel, from the directories of `class/`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path},
};

use crate::machine::Bdf;

/// Classes with names that users know, most specific first.
const CLASSES: [&str; 6] = ["nvme", "net", "infiniband", "drm", "accel", "block"];

/// Names of a device, and its block devices as `major:minor`.
#[derive(Debug, Default)]
pub(super) struct DeviceNames {
    pub(super) names: Vec<String>,
    pub(super) blocks: Vec<String>,
}

/// The names of all PCI devices that have one.
pub(super) fn read(sysfs: &Path) -> BTreeMap<Bdf, DeviceNames> {
    let mut all: BTreeMap<Bdf, DeviceNames> = BTreeMap::new();
    for class in CLASSES {
        let dir = sysfs.join("class").join(class);
        let mut entries: Vec<_> = fs::read_dir(&dir).into_iter().flatten().flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            // Skips further nodes of a device: render nodes and connectors (renderD128 and
            // card0-HDMI-A-1 of card0), and partitions of a disk.
            let is_secondary = class == "drm" && (!name.starts_with("card") || name.contains('-'));
            let path = entry.path();
            if is_secondary || path.join("partition").exists() {
                continue;
            }
            let Some(address) = fs::canonicalize(&path).ok().as_deref().and_then(address_of) else {
                continue;
            };
            let of_device = all.entry(address).or_default();
            if class == "block"
                && let Ok(number) = fs::read_to_string(path.join("dev"))
            {
                of_device.blocks.push(number.trim().to_owned());
            }
            of_device.names.push(name);
        }
    }
    all
}

/// The last PCI function in a path of `devices/`; `None` if there is none.
pub(super) fn address_of(path: &Path) -> Option<Bdf> {
    let mut components = path.components().rev();
    components.find_map(|component| match component {
        Component::Normal(name) => name.to_str()?.parse().ok(),
        _ => None,
    })
}
