//! Which PCI devices an uncore PMU counts: data of its entry in the catalogue.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Catalogue, Platform,
    model::{Family, PmuSpec},
    template::Instance,
};

/// How to find the devices that an instance of a PMU counts, and the terms that select some of
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// How to find the devices.
    pub by: FoundBy,
    /// The term with a bit for each root port, or for each part of a stack.
    pub ports: Option<String>,
    /// The term that takes the requester id of one PCI function. It needs the term
    /// `<requester>_en`, and 0 in `ports`.
    pub requester: Option<String>,
    /// For the PMU of a stack: which of its parts count which devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackSpec>,
}

/// Which parts of a stack count the devices on its root bus.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StackSpec {
    /// The PCI device number of the root port on part 0; those on the next parts follow it.
    pub first_device: u32,
    /// The part that counts all devices behind the chipset.
    pub dmi: u32,
    /// Accelerators, which are on no root port.
    #[serde(default)]
    pub accelerators: Vec<Accelerator>,
}

/// An accelerator on the root bus of a stack, or on one of the [`Accelerator::BUSES`] behind it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Accelerator {
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// The parts that count it; with `dies`, the parts that it may be on.
    pub parts: Vec<u32>,
    /// Its part by die, if dies differ.
    #[serde(default)]
    pub dies: Vec<DiePart>,
}

/// The part of an accelerator on one layout of the die.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DiePart {
    /// The unit that leads to the chipset, which identifies the layout.
    pub dmi_unit: u32,
    /// The part.
    pub part: u32,
}

impl Accelerator {
    /// The number of accelerator buses after the root bus of a stack.
    pub const BUSES: u8 = 3;
}

impl StackSpec {
    /// The accelerator with these ids.
    #[must_use]
    pub fn accelerator(&self, vendor: u16, device: u16) -> Option<&Accelerator> {
        let mut all = self.accelerators.iter();
        all.find(|one| (one.vendor, one.device) == (vendor, device))
    }
}

/// How to find which devices a PMU counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundBy {
    /// By their PCI domain: the socket times 16 plus the number of the root port (NVIDIA Grace
    /// Performance Tuning Guide, "`PCIe` Traffic Management").
    Domain,
    /// By an NVIDIA register in the configuration space of the root port (Tegra410 document,
    /// "Mapping the RC# to lspci segment number").
    Register,
    /// By the PMU's files `die<n>`, the root bus of its stack on each die
    /// (Documentation/ABI/testing/sysfs-devices-mapping).
    DieFiles,
    /// The GPUs of a vendor on the socket: the PMU counts a link to them. If the platform lists its
    /// GPUs (`gpus` of its table), only these: others are on `PCIe`, not on the link.
    Gpus {
        /// PCI vendor id.
        vendor: u16,
    },
}

impl DeviceSpec {
    /// The term that enables the filter by requester.
    #[must_use]
    pub fn requester_on(&self) -> Option<String> {
        self.requester.as_ref().map(|term| format!("{term}_en"))
    }
}

impl Catalogue {
    /// The PCI device ids of GPUs that may be on this PMU's link, by the tables of its platforms;
    /// empty if any GPU may be.
    #[must_use]
    pub fn linked_gpus(&self, pmu: &str) -> Vec<u16> {
        let counts_devices = |family: &&Arc<Family>| {
            let mut specs = family.pmus.iter();
            specs.any(|spec| spec.devices.is_some() && spec.pattern.instance(pmu).is_some())
        };
        let families = self.families();
        let platforms = families
            .filter(counts_devices)
            .flat_map(|family| &family.platforms);
        let gpus = platforms.filter_map(|platform| platform.spec().gpus.as_ref());
        let ids = gpus.flat_map(|gpus| &gpus.devices);
        ids.filter_map(|id| u16::try_from(*id).ok()).collect()
    }

    /// How to find the devices that a PMU counts, and the numbers in its name; `None` if it counts
    /// no devices. A stack is included only on the platforms of its family, since its parts differ
    /// on others.
    #[must_use]
    pub fn devices_of(&self, pmu: &str, on: Platform) -> Option<(DeviceSpec, Instance)> {
        let with_family = |family| move |spec| (family, spec);
        let specs = self
            .families()
            .flat_map(|family| family.pmus.iter().map(with_family(family)));
        let mut candidates: Vec<(&Arc<Family>, &Arc<PmuSpec>)> = specs.collect();
        candidates.sort_by_key(|(family, _)| !family.platforms.contains(&on));
        candidates.into_iter().find_map(|(family, spec)| {
            let devices = spec.devices.as_ref()?;
            let instance = spec.pattern.instance(pmu)?;
            let stack = devices.stack.clone();
            let spec = DeviceSpec {
                stack: stack.filter(|_| family.platforms.contains(&on)),
                ..devices.clone()
            };
            Some((spec, instance))
        })
    }
}
