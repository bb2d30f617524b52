//! Shares of device traffic: by the bytes that cgroups moved on block devices, or all of it to the
//! only holder of the device.

use std::collections::{BTreeMap, BTreeSet};

use probe_common::CgroupId;

use super::{NoShare, Shares, Weight};
use crate::{
    catalogue::Apportion,
    devices::{Device, DeviceDeltas, IoBytes},
    join::{By, Naming},
    window::{Owner, Window},
};

/// The shares of `measured` counts, which these devices caused together.
pub(super) fn shares(
    apportion: Apportion,
    devices: &[&Device],
    measured: u64,
    window: &Window,
    naming: &Naming,
) -> Result<Shares, NoShare> {
    if naming.view.by == By::Process {
        return Err(NoShare::NotOfProcesses);
    }
    let deltas = window.sources.devices.as_ref().ok_or(NoShare::NoDevice)?;
    if devices.is_empty() {
        return Err(NoShare::NoDevice);
    }
    let blocks = devices.iter().filter(|device| !device.blocks.is_empty());
    match blocks.count() {
        0 => {
            let owner = only_owner(devices, deltas, naming)?;
            Ok(Shares::of_device(measured, owner))
        }
        count if count == devices.len() => {
            let bytes = bytes(apportion, devices, deltas)?;
            Shares::of_block_device(measured, &bytes)
        }
        _ => Err(NoShare::SeveralDevices),
    }
}

/// Bytes that each cgroup read or wrote on block devices, in the direction of the metric.
fn bytes(
    apportion: Apportion,
    devices: &[&Device],
    deltas: &DeviceDeltas,
) -> Result<BTreeMap<Owner, Weight>, NoShare> {
    // A write to a disk is a read of memory by the disk.
    let bytes_of = |moved: &IoBytes| match apportion {
        Apportion::DeviceRead => Ok(moved.written),
        Apportion::DeviceWrite => Ok(moved.read),
        Apportion::DeviceBoth => Ok(moved.written.saturating_add(moved.read)),
        // Doorbells and registers carry no cgroup's data.
        _ => Err(NoShare::ThroughKernel),
    };
    let mut weights: BTreeMap<Owner, Weight> = BTreeMap::new();
    let blocks = devices.iter().flat_map(|device| &device.blocks);
    for of_block in blocks.filter_map(|block| deltas.moved.get(block)) {
        for (cgroup, moved) in of_block {
            let count = bytes_of(moved)?;
            let weight = weights.entry(Owner::from(*cgroup)).or_default();
            weight.weight = weight.weight.saturating_add(count);
            weight.samples = weight.weight;
        }
    }
    // Some metrics cannot be divided by bytes: they have no shares, even if no device moved
    // anything.
    bytes_of(&IoBytes::default())?;
    Ok(weights)
}

/// The owner, if all holders of the devices are one row of the view.
fn only_owner(
    devices: &[&Device],
    deltas: &DeviceDeltas,
    naming: &Naming,
) -> Result<Owner, NoShare> {
    let mut holders: BTreeSet<CgroupId> = BTreeSet::new();
    // Functions of one card, such as the audio of a GPU, belong together: the holder of one
    // function holds the card.
    let card = |device: &Device| {
        (
            device.address.domain,
            device.address.bus,
            device.address.device,
        )
    };
    let mut cards: BTreeMap<_, bool> = BTreeMap::new();
    for device in devices {
        if deltas.by_kernel.contains(&device.address) {
            return Err(NoShare::ThroughKernel);
        }
        let of_device = deltas.holders.get(&device.address);
        holders.extend(of_device.into_iter().flatten());
        *cards.entry(card(device)).or_default() |= of_device.is_some();
    }
    let entity = |cgroup: &CgroupId| naming.entity(Owner::from(*cgroup));
    let entities: BTreeSet<_> = holders.iter().map(entity).collect();
    match (holders.first(), entities.len()) {
        (Some(_), 2..) => Err(NoShare::SeveralOwners),
        (Some(_), _) if cards.values().any(|held| !held) => Err(NoShare::SeveralDevices),
        (None, _) | (Some(_), _) if deltas.unreadable => Err(NoShare::Unreadable),
        _ if deltas.stale => Err(NoShare::Stale),
        (Some(first), _) => Ok(Owner::from(*first)),
        (None, _) => Err(NoShare::NoOwner),
    }
}
