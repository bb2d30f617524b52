//! Which PCI devices an uncore PMU counts: data of its entry in the catalogue.

use serde::{Deserialize, Serialize};

use super::{Catalogue, template::Instance};

/// How the devices that an instance of a PMU counts are found, and the terms that pick some.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// Where it is written which devices these are.
    pub by: FoundBy,
    /// The term with a bit for each root port, or for each part of a stack.
    pub ports: Option<String>,
    /// The term that takes the requester id of one function; the term `<requester>_en` turns it on,
    /// and `ports` must be 0 then.
    pub requester: Option<String>,
}

/// Where it is written which devices a PMU counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundBy {
    /// In their PCI domain: the socket times 16 plus the number of the root port (NVIDIA Grace
    /// Performance Tuning Guide, "`PCIe` Traffic Management").
    Domain,
    /// In the configuration space of the root port, in a register of NVIDIA's (Tegra410 document,
    /// "Mapping the RC# to lspci segment number").
    Register,
    /// In the PMU's files `die<n>`, the root bus of its stack on each die
    /// (Documentation/ABI/testing/sysfs-devices-mapping).
    DieFiles,
    /// The GPUs of a vendor on that socket: the PMU counts a link to them.
    Gpus {
        /// PCI vendor id.
        vendor: u16,
    },
}

impl DeviceSpec {
    /// The term that turns the filter by requester on.
    #[must_use]
    pub fn requester_on(&self) -> Option<String> {
        self.requester.as_ref().map(|term| format!("{term}_en"))
    }
}

impl Catalogue {
    /// What a PMU of that name counts, where it counts devices; with the numbers in its name.
    #[must_use]
    pub fn devices_of(&self, pmu: &str) -> Option<(&DeviceSpec, Instance)> {
        let mut specs = self.families().flat_map(|family| &family.pmus);
        specs.find_map(|spec| Some((spec.devices.as_ref()?, spec.pattern.instance(pmu)?)))
    }
}
