//! A catalogue file as TOML has it, before anything is checked.

use std::collections::BTreeMap;

use serde::{Deserialize, de::IgnoredAny};

use super::{
    chip::{Arch, Chip, Platform},
    event_spec::EventSpec,
    model::{Apportion, Kind, Per, Requirement},
    pci::DeviceSpec,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) title: String,
    /// Absent: all, or those of `arch`.
    pub(super) platforms: Option<Vec<Platform>>,
    pub(super) arch: Option<Arch>,
    #[serde(default)]
    pub(super) midr: Vec<u32>,
    #[serde(default)]
    pub(super) fallback: bool,
    pub(super) document: String,
    #[serde(default)]
    pub(super) pmu: BTreeMap<String, Pmu>,
    #[serde(default)]
    pub(super) notes: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) metric: Vec<Metric>,
    /// These are read before any family.
    #[serde(default, rename = "order")]
    _order: IgnoredAny,
    #[serde(default)]
    pub(super) platform: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) driver: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pmu {
    pub(super) pattern: String,
    pub(super) product: Option<u32>,
    pub(super) per: Per,
    pub(super) mismatch: Option<u32>,
    pub(super) counters: Option<u32>,
    pub(super) slots: Option<u32>,
    #[serde(default)]
    pub(super) defaults: BTreeMap<String, u64>,
    pub(super) devices: Option<DeviceSpec>,
    pub(super) events: BTreeMap<String, EventSpec>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metric {
    pub(super) name: String,
    #[serde(default)]
    pub(super) aliases: Vec<String>,
    pub(super) title: String,
    pub(super) unit: String,
    pub(super) kind: Kind,
    pub(super) group: String,
    #[serde(default)]
    pub(super) also_in: Vec<String>,
    pub(super) formula: String,
    pub(super) document: Option<String>,
    pub(super) section: String,
    #[serde(default)]
    pub(super) apportion: Apportion,
    pub(super) from_sockets: Option<String>,
    pub(super) io: Option<String>,
    pub(super) bound: Option<f64>,
    pub(super) requires: Option<Requirement>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    #[serde(default)]
    pub(super) not_on: BTreeMap<Chip, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) title: String,
}
