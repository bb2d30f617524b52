//! The catalogue: every documented metric as data, with the events that it needs.
//!
//! The data is `probe-user/catalogue/*.toml`, one file per PMU family, compiled in; users add files
//! of the same format ([`Catalogue::merge_file`]). Steps of a consumer:
//!
//! 1. [`Hardware::detect`] (or [`Hardware::of_chip`]) finds which families apply;
//! 2. [`Catalogue::select`] finds the metrics of a list such as `ipc,group:cache` or `all`;
//! 3. [`Metric::groups`] lists what to open: one counter group per instance of the PMU, with all
//!    events of the formula in it, so that a ratio is exact even if groups are multiplexed;
//! 4. [`MetricCounts`] collects the counts (per container, or per [`MetricPlace`], summed over
//!    units);
//! 5. [`Metric::evaluate`] computes the value, or the reason why there is none.
//!
//! docs/reference/catalogue.md describes the format of the files.

mod check;
mod chip;
mod counts;
mod detect;
mod document;

mod error;
mod evaluate;
mod event_spec;
mod excerpt;
mod file;
mod files;
mod groups;
mod hardware;
mod load;
mod model;
mod pci;
mod perf;
mod platform;
mod pmu_filter;
mod refer;
mod resolve_hardware;
mod select;
mod template;
#[cfg(test)]
mod tests;
mod tlb;

use std::{collections::BTreeMap, path::Path, sync::Arc};

pub use self::{
    chip::{Chip, Platform},
    counts::MetricCounts,
    document::{Page, pages},
    error::{CatalogueError, Problem, SelectError, Unavailable},
    event_spec::{CountOf, EventSpec, SampledQuantity},
    excerpt::Excerpt,
    groups::{CounterGroup, MetricPlace, MetricSettings, MoreWeights},
    hardware::Hardware,
    model::{Apportion, Family, MemoryTraffic, Metric, MetricKind, Per, PmuSpec, Requirement},
    pci::{Accelerator, DeviceSpec, DiePart, FoundBy, StackSpec},
    perf::Processor,
    platform::{
        Arch, ChipSpec, CpuModels, Driver, Gpus, Models, PlatformSpec, ProfileSpec, UncoreSpec,
        WeightSpec,
    },
    pmu_filter::PmuFilter,
    resolve_hardware::resolve_hardware,
    template::{Instance, Pattern},
    tlb::{TlbEntries, TlbSpec, walk_trips},
};

/// All metrics: the documented ones, and the user's.
#[derive(Clone, Debug)]
pub struct Catalogue {
    families: Vec<Arc<Family>>,
    metrics: Vec<Metric>,
    documents: BTreeMap<String, String>,
    refused: Vec<RefusedMetric>,
}

/// A metric of perf's JSON files that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedMetric {
    /// Its name in the catalogue's form.
    pub name: String,
    /// Its title, one line.
    pub title: String,
    /// The first of its groups.
    pub group: String,
    /// The directory of the files.
    pub source: String,
    /// Why it cannot be used, as part of a sentence.
    pub reason: String,
}

impl Catalogue {
    /// The documented metrics.
    ///
    /// # Errors
    /// A mistake in a compiled-in file; tests make sure that there is none.
    pub fn builtin() -> Result<Self, CatalogueError> {
        load::builtin()
    }

    /// Adds the metrics of a path: a catalogue file, or a directory of perf's JSON files. Of a
    /// directory only the files for the processor's model are read.
    ///
    /// # Errors
    /// What is wrong with the file or directory; none of its metrics are added then.
    pub fn merge_path(
        &mut self,
        path: &Path,
        hardware: &Hardware,
        processor: &Processor,
    ) -> Result<(), CatalogueError> {
        match path.is_dir() {
            true => perf::merge(self, path, hardware, processor),
            false => self.merge_file(path),
        }
    }

    /// Adds the metrics of a catalogue file.
    ///
    /// # Errors
    /// What is wrong with the file; none of its metrics are added then.
    pub fn merge_file(&mut self, path: &Path) -> Result<(), CatalogueError> {
        let text = std::fs::read_to_string(path).map_err(|error| CatalogueError {
            file: path.display().to_string().into(),
            line: None,
            problem: Problem::Read(error),
        })?;
        self.merge(&path.display().to_string(), &text)
    }

    /// Adds the metrics of a catalogue file with this text; `file` is its name in errors.
    ///
    /// # Errors
    /// What is wrong with the text; none of its metrics are added then.
    pub fn merge(&mut self, file: &str, text: &str) -> Result<(), CatalogueError> {
        load::merge_user_file(self, file, text)
    }

    /// The metrics of perf's JSON files that cannot be used.
    #[must_use]
    pub fn refused(&self) -> &[RefusedMetric] {
        &self.refused
    }

    /// The families, in the order of the files.
    pub fn families(&self) -> impl Iterator<Item = &Arc<Family>> {
        self.families.iter()
    }

    /// The catalogue's description of the event that a PMU lists under this name; `None` if the
    /// catalogue has none.
    #[must_use]
    pub fn event_text(&self, pmu: &str, name: &str, machine: &Hardware) -> Option<String> {
        let families = self
            .families
            .iter()
            .filter(|family| family.holds_on(machine));
        let mut specs = families
            .flat_map(|family| &family.pmus)
            .filter(|spec| spec.pattern.instance(pmu).is_some());
        specs.find_map(|spec| {
            let mut events = spec.events.values();
            let listed = events.find(|event| event.is_listed_as(name));
            listed.and_then(|event| event.text.clone())
        })
    }

    /// Every metric of every platform, in the order of the files.
    pub fn metrics(&self) -> impl Iterator<Item = &Metric> {
        self.metrics.iter()
    }
}
