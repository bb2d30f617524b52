//! What the catalogue holds once it is loaded and checked.

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
    /// Where it holds.
    pub platforms: Vec<Platform>,
    /// The Arm cores that it holds for (`MIDR_EL1` without variant and revision); empty: any.
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
    /// The product id in its `identifier` ([`crate::machine::product`]), where the name tells
    /// nothing.
    pub product: Option<u32>,
    /// What one value of its metrics stands for.
    pub per: Per,
    /// How far the count of a `from_sockets` event, taken at the source, may be from that at the
    /// destination, in thousandths.
    pub mismatch: Option<u32>,
    /// How many events count at once, beside those with a counter of their own.
    pub counters: Option<u32>,
    /// What the core can issue per cycle.
    pub slots: Option<u32>,
    /// Filters that are always written, with their values unless asked otherwise.
    pub defaults: BTreeMap<String, u64>,
    /// The PCI devices that it counts.
    pub devices: Option<DeviceSpec>,
    /// By the name that formulas use.
    pub events: BTreeMap<String, EventSpec>,
}

/// What one value stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// Counted per CPU, so that a container has a value of its own.
    Cpu,
    /// A socket; where it has several units of the PMU, their counts are added up.
    Socket,
    /// A device: one unit, one root complex, one part.
    Device,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A number of something.
    Counter,
    /// Events per event.
    Ratio,
    /// Events per time.
    Rate,
    /// Time per event.
    Latency,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Ratio => "ratio",
            Self::Rate => "rate",
            Self::Latency => "latency",
        })
    }
}

/// How a value of a socket or device is shared out to containers.
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
    /// To who owns the device.
    Device,
    /// The same; what block devices read from memory also by what was written to them.
    DeviceRead,
    /// The same; what block devices write to memory also by what was read from them.
    DeviceWrite,
    /// The same; what block devices read and write also by both.
    DeviceBoth,
    /// Not at all.
    #[default]
    None,
}

impl Apportion {
    /// Whether it is not shared out at all.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// The traffic whose weights its shares need; `None` where they go by something else.
    #[must_use]
    pub fn needs(self) -> Option<Of> {
        match self {
            Self::CpuRead | Self::CpuReadSource | Self::CpuReadRemote => Some(Of::Reads),
            Self::CpuWrite | Self::CpuWriteSource => Some(Of::Writes),
            Self::Device | Self::DeviceRead | Self::DeviceWrite | Self::DeviceBoth | Self::None => {
                None
            }
        }
    }

    /// Whether it is about what a device does, which no counter on CPUs tells.
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

/// The traffic of a socket's memory that a weight is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// Reads by CPUs.
    Reads,
    /// Writes by CPUs.
    Writes,
}

/// A configuration that a formula is stated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requirement {
    /// One GPU for each Grace.
    OneGpu,
}

/// A metric.
#[derive(Clone, Debug)]
pub struct Metric {
    /// Unique among the families of a platform.
    pub name: String,
    /// Other names by which it can be selected.
    pub aliases: Vec<String>,
    /// One line.
    pub title: String,
    /// Of the value.
    pub unit: String,
    /// What the value is.
    pub kind: Kind,
    /// The group that `group:NAME` selects.
    pub group: String,
    /// Other groups that are not complete without it.
    pub also_in: Vec<String>,
    /// How it is computed.
    pub formula: Formula,
    /// The title of its source document.
    pub document: String,
    /// The section of the document.
    pub section: String,
    /// How its value is shared out.
    pub apportion: Apportion,
    /// The event that counts at the source what CPUs send to the memory of the other socket: their
    /// part of the count of that socket's event in the formula.
    pub from_sockets: Option<String>,
    /// Of more than two sockets, in place of it: the event, with `n` for a socket, that counts at
    /// the source what CPUs send to the memory of socket n.
    pub from_each_socket: Option<String>,
    /// Chips on which these events count what CPUs send to other memory too.
    pub not_shared_on: Vec<Chip>,
    /// The event of the destination that counts what its other memory gets from any CPU, opened
    /// beside [`Self::from_each_socket`]: not more than that went there. Where it is not counted,
    /// the chips of [`Self::not_shared_on`] have no shares.
    pub other_memory: Option<String>,
    /// The part of devices in what the formula's event counts: events of another PMU of the family,
    /// with that PMU. Their counts are added up.
    pub io: Vec<(Arc<PmuSpec>, String)>,
    /// The largest value that a share can have.
    pub bound: Option<f64>,
    /// The configuration that the formula is stated for.
    pub requires: Option<Requirement>,
    /// The caveats of the documents.
    pub notes: Vec<String>,
    /// The chips that have no such value, with the reason.
    pub not_on: BTreeMap<Chip, String>,
    /// The PMU that all its events are of.
    pub pmu: Arc<PmuSpec>,
    /// Its file.
    pub family: Arc<Family>,
}

impl Metric {
    /// Whether `group:NAME` selects it.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.group == group || self.also_in.iter().any(|other| other == group)
    }

    /// The events to open: those of the formula, and what its shares need of the same PMU. A
    /// formula over time alone takes one event of its PMU, since the time is that of a group.
    #[must_use]
    pub fn events(&self) -> Vec<&str> {
        if !self.formula.events().is_empty() {
            let formula = self.formula.events().iter();
            return formula
                .chain(&self.from_sockets)
                .map(String::as_str)
                .collect();
        }
        let fixed = self.pmu.events.iter().find(|(_, event)| event.fixed);
        let any = fixed.or_else(|| self.pmu.events.iter().next());
        any.map(|(name, _)| name.as_str()).into_iter().collect()
    }

    /// The event that counts at the source what CPUs send to the memory of this socket, where they
    /// are counted by destination.
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

    /// The help text: what it is, how it is computed, where that is written, and every caveat.
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
        for (chip, why) in &self.not_on {
            help.push_str(&format!("\nNo value on {chip}: {why}."));
        }
        help
    }
}
