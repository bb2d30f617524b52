//! The `[[platform]]` tables.

use serde::{Deserialize, Serialize};

use super::{model::MemoryTraffic, tlb::TlbSpec};

/// A `[[platform]]` table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlatformSpec {
    /// As `--platform` takes it.
    pub name: String,
    /// For headings and sentences.
    pub title: String,
    /// Its architecture: families may apply to all platforms of one.
    pub arch: Option<Arch>,
    /// Prefixes of PMU names that identify it. A socket has one PMU with the first prefix.
    #[serde(default)]
    pub pmus: Vec<String>,
    /// SMCCC ids of the chip that identify it (`/sys/devices/soc0/soc_id`).
    #[serde(default)]
    pub soc: Vec<String>,
    /// Products of PMUs without a name of their own, `nvidia_uncore_pmu_<n>`, that identify it.
    #[serde(default)]
    pub products: Vec<u32>,
    /// Values of `MIDR_EL1`, without variant and revision, that identify it.
    #[serde(default)]
    pub midr: Vec<u32>,
    /// Vendors, families and models of x86 CPUs that identify it.
    #[serde(default)]
    pub cpus: Vec<CpuModels>,
    /// The GPUs that distinguish its chips.
    pub gpus: Option<Gpus>,
    /// A warning to print with the counts of resctrl.
    pub resctrl: Option<String>,
    /// Its chips; more than one if it comes in several configurations.
    #[serde(rename = "chip")]
    pub chips: Vec<ChipSpec>,
    /// The uncore PMUs that it should show.
    #[serde(default)]
    pub uncore: Vec<UncoreSpec>,
    /// The core events that attribute a socket's traffic, the best first for each kind of traffic;
    /// absent: those of `weights_of`, else those of the generic platform.
    #[serde(rename = "weight")]
    pub weights: Option<Vec<WeightSpec>>,
    /// Another platform with the weights to use.
    pub weights_of: Option<String>,
    /// The data TLB of its cores, if a document states it.
    pub tlb: Option<TlbSpec>,
    /// What the agent counts by default; empty: what the PMU counts at one time.
    #[serde(default)]
    pub agent: Vec<ProfileSpec>,
}

/// A `[[platform.agent]]` table: a default of the agent, to count all the time at the least cost.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileSpec {
    /// Only on machines with this number of sockets; absent: if no other profile applies.
    pub sockets: Option<u32>,
    /// Events of the core in perf's syntax; its counters can count all of them at one time.
    pub events: String,
    /// Whether shares use only these events, so that no other counters are opened for them.
    #[serde(default)]
    pub own_weights: bool,
    /// Metrics to count; uncore metrics only if the machine has their PMUs.
    #[serde(default)]
    pub metrics: Vec<String>,
}

/// An architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arch {
    /// 64-bit Arm.
    Arm64,
    /// 64-bit x86.
    X86,
}

/// Models of an x86 CPU.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuModels {
    /// The vendor string of CPUID.
    pub vendor: String,
    /// The family, including its extension.
    pub family: u32,
    /// Single models and ranges.
    pub models: Vec<Models>,
}

/// One model, or a range of them.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Models {
    /// One model.
    One(u32),
    /// The first and the last model of a range.
    Range(u32, u32),
}

impl Models {
    /// Whether a model is one of these.
    #[must_use]
    pub fn contains(&self, model: u32) -> bool {
        match *self {
            Self::One(one) => one == model,
            Self::Range(first, last) => (first..=last).contains(&model),
        }
    }
}

/// PCI ids of GPUs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpus {
    /// The vendor whose display controllers are GPUs.
    pub vendor: u32,
    /// The devices that belong to a chip of the platform.
    pub devices: Vec<u32>,
}

/// A `[[platform.chip]]` table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChipSpec {
    /// As `--chip` takes it.
    pub name: String,
    /// For headings.
    pub title: String,
    /// The smallest and the largest number of its sockets; absent: any.
    pub sockets: Option<(u32, u32)>,
    /// Whether it has GPUs of the platform; `false` excludes every GPU of that vendor.
    pub gpus: Option<bool>,
    /// The GPUs per socket that the chip's name implies.
    pub gpus_per_socket: Option<u32>,
    /// Whether docs/reference/metrics/chips.md has a table of its metrics.
    #[serde(default)]
    pub coverage: bool,
}

/// A `[[platform.uncore]]` table: the uncore PMUs of one driver.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UncoreSpec {
    /// The prefix of their names.
    pub pmu: String,
    /// What cannot be counted without them, for messages.
    pub lost: String,
    /// The key of their driver in `[driver]`.
    pub driver: String,
}

/// A part of a driver in `[driver]`; a driver may have several parts.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Driver {
    /// Its kernel configuration option, without `CONFIG_`.
    pub option: String,
    /// Its kernel module; `None` if it cannot be built as a module.
    pub module: Option<String>,
}

/// A `[[platform.weight]]` table: events of the core that attribute a socket's traffic.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightSpec {
    /// The traffic that it attributes.
    pub of: MemoryTraffic,
    /// Its name in the shares' `method`.
    pub name: String,
    /// The event of all accesses: a name in the core PMU's `events/`, or terms of its `format/`
    /// (`event=0x2a,umask=0x1`).
    pub event: String,
    /// The event of accesses to other sockets' memory, if the core lists it or has its terms.
    pub remote: Option<String>,
    /// Whether `event` counts only accesses to the memory of the CPU's own socket. `remote` is then
    /// in the same unit, so that both together divide what a memory controller counts for all
    /// sockets.
    #[serde(default)]
    pub local: bool,
    /// Only on machines with this number of sockets; absent: on all.
    pub sockets: Option<u32>,
    /// What it counts in addition to memory traffic, if that is too much for an error to be stated.
    pub but: Option<String>,
}
