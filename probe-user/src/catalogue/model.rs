//! The types of the catalogue after loading and checks.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    chip::{Chip, Platform},
    event_spec::EventSpec,
    pci::DeviceSpec,
    template::Pattern,
};
use crate::formula::Formula;

/// One file of the catalogue: the PMUs of one kind, and their metrics.
#[derive(Clone, Debug)]
pub struct Family {
    /// The stem of its file.
    pub name: String,
    /// For headings.
    pub title: String,
    /// The platforms that it applies to.
    pub platforms: Vec<Platform>,
    /// The Arm cores that it applies to (`MIDR_EL1` without variant and revision); empty: any.
    pub midr: Vec<u32>,
    /// Whether metrics of the same name in other families hide its own.
    pub fallback: bool,
    /// Its PMUs.
    pub pmus: Vec<Arc<PmuSpec>>,
}

/// A kind of PMU.
#[derive(Clone, Debug)]
pub struct PmuSpec {
    /// Its key in the file.
    pub key: String,
    /// The names of its instances in sysfs.
    pub pattern: Pattern,
    /// The product id that its `identifier` must have ([`crate::machine::product`]); `None` if the
    /// name alone identifies it.
    pub product: Option<u32>,
    /// The scope of one value of its metrics.
    pub per: Per,
    /// Largest difference between the count of a `from_sockets` event at the source and the count
    /// at the destination, in thousandths.
    pub mismatch: Option<u32>,
    /// The number of general counters, without the fixed ones; `None` if unknown.
    pub counters: Option<u32>,
    /// Issue slots of the core per cycle; `None` if unknown.
    pub slots: Option<u32>,
    /// Filters that are always set, with their default values.
    pub defaults: BTreeMap<String, u64>,
    /// How to find the PCI devices that it counts; `None` if it counts none.
    pub devices: Option<DeviceSpec>,
    /// Its events, by the name that formulas use.
    pub events: BTreeMap<String, EventSpec>,
}

/// The scope of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// A CPU, so that each container has its own value.
    Cpu,
    /// A socket: the counts of all its units of the PMU are summed.
    Socket,
    /// A device: one unit, one root complex, or one part of a unit.
    Device,
}

/// The kind of quantity that a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricKind {
    /// A number of events.
    Counter,
    /// A number of events divided by another number of events.
    Ratio,
    /// Events per unit of time.
    Rate,
    /// Time per event.
    Latency,
}

impl fmt::Display for MetricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Ratio => "ratio",
            Self::Rate => "rate",
            Self::Latency => "latency",
        })
    }
}

/// How a value of a socket or device is divided among containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Apportion {
    /// Reads of a socket's memory by the CPUs of any socket.
    CpuRead,
    /// Reads of any memory by the CPUs of this socket.
    CpuReadSource,
    /// Reads by the CPUs of this socket, of other sockets' memory.
    CpuReadRemote,
    /// Writes to a socket's memory by the CPUs of any socket.
    CpuWrite,
    /// Writes to any memory by the CPUs of this socket.
    CpuWriteSource,
    /// The traffic of a device: its owner gets it.
    Device,
    /// As [`Self::Device`], but a block device's reads of memory are divided by the data written to
    /// it.
    DeviceRead,
    /// As [`Self::Device`], but a block device's writes to memory are divided by the data read from
    /// it.
    DeviceWrite,
    /// As [`Self::Device`], but a block device's traffic is divided by the data written to it plus
    /// the data read from it.
    DeviceBoth,
    /// Not divided.
    #[default]
    None,
}

impl Apportion {
    /// Whether the value is not divided.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// The traffic for which its shares need weights; `None` if they use no weights.
    #[must_use]
    pub fn needs(self) -> Option<MemoryTraffic> {
        match self {
            Self::CpuRead | Self::CpuReadSource | Self::CpuReadRemote => Some(MemoryTraffic::Reads),
            Self::CpuWrite | Self::CpuWriteSource => Some(MemoryTraffic::Writes),
            Self::Device | Self::DeviceRead | Self::DeviceWrite | Self::DeviceBoth | Self::None => {
                None
            }
        }
    }

    /// Whether it is about the traffic of devices, which no counter on CPUs can attribute.
    #[must_use]
    pub fn is_of_device(self) -> bool {
        match self {
            Self::Device | Self::DeviceRead | Self::DeviceWrite | Self::DeviceBoth => true,
            Self::CpuRead
            | Self::CpuReadSource
            | Self::CpuReadRemote
            | Self::CpuWrite
            | Self::CpuWriteSource
            | Self::None => false,
        }
    }
}

impl fmt::Display for Apportion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CpuRead => "cpu_read",
            Self::CpuReadSource => "cpu_read_source",
            Self::CpuReadRemote => "cpu_read_remote",
            Self::CpuWrite => "cpu_write",
            Self::CpuWriteSource => "cpu_write_source",
            Self::Device => "device",
            Self::DeviceRead => "device_read",
            Self::DeviceWrite => "device_write",
            Self::DeviceBoth => "device_both",
            Self::None => "none",
        })
    }
}

/// The kind of memory traffic that a weight attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryTraffic {
    /// Reads by CPUs.
    Reads,
    /// Writes by CPUs.
    Writes,
}

/// A configuration of the hardware that a formula assumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requirement {
    /// One GPU per socket.
    OneGpu,
}

/// A metric.
#[derive(Clone, Debug)]
pub struct Metric {
    /// Unique among the families of a platform.
    pub name: String,
    /// Other names by which it can be selected.
    pub aliases: Vec<String>,
    /// The title, one line.
    pub title: String,
    /// The unit of the value.
    pub unit: String,
    /// What the value is.
    pub kind: MetricKind,
    /// The group that `group:NAME` selects.
    pub group: String,
    /// Other groups that also contain it.
    pub also_in: Vec<String>,
    /// The formula of its value.
    pub formula: Formula,
    /// The title of its source document.
    pub document: String,
    /// The section of the document.
    pub section: String,
    /// How its value is divided among containers.
    pub apportion: Apportion,
    /// The event that counts, on the sending socket, the CPUs' traffic to the other socket's
    /// memory. That traffic is a part of what the other socket counts in the formula.
    pub from_sockets: Option<String>,
    /// As [`Self::from_sockets`], for more than two sockets: an event that is opened once for each
    /// other socket, whose number replaces the `n` in its name.
    pub from_each_socket: Option<String>,
    /// Chips on which [`Self::from_sockets`] and [`Self::from_each_socket`] also count traffic to
    /// memory that the formula does not count, such as GPU memory.
    pub not_shared_on: Vec<Chip>,
    /// The event that counts, on the receiving socket, the traffic of all CPUs to that memory: an
    /// upper bound of the traffic from each socket. It is opened with [`Self::from_each_socket`].
    /// Without it, the chips of [`Self::not_shared_on`] have no shares.
    pub other_memory: Option<String>,
    /// The devices' part of the formula's count: events of another PMU of the family, each with its
    /// PMU. Their counts are summed.
    pub io: Vec<(Arc<PmuSpec>, String)>,
    /// The largest possible value; `None` if the metric has no bound.
    pub bound: Option<f64>,
    /// A formula over the values of metrics, by name. If it is not 0, the metric's value is marked.
    pub threshold: Option<Formula>,
    /// The configuration that the formula assumes; `None` if it holds for any.
    pub requires: Option<Requirement>,
    /// The caveats of the documents.
    pub notes: Vec<String>,
    /// The chips that have no such value, with the reason.
    pub not_on: BTreeMap<Chip, String>,
    /// The PMU of all its events.
    pub pmu: Arc<PmuSpec>,
    /// The family of its file.
    pub family: Arc<Family>,
}

impl Metric {
    /// Whether `group:NAME` selects it.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.group == group || self.also_in.iter().any(|other| other == group)
    }

    /// The events to open: those of the formula, and those of the same PMU that its shares need. A
    /// formula over time alone opens one event of its PMU, since time is the running time of a
    /// group.
    #[must_use]
    pub fn events(&self) -> Vec<&str> {
        if !self.formula.events().is_empty() {
            let names = self.formula.events().iter();
            return names
                .chain(&self.from_sockets)
                .map(String::as_str)
                .collect();
        }
        let fixed = self.pmu.events.iter().find(|(_, event)| event.fixed);
        let event = fixed.or_else(|| self.pmu.events.iter().next());
        event.map(|(name, _)| name.as_str()).into_iter().collect()
    }

    /// Whether it counts at a memory what the CPUs of all sockets read or write there, and only the
    /// CPUs' own counters say which socket did.
    #[must_use]
    pub fn is_of_all_sockets(&self) -> bool {
        let is_of_memory = matches!(self.apportion, Apportion::CpuRead | Apportion::CpuWrite);
        is_of_memory && self.from_sockets.is_none()
    }

    /// The event of [`Self::from_each_socket`] for the memory of this socket.
    #[must_use]
    pub fn from_each(&self, socket: u32) -> Option<String> {
        let event = self.from_each_socket.as_ref()?;
        Some(event.replacen("_n_", &format!("_{socket}_"), 1))
    }

    /// The chips that it is valid on.
    #[must_use]
    pub fn chips(&self) -> Vec<Chip> {
        let chips = Chip::all().iter().copied();
        chips
            .filter(|chip| {
                self.family.platforms.contains(&chip.platform()) && !self.not_on.contains_key(chip)
            })
            .collect()
    }

    /// The help text: what it is, its formula, the source, and every caveat.
    #[must_use]
    pub fn help(&self) -> String {
        let mut help = format!(
            "{} [{}]\n{} = {}\nSource: {}: {}",
            self.title,
            self.unit,
            self.name,
            self.formula.text(),
            self.document,
            self.section
        );
        for note in &self.notes {
            help.push('\n');
            help.push_str(note);
        }
        if let Some(threshold) = &self.threshold {
            help.push_str(&format!(
                "\nMarked where this is not 0: {}",
                threshold.text()
            ));
        }
        for (chip, why) in &self.not_on {
            help.push_str(&format!("\nNo value on {chip}: {why}."));
        }
        help
    }
}
