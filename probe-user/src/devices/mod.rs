//! The PCI devices that each uncore PMU counts. The catalogue says for each PMU how its devices are
//! found ([`FoundBy`](crate::catalogue::FoundBy)):
//!
//! - `domain` (Grace): the PCI domain is the socket times 16 plus the root port (performance guide,
//!   "`PCIe` Traffic Management": 0018 is root port 8 of socket 1).
//! - `register` (Tegra410): the root port's own configuration space has socket, root complex and
//!   port (`config_space`).
//! - `die_files` (Intel): `<pmu>/die<d>` has the root bus of the stack on die d
//!   (Documentation/ABI/testing/sysfs-devices-mapping); Intel PCM's tables (`stack`)
//!   give the part of the stack. Without these files a stack has a reason instead of devices.
//!
//! Other devices are in a tree of PCI root buses, with the socket of their NUMA node. [`Devices`]
//! is the entry type; `usage` reads who uses the devices.

mod holders;
mod io_stat;
mod names;
mod print;
mod read;
mod stack;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use crate::machine::config_space::{ConfigSpaceError, RootPort, root_port};
use crate::{
    catalogue::{DeviceSpec, PmuFilter},
    machine::Bdf,
};

pub(crate) use self::usage::DeviceReader;
pub use self::{
    holders::HolderPaths,
    io_stat::{CgroupIo, IoBytes},
    usage::{DeviceDeltas, DeviceUse},
};

/// The PCI devices of a machine, by the PMUs that count their traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Devices {
    /// Sorted by socket, then by kind and number.
    pub complexes: Vec<Complex>,
    /// PMUs of links to GPUs.
    pub links: Vec<GpuLink>,
    /// Root ports of unknown location, with the reason. They are not recorded, since nothing is
    /// computed from them.
    #[serde(skip)]
    pub problems: BTreeMap<Bdf, ConfigSpaceError>,
}

/// A root complex or its equivalent on the platform: the devices that the same PMUs count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Complex {
    /// The socket that it belongs to; `None` if unknown.
    pub socket: Option<u32>,
    /// Its kind and number.
    pub kind: ComplexKind,
    /// The uncore PMUs that count its traffic.
    pub pmus: Vec<PciePmu>,
    /// Its ports, by address.
    pub ports: Vec<Port>,
}

/// An uncore PMU that counts the traffic of PCI devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PciePmu {
    /// Its name in sysfs.
    pub name: String,
    /// How its devices are found, and the terms that select some of them.
    pub spec: DeviceSpec,
}

/// An uncore PMU that counts the traffic of a link between a socket and its GPUs, which the kernel
/// shows as PCI devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuLink {
    /// The PMU's name in sysfs.
    pub pmu: String,
    /// PCI vendor id of the GPUs.
    pub vendor: u16,
    /// Their PCI device ids; empty if all GPUs of the vendor are on links.
    #[serde(default)]
    pub devices: Vec<u16>,
}

/// Kind of a [`Complex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ComplexKind {
    /// All root ports of a socket.
    RootPorts,
    /// Root complex of a socket, by its number.
    RootComplex(u32),
    /// Stack of a socket, by the number of its PMU.
    Stack(u32),
    /// A PCI root bus (domain and bus) that no PMU is known to count.
    RootBus(u32, u8),
}

/// A root port, or a device on the root bus itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Its own address.
    pub address: Bdf,
    /// Number of the root port, or of the part of the stack. There are several if it uses several
    /// parts, or if it is unknown which part it uses. Empty if nothing is known.
    #[serde(alias = "number", deserialize_with = "numbers")]
    pub numbers: Vec<u32>,
    /// The devices behind it; the port itself if it is no bridge.
    pub devices: Vec<Device>,
}

/// A PCI function other than a bridge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its address.
    pub address: Bdf,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Class code: class, subclass, programming interface.
    pub class: u32,
    /// Its names in the kernel: nvme0, eth0.
    pub names: Vec<String>,
    /// Its block devices as `major:minor`, as `io.stat` of cgroups names them.
    pub blocks: Vec<String>,
}

/// Accepts older recordings, which have one number or none.
fn numbers<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Numbers {
        Several(Vec<u32>),
        One(Option<u32>),
    }
    Ok(match Numbers::deserialize(deserializer)? {
        Numbers::Several(numbers) => numbers,
        Numbers::One(number) => number.into_iter().collect(),
    })
}

impl Devices {
    /// The device of that kernel name (nvme0, also nvme0n1) or PCI address, with its complex and
    /// port.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(&Complex, &Port, &Device)> {
        let address = name.parse::<Bdf>().ok();
        let mut all = self.iter();
        all.find(|(_, _, device)| {
            Some(device.address) == address || device.names.iter().any(|other| other == name)
        })
    }

    /// All devices, with their complexes and ports.
    pub fn iter(&self) -> impl Iterator<Item = (&Complex, &Port, &Device)> {
        self.complexes.iter().flat_map(|complex| {
            let ports = complex.ports.iter();
            ports.flat_map(move |port| {
                let devices = port.devices.iter();
                devices.map(move |device| (complex, port, device))
            })
        })
    }

    /// The devices that a PMU counts on a socket with these filters (by names in `format/`), on one
    /// part of a stack or on all.
    #[must_use]
    pub fn counted_by(
        &self,
        pmu: &str,
        socket: u32,
        filters: &BTreeMap<String, u64>,
        part: Option<u32>,
    ) -> Vec<&Device> {
        let link = self.links.iter().find(|link| link.pmu == pmu);
        let is_counted = |complex: &Complex, port: &Port, device: &Device| match link {
            Some(link) => link.leads_to(device),
            None => {
                let named = complex.pmus.iter().find(|other| other.name == pmu);
                named.is_some_and(|pmu| pmu.selects(port, device, filters, part))
            }
        };
        self.iter()
            .filter(|(complex, port, device)| {
                complex.socket == Some(socket) && is_counted(complex, port, device)
            })
            .map(|(_, _, device)| device)
            .collect()
    }
}

impl GpuLink {
    fn leads_to(&self, device: &Device) -> bool {
        let may_be_linked = self.devices.is_empty() || self.devices.contains(&device.device);
        may_be_linked && device.vendor == self.vendor && device.kind() == "GPU"
    }
}

impl PciePmu {
    fn selects(
        &self,
        port: &Port,
        device: &Device,
        filters: &BTreeMap<String, u64>,
        part: Option<u32>,
    ) -> bool {
        let filter = |name: &Option<String>| filters.get(name.as_ref()?).copied();
        if filter(&self.spec.requester_on()) == Some(1) {
            let requester = u64::from(device.address.requester());
            return filter(&self.spec.requester) == Some(requester);
        }
        let numbers = &port.numbers;
        if let Some(part) = part {
            return numbers.contains(&part);
        }
        let is_set =
            |mask: u64, number: u32| mask.checked_shr(number).is_some_and(|it| it & 1 == 1);
        // Without a filter, or with 0, all ports are counted.
        let mask = filter(&self.spec.ports).filter(|mask| *mask != 0);
        mask.is_none_or(|mask| numbers.iter().any(|number| is_set(mask, *number)))
    }

    /// The filters that count only this device; `None` if the PMU has none. `is_alone` is whether
    /// the port has no other device.
    fn filters(&self, port: &Port, device: &Device, is_alone: bool) -> Option<Vec<(String, u64)>> {
        let by_port = || {
            let bit = |mask: u64, number: &u32| Some(mask | 1_u64.checked_shl(*number)?);
            let bits = port.numbers.iter().try_fold(0, bit);
            let mask = bits.filter(|mask| is_alone && *mask != 0)?;
            Some(vec![(self.spec.ports.clone()?, mask)])
        };
        let by_requester = || {
            let requester = u64::from(device.address.requester());
            let term = self.spec.requester.clone()?;
            Some(vec![(term, requester), (self.spec.requester_on()?, 1)])
        };
        by_port().or_else(by_requester)
    }
}

impl Port {
    /// Whether any of its devices may read or write memory. The functions that the chip has on
    /// every root bus do not (base classes 08, system peripherals, and 11, counters).
    fn may_move_data(&self) -> bool {
        let mut devices = self.devices.iter();
        devices.any(|device| !matches!(device.class >> 16, 0x08 | 0x11))
    }
}

impl Devices {
    /// For each PMU of a stack, the parts that have devices. A PMU with devices on unknown parts is
    /// left out.
    #[must_use]
    pub fn parts(&self) -> BTreeMap<String, BTreeSet<u32>> {
        let is_stack = |complex: &&Complex| matches!(complex.kind, ComplexKind::Stack(_));
        let mut parts: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        let mut unknown: BTreeSet<&str> = BTreeSet::new();
        for complex in self.complexes.iter().filter(is_stack) {
            let used_ports = || complex.ports.iter().filter(|port| !port.devices.is_empty());
            let has_unknown_part =
                used_ports().any(|port| port.numbers.is_empty() && port.may_move_data());
            for pmu in &complex.pmus {
                let of_pmu = parts.entry(pmu.name.clone()).or_default();
                of_pmu.extend(used_ports().flat_map(|port| &port.numbers));
                if has_unknown_part || complex.missing_devices_reason().is_some() {
                    unknown.insert(&pmu.name);
                }
            }
        }
        parts.retain(|pmu, _| !unknown.contains(pmu.as_str()));
        parts
    }
}

impl Complex {
    /// Why the devices of a stack are unknown; `None` if they are known.
    #[must_use]
    pub fn missing_devices_reason(&self) -> Option<&'static str> {
        let is_unknown = matches!(self.kind, ComplexKind::Stack(_)) && self.socket.is_none();
        is_unknown.then_some(
            "its devices are not known: this kernel has no die files for it, which tell the root \
             bus of a stack",
        )
    }

    /// Filters on each PMU of the complex that count only this device and the other functions of
    /// its card. Empty if the platform has no such filter.
    #[must_use]
    pub fn narrowed(&self, port: &Port, device: &Device) -> Vec<PmuFilter> {
        // A filter by port does not distinguish the functions of a card.
        let card = |device: &Device| {
            let Bdf {
                domain,
                bus,
                device,
                ..
            } = device.address;
            (domain, bus, device)
        };
        let shares_filter = |other: &&Port| {
            let mut numbers = other.numbers.iter();
            other.address == port.address || numbers.any(|number| port.numbers.contains(number))
        };
        let mut others = self
            .ports
            .iter()
            .filter(shares_filter)
            .flat_map(|port| &port.devices);
        let is_alone = others.all(|other| card(other) == card(device));
        let filter_on = |pmu: &PciePmu| {
            Some(PmuFilter {
                pmu: pmu.name.clone(),
                filters: pmu.filters(port, device, is_alone)?,
            })
        };
        self.pmus.iter().filter_map(filter_on).collect()
    }
}

impl Device {
    /// Its usual name: the first name, or its address.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.names.first();
        name.map_or_else(|| self.address.to_string(), Clone::clone)
    }

    /// Its kind in a word, by its PCI class.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.class >> 8 {
            0x0108 => "NVMe",
            0x0100..=0x01ff => "storage",
            0x0200..=0x02ff => "network",
            0x0300..=0x03ff => "GPU",
            0x0c03 => "USB",
            0x0700..=0x07ff => "serial",
            0x0b40 | 0x1200..=0x12ff => "accelerator",
            _ => "device",
        }
    }
}
