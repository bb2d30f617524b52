//! Platforms and chips, as the `[[platform]]` tables of the compiled-in files describe them.

use std::{fmt, sync::LazyLock};

use serde::{Deserialize, Serialize, de, ser};

use super::{files, model::Of, tlb::TlbSpec};

/// A platform, which says what families of the catalogue hold: an index into the list of platforms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Platform(usize);

/// A chip, or a configuration of chips, as coverage tables tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chip(usize);

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

/// All platforms and chips, by their handles.
struct Registry {
    platforms: Vec<PlatformSpec>,
    handles: Vec<Platform>,
    /// Platform and place among its chips.
    chips: Vec<(Platform, usize)>,
    chip_handles: Vec<Chip>,
    drivers: std::collections::BTreeMap<String, Vec<Driver>>,
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let (platforms, drivers) = files::platforms()
        .unwrap_or_else(|error| panic!("{error}: a test reads every file that is compiled in"));
    let handles: Vec<Platform> = (0..platforms.len()).map(Platform).collect();
    let of = |platform: &PlatformSpec| 0..platform.chips.len();
    let chips: Vec<(Platform, usize)> = handles
        .iter()
        .flat_map(|handle| of(&platforms[handle.0]).map(|at| (*handle, at)))
        .collect();
    Registry {
        chip_handles: (0..chips.len()).map(Chip).collect(),
        platforms,
        handles,
        chips,
        drivers,
    }
});

impl Platform {
    /// All of them, in the order of the files.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &REGISTRY.handles
    }

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::all().iter().copied();
        all.find(|platform| platform.spec().name == name)
    }

    /// The platform of machines that no other platform identifies.
    ///
    /// # Panics
    /// Where the compiled-in files have none; a test makes sure that they do.
    #[must_use]
    pub fn generic() -> Self {
        Self::named("generic").expect("generic.toml has it")
    }

    /// What its table says.
    #[must_use]
    pub fn spec(self) -> &'static PlatformSpec {
        &REGISTRY.platforms[self.0]
    }

    /// Its chips.
    pub fn chips(self) -> impl Iterator<Item = Chip> {
        let chips = Chip::all().iter().copied();
        chips.filter(move |chip| chip.platform() == self)
    }

    /// Its only chip; `None` where the platform alone does not tell.
    #[must_use]
    pub fn only_chip(self) -> Option<Chip> {
        let mut chips = self.chips();
        chips.next().filter(|_| chips.next().is_none())
    }

    /// What tells whose a socket's traffic is.
    #[must_use]
    pub fn weights(self) -> &'static [WeightSpec] {
        let spec = self.spec();
        let other = spec.weights_of.as_deref().and_then(Self::named);
        let other = other.unwrap_or_else(Self::generic);
        let weights = spec.weights.as_ref().or(other.spec().weights.as_ref());
        weights.map_or(&[], Vec::as_slice)
    }
}

impl UncoreSpec {
    /// The parts of its driver.
    #[must_use]
    pub fn drivers(&self) -> &'static [Driver] {
        REGISTRY
            .drivers
            .get(&self.driver)
            .map_or(&[], Vec::as_slice)
    }
}

impl Chip {
    /// All of them, in the order of their platforms.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &REGISTRY.chip_handles
    }

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::all().iter().copied();
        all.find(|chip| chip.spec().name == name)
    }

    /// The platform that it belongs to.
    #[must_use]
    pub fn platform(self) -> Platform {
        REGISTRY.chips[self.0].0
    }

    /// What its table says.
    #[must_use]
    pub fn spec(self) -> &'static ChipSpec {
        let (platform, at) = REGISTRY.chips[self.0];
        &platform.spec().chips[at]
    }

    /// For headings.
    #[must_use]
    pub fn title(self) -> &'static str {
        &self.spec().title
    }
}

macro_rules! handle {
    ($handle:ident, $what:literal) => {
        /// Its name.
        impl fmt::Display for $handle {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.spec().name)
            }
        }

        impl fmt::Debug for $handle {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.spec().name)
            }
        }

        impl<'de> Deserialize<'de> for $handle {
            fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = String::deserialize(deserializer)?;
                Self::named(&name).ok_or_else(|| {
                    let all: Vec<&str> = Self::all().iter().map(|one| &*one.spec().name).collect();
                    de::Error::custom(format!(
                        concat!("there is no ", $what, " `{}`; there are: {}"),
                        name,
                        all.join(", ")
                    ))
                })
            }
        }

        impl Serialize for $handle {
            fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl clap::ValueEnum for $handle {
            fn value_variants<'a>() -> &'a [Self] {
                Self::all()
            }

            fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
                let spec = self.spec();
                Some(clap::builder::PossibleValue::new(&*spec.name).help(&*spec.title))
            }
        }
    };
}

handle!(Platform, "platform");
handle!(Chip, "chip");

/// What is known of the hardware that metrics are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// Which families hold.
    pub platform: Platform,
    /// `None` where it cannot be told: no metric is ruled out then.
    pub chip: Option<Chip>,
    /// GPUs on a coherent link for each socket.
    pub gpus_per_socket: Option<u32>,
    /// `MIDR_EL1` of CPU 0 without variant and revision.
    pub midr: Option<u32>,
    /// `None` where the machine does not tell.
    pub sockets: Option<u32>,
}

impl Hardware {
    /// What an agent counts here unless it is told.
    #[must_use]
    pub fn profile(&self) -> Option<&'static ProfileSpec> {
        let profiles = &self.platform.spec().agent;
        let on = |sockets| profiles.iter().find(|it| it.sockets == sockets);
        self.sockets
            .and_then(|sockets| on(Some(sockets)))
            .or_else(|| on(None))
    }

    /// That chip, with the GPUs that it has by its name.
    #[must_use]
    pub fn of_chip(chip: Chip) -> Self {
        Self {
            platform: chip.platform(),
            chip: Some(chip),
            gpus_per_socket: chip.spec().gpus_per_socket,
            midr: None,
            sockets: None,
        }
    }

    /// That of which only the platform is known.
    #[must_use]
    pub fn of_platform(platform: Platform) -> Self {
        match platform.only_chip() {
            Some(chip) => Self::of_chip(chip),
            None => Self {
                platform,
                chip: None,
                gpus_per_socket: None,
                midr: None,
                sockets: None,
            },
        }
    }
}
