//! The catalogue: every documented metric as data, with the events that it needs.
//!
//! The data is `probe-user/catalogue/*.toml`, one file per PMU family, compiled in; users add
//! files of the same format ([`Catalogue::merge_file`]). What a consumer does:
//!
//! 1. [`Hardware::detect`] (or [`Hardware::of_chip`]) tells which families hold here;
//! 2. [`Catalogue::select`] turns `ipc,group:cache` or `all` into metrics;
//! 3. [`Metric::groups`] tells what to open: one counter group per instance of the PMU, with all
//!    events of the formula in it, so that a ratio is exact however the groups rotate;
//! 4. [`Counts`] takes what was read (per container, or per [`Place`] added up over units);
//! 5. [`Metric::evaluate`] gives the value, or the reason why there is none.
//!
//! The format of the files is docs/catalogue.md.

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
mod narrowed;
mod pci;
mod platform;
mod refer;
mod select;
mod template;
#[cfg(test)]
mod tests;
mod tlb;
mod told;

use std::{collections::BTreeMap, path::Path, sync::Arc};

pub use self::{
    chip::{Chip, Platform},
    counts::Counts,
    document::{Page, pages},
    error::{CatalogueError, Problem, SelectError, Unavailable},
    event_spec::{CountOf, EventSpec, Sampled},
    excerpt::Excerpt,
    groups::{CounterGroup, Place, Settings},
    hardware::Hardware,
    model::{Apportion, Family, Kind, Metric, Of, Per, PmuSpec, Requirement},
    narrowed::Narrowed,
    pci::{Accelerator, DeviceSpec, DiePart, FoundBy, StackSpec},
    platform::{
        Arch, ChipSpec, CpuModels, Driver, Gpus, Models, PlatformSpec, ProfileSpec, UncoreSpec,
        WeightSpec,
    },
    template::{Instance, Pattern},
    tlb::{TlbEntries, TlbSpec, walk_trips},
};

/// All metrics: the documented ones, and the user's.
#[derive(Clone, Debug)]
pub struct Catalogue {
    families: Vec<Arc<Family>>,
    metrics: Vec<Metric>,
    documents: BTreeMap<String, String>,
}

impl Catalogue {
    /// The documented metrics.
    ///
    /// # Errors
    /// A mistake in a file that was compiled in; the tests make sure that there is none.
    pub fn builtin() -> Result<Self, CatalogueError> {
        load::builtin()
    }

    /// Adds the metrics of a file in the same format.
    ///
    /// # Errors
    /// What is wrong with the file; nothing of it is added then.
    pub fn merge_file(&mut self, path: &Path) -> Result<(), CatalogueError> {
        let text = std::fs::read_to_string(path).map_err(|error| CatalogueError {
            file: path.display().to_string().into(),
            line: None,
            problem: Problem::Read(error),
        })?;
        self.merge(&path.display().to_string(), &text)
    }

    /// Adds the metrics of a text; `file` names it in errors.
    ///
    /// # Errors
    /// What is wrong with the text; nothing of it is added then.
    pub fn merge(&mut self, file: &str, text: &str) -> Result<(), CatalogueError> {
        load::merge_own(self, file, text)
    }

    /// The families, in the order of the files.
    pub fn families(&self) -> impl Iterator<Item = &Arc<Family>> {
        self.families.iter()
    }

    /// What an event counts that a PMU lists under this name, where the catalogue says so.
    #[must_use]
    pub fn event_text(&self, pmu: &str, name: &str, machine: &Hardware) -> Option<String> {
        let families = self
            .families
            .iter()
            .filter(|family| family.holds_on(machine));
        let specs = families.flat_map(|family| &family.pmus);
        let mut specs = specs.filter(|spec| spec.pattern.instance(pmu).is_some());
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
