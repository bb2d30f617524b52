//! A catalogue file as parsed from TOML, before checks. Recordings contain the same structure in
//! JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{
    chip::{Chip, Platform},
    event_spec::EventSpec,
    model::{Apportion, MetricKind, Per, Requirement},
    pci::DeviceSpec,
    platform::Arch,
};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) title: String,
    /// Absent: the platforms of `arch` or, without it, all platforms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) platforms: Option<Vec<Platform>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arch: Option<Arch>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) midr: Vec<u32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) fallback: bool,
    pub(super) document: String,
    #[serde(default)]
    pub(super) pmu: BTreeMap<String, FilePmu>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) notes: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) metric: Vec<FileMetric>,
    /// The `files` module reads `order`, `platform` and `driver`; their values are ignored here.
    #[serde(default, rename = "order", skip_serializing)]
    pub(super) _order: IgnoredAny,
    #[serde(default, skip_serializing)]
    pub(super) platform: Option<IgnoredAny>,
    #[serde(default, skip_serializing)]
    pub(super) driver: Option<IgnoredAny>,
}

impl File {
    /// A file without PMUs, notes and metrics.
    pub(super) fn empty(
        (name, title): (String, String),
        platforms: Vec<Platform>,
        document: String,
    ) -> Self {
        Self {
            name,
            title,
            platforms: Some(platforms),
            arch: None,
            midr: Vec::new(),
            fallback: false,
            document,
            pmu: BTreeMap::new(),
            notes: BTreeMap::new(),
            metric: Vec::new(),
            _order: IgnoredAny,
            platform: None,
            driver: None,
        }
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FilePmu {
    pub(super) pattern: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) product: Option<u32>,
    pub(super) per: Per,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mismatch: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) counters: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) slots: Option<u32>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) defaults: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) devices: Option<DeviceSpec>,
    pub(super) events: BTreeMap<String, EventSpec>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileMetric {
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) aliases: Vec<String>,
    pub(super) title: String,
    pub(super) unit: String,
    pub(super) kind: MetricKind,
    pub(super) group: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) also_in: Vec<String>,
    pub(super) formula: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) document: Option<String>,
    pub(super) section: String,
    #[serde(default, skip_serializing_if = "Apportion::is_none")]
    pub(super) apportion: Apportion,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from_sockets: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from_each_socket: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) other_memory: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) not_shared_on: Vec<Chip>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) io: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bound: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) threshold: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) requires: Option<Requirement>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) not_on: BTreeMap<Chip, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) title: String,
}
