//! What the `[[platform]]` tables say.

use serde::{Deserialize, Serialize};

use super::{model::Of, tlb::TlbSpec};

/// What a `[[platform]]` table says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlatformSpec {
    /// As `--platform` takes it.
    pub name: String,
    /// For headings and sentences.
    pub title: String,
    /// Families may hold on all platforms of an architecture.
    pub arch: Option<Arch>,
    /// Prefixes of PMU names that identify it. A socket has one PMU of the first.
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
    /// The GPUs that tell chips apart.
    pub gpus: Option<Gpus>,
    /// A warning to print where resctrl's counts are shown.
    pub resctrl: Option<String>,
    /// Its chips; more than one where it comes in several configurations.
    #[serde(rename = "chip")]
    pub chips: Vec<ChipSpec>,
    /// The uncore PMUs that it should show.
    #[serde(default)]
    pub uncore: Vec<UncoreSpec>,
    /// What tells whose a socket's traffic is, the best first of each kind; absent: as on any
    /// platform.
    #[serde(rename = "weight")]
    pub weights: Option<Vec<WeightSpec>>,
    /// The platform whose weights hold here too.
    pub weights_of: Option<String>,
    /// The data TLB of its cores, where a document can be cited.
    pub tlb: Option<TlbSpec>,
    /// What the agent counts here unless it is told; none: what the PMU counts at one time.
    #[serde(default)]
    pub agent: Vec<ProfileSpec>,
}

/// A `[[platform.agent]]` table: what is counted all the time, at the least cost.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileSpec {
    /// Only on machines with so many sockets; absent: where no other profile holds.
    pub sockets: Option<u32>,
    /// Events of the core in perf's syntax, which its counters hold at one time.
    pub events: String,
    /// Shares go by these events: there is no counter for others.
    #[serde(default)]
    pub own_weights: bool,
    /// Metrics, of the uncore where the machine shows it.
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
    /// As CPUID has it.
    pub vendor: String,
    /// The family, with its extension.
    pub family: u32,
    /// The models, each or from one to another.
    pub models: Vec<Models>,
}

/// One model, or a range of them.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Models {
    /// One.
    One(u32),
    /// The first and the last.
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
    /// Those that belong to a chip of the platform.
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
    /// The least and the most sockets of it; absent: any number.
    pub sockets: Option<(u32, u32)>,
    /// Whether it has GPUs of the platform; `false` excludes every GPU of that vendor.
    pub gpus: Option<bool>,
    /// How many each socket has, by the chip's name.
    pub gpus_per_socket: Option<u32>,
    /// Whether docs/metrics/chips.md has a table of its metrics.
    #[serde(default)]
    pub coverage: bool,
}

/// A `[[platform.uncore]]` table: PMUs that one driver gives.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UncoreSpec {
    /// What their names start with.
    pub pmu: String,
    /// What is lost without them.
    pub lost: String,
    /// The key of their driver in `[driver]`.
    pub driver: String,
}

/// A driver of `[driver]` has one or more parts.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Driver {
    /// The option it is built by, without `CONFIG_`.
    pub option: String,
    /// None where it cannot be a module.
    pub module: Option<String>,
}

/// A `[[platform.weight]]` table: events of the core that tell who caused a socket's traffic.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightSpec {
    /// Of which traffic.
    pub of: Of,
    /// What the shares' `method` says.
    pub name: String,
    /// The accesses: a name in the core PMU's `events/`, or terms of its `format/`
    /// (`event=0x2a,umask=0x1`).
    pub event: String,
    /// Those to other sockets' memory, where the core lists that event or has these terms.
    pub remote: Option<String>,
    /// `event` counts accesses to the memory of the CPU's own socket only, in the same unit as
    /// `remote`, so that both together divide what a memory controller counts for all sockets.
    #[serde(default)]
    pub local: bool,
    /// Only on machines with so many sockets; absent: on all.
    pub sockets: Option<u32>,
    /// What it counts besides memory traffic, where that is too much for an error to be stated.
    pub but: Option<String>,
}
