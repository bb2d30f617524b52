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
//! # The files
//!
//! ```toml
//! name = "my-family"                 # unique
//! title = "What it is"
//! order = 20                         # optional: its place in the documentation; 500
//! platforms = ["grace"]              # where it holds; absent: everywhere, or where `arch` is
//! arch = "arm64"                     # optional, in place of platforms
//! midr = [0x410fd4f0]                # optional: only on these Arm cores
//! fallback = true                    # optional: other families' metrics of the same name hide it
//! document = "grace"                 # key of documents.toml, or any title
//!
//! [pmu.scf]
//! pattern = "nvidia_scf_pmu_{socket}"  # the directory in sysfs; `{core}` is the core PMU
//! product = 0x2cf                    # optional: told by its `identifier`, not by its name
//! per = "socket"                     # cpu: per container; socket: sum of units; device: each
//! mismatch = 79                      # with from_sockets: its largest error, in thousandths
//! counters = 8                       # optional: how many events fit at once
//! slots = 8                          # optional: `slots` where sysfs does not tell
//! defaults = { root_port = 0x3ff }   # optional: filters that are always written
//! devices = { by = "domain", ports = "root_port" }   # optional: the PCI devices that it counts
//!
//! [pmu.scf.events]
//! # count: what one count is. id: the value of the term `event`. fixed: has a counter of its own.
//! # counters: the only ones it can use. also: names under which tools print it.
//! # sampled: it is no count, but estimated from the SPE samples of that event (Sampled).
//! CYCLES = { perf = "{pmu}/cycles/", id = 0x100000000, count = "cycle", fixed = true }
//! CMEM_RD_DATA = { perf = "{pmu}/cmem_rd_data/", id = 0x1a5, count = "beat32" }
//!
//! [notes]
//! beats = "A beat is up to 32 bytes."
//! no_gpu = "the chip has no GPU"
//!
//! [[metric]]
//! name = "read_bandwidth"            # snake_case
//! aliases = ["rbw"]                  # optional
//! title = "Read bandwidth"
//! unit = "GB/s"
//! kind = "rate"                      # counter, ratio, rate, latency
//! group = "memory"                   # for `group:memory`
//! also_in = ["ddio"]                 # optional: other groups that select it
//! formula = "CMEM_RD_DATA * 32 / duration_time"  # over events, other metrics, quantities
//! section = "SCF PMU Metrics"        # of the document
//! document = "grace"                 # optional: where it is not the file's
//! apportion = "cpu_read"             # optional: how shares of containers are made
//! from_sockets = "REMOTE_RD"         # optional: what the CPUs of the other socket say they sent here
//! io = ["IO_MISS"]                   # optional: the part of devices, events of another PMU of the file
//! bound = 100                        # optional: a share cannot be larger
//! requires = "one-gpu"               # optional: the configuration it holds in
//! notes = ["beats"]                  # optional: keys of [notes], all in the help text
//! not_on = { grace-cpu-superchip = "no_gpu" }   # optional: chip, and the key of the reason
//! ```
//!
//! Placeholders of `pattern`: `{socket}`, `{rc}` (root complex), `{unit}` are numbers, `{address}`
//! is one in hexadecimal; `{core}` is the core PMU, whatever its name. Of `perf`: `{pmu}` is the
//! PMU's name, `{peer}` the number of another socket (one instance for each), `{part_mask}` the bit
//! of an IIO part (one instance for each of the 8), and every key of `defaults` its value. In
//! `also`, `{peer}` and `{part}` are the numbers.
//!
//! The compiled-in files may have `[[platform]]` tables and a table `[driver]`, in the form of
//! [`PlatformSpec`] and [`Driver`]; CONTRIBUTING.md has an example.
//!
//! A metric whose unit is bytes per second is checked when it is loaded: each of its events must
//! come with the factor from counts to bytes ([`CountOf::bytes`]) or the file is refused.

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
mod load;
mod model;
mod narrowed;
mod pci;
mod refer;
mod select;
mod template;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::Path, sync::Arc};

pub use self::{
    chip::{
        Arch, Chip, ChipSpec, CpuModels, Driver, Gpus, Hardware, Models, Platform, PlatformSpec,
        UncoreSpec, WeightSpec,
    },
    counts::Counts,
    document::{Page, pages},
    error::{CatalogueError, Problem, SelectError, Unavailable},
    event_spec::{CountOf, EventSpec, Sampled},
    excerpt::Excerpt,
    groups::{CounterGroup, Place, Settings},
    model::{Apportion, Family, Kind, Metric, Of, Per, PmuSpec, Requirement},
    narrowed::Narrowed,
    pci::{DeviceSpec, FoundBy},
    template::{Instance, Pattern},
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
            file: path.display().to_string(),
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

    /// Every metric of every platform, in the order of the files.
    pub fn metrics(&self) -> impl Iterator<Item = &Metric> {
        self.metrics.iter()
    }
}
