//! Handles of the platforms and chips that the compiled-in files describe.

use std::{fmt, sync::LazyLock};

use serde::{Deserialize, Serialize, de, ser};

use super::{
    files,
    platform::{ChipSpec, Driver, PlatformSpec, UncoreSpec, WeightSpec},
};

/// A platform: an index into the list of platforms. It decides which families of the catalogue
/// apply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Platform(usize);

/// A chip, or a configuration of chips that coverage tables distinguish.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chip(usize);

/// All platforms and chips, by their handles.
struct Registry {
    platforms: Vec<PlatformSpec>,
    platform_handles: Vec<Platform>,
    /// For each chip, its platform and its index among the chips of that platform.
    chips: Vec<(Platform, usize)>,
    chip_handles: Vec<Chip>,
    drivers: std::collections::BTreeMap<String, Vec<Driver>>,
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let (platforms, drivers) = files::platforms()
        .unwrap_or_else(|error| panic!("{error}: a test reads every file that is compiled in"));
    let platform_handles: Vec<Platform> = (0..platforms.len()).map(Platform).collect();
    let chip_indices = |platform: &PlatformSpec| 0..platform.chips.len();
    let chips: Vec<(Platform, usize)> = platform_handles
        .iter()
        .flat_map(|handle| chip_indices(&platforms[handle.0]).map(|at| (*handle, at)))
        .collect();
    Registry {
        chip_handles: (0..chips.len()).map(Chip).collect(),
        platforms,
        platform_handles,
        chips,
        drivers,
    }
});

impl Platform {
    /// All platforms, in the order of the files.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &REGISTRY.platform_handles
    }

    /// The platform with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::all().iter().copied();
        all.find(|platform| platform.spec().name == name)
    }

    /// The platform of machines that match no other platform.
    ///
    /// # Panics
    /// If the compiled-in files do not define it; a test makes sure that they do.
    #[must_use]
    pub fn generic() -> Self {
        Self::named("generic").expect("generic.toml has it")
    }

    /// Its `[[platform]]` table.
    #[must_use]
    pub fn spec(self) -> &'static PlatformSpec {
        &REGISTRY.platforms[self.0]
    }

    /// Its chips.
    pub fn chips(self) -> impl Iterator<Item = Chip> {
        let chips = Chip::all().iter().copied();
        chips.filter(move |chip| chip.platform() == self)
    }

    /// Its chip, if it has exactly one.
    #[must_use]
    pub fn only_chip(self) -> Option<Chip> {
        let mut chips = self.chips();
        chips.next().filter(|_| chips.next().is_none())
    }

    /// The core events that attribute a socket's traffic to its users.
    #[must_use]
    pub fn weights(self) -> &'static [WeightSpec] {
        let spec = self.spec();
        let fallback = spec
            .weights_of
            .as_deref()
            .and_then(Self::named)
            .unwrap_or_else(Self::generic);
        let weights = spec.weights.as_ref().or(fallback.spec().weights.as_ref());
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
    /// All chips, in the order of their platforms.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &REGISTRY.chip_handles
    }

    /// The chip with this name.
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

    /// Its `[[platform.chip]]` table.
    #[must_use]
    pub fn spec(self) -> &'static ChipSpec {
        let (platform, at) = REGISTRY.chips[self.0];
        &platform.spec().chips[at]
    }

    /// The title for headings.
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
