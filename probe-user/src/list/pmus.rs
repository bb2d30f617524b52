//! The PMUs of the machine.

use crate::{
    event::spe::is_spe,
    machine::{Pmu, PmuKind, Pmus},
};

/// PMUs with events that carry data for tracing.
const TRACING: [&str; 4] = ["breakpoint", "kprobe", "tracepoint", "uprobe"];

/// One PMU.
#[derive(Clone, Debug, PartialEq)]
pub struct PmuItem {
    /// The name of its directory in sysfs.
    pub name: String,
    /// The PMU, or why its description cannot be read.
    pub pmu: Result<Pmu, String>,
}

impl PmuItem {
    /// The PMU's kind in a word or two: `core`, `uncore`, `software` and the like.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &self.pmu {
            Err(_) => "unreadable",
            Ok(_) if is_spe(&self.name) => "sampling",
            Ok(_) if TRACING.contains(&self.name.as_str()) => "tracing",
            Ok(pmu) => match pmu.kind {
                PmuKind::Core => "core",
                PmuKind::Uncore { .. } => "uncore",
                PmuKind::Other if self.name == "software" => "software",
                PmuKind::Other => "per CPU",
            },
        }
    }

    /// The meaning of the PMU's kind, or why the PMU cannot be used.
    #[must_use]
    pub fn description(&self) -> String {
        let pmu = match &self.pmu {
            Ok(pmu) => pmu,
            Err(reason) => return reason.clone(),
        };
        match (self.kind(), &pmu.kind) {
            ("sampling", _) => "samples of memory accesses (Arm SPE)".to_owned(),
            ("tracing", _) => "for tracing; pmuscope counts none of its events".to_owned(),
            ("software", _) => "counted by the kernel, per container".to_owned(),
            (_, PmuKind::Core) => "the CPUs' own counters, per container".to_owned(),
            (_, PmuKind::Uncore { cpus }) if cpus.is_empty() => {
                "its cpumask is empty: bring a CPU of that part of the machine online".to_owned()
            }
            (_, PmuKind::Uncore { cpus }) => {
                format!("per socket or device, opened on CPUs {cpus}")
            }
            (_, PmuKind::Other) => "counted on each CPU".to_owned(),
        }
    }
}

pub(super) fn items(pmus: &Pmus) -> Vec<PmuItem> {
    let item = |name: &str| {
        let pmu = pmus.get(name)?;
        Some(PmuItem {
            name: name.to_owned(),
            pmu: pmu.cloned().map_err(ToString::to_string),
        })
    };
    pmus.names().filter_map(item).collect()
}

/// The name of a PMU, with N for each number or address between underscores, which identifies an
/// instance. `nvidia_nvlink_c2c0_pmu_1` and `nvidia_nvlink_c2c1_pmu_1` stay two kinds.
pub(crate) fn pmu_kind(name: &str) -> String {
    let part = |part: &str| {
        let is_number = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        // Arm's drivers name some PMUs by an address, such as arm_dmc620_10008c000.
        let is_address = part.len() >= 6
            && part.bytes().all(|b| b.is_ascii_hexdigit())
            && part.bytes().any(|b| b.is_ascii_digit());
        if is_number || is_address {
            "N".to_owned()
        } else {
            part.to_owned()
        }
    };
    name.split('_').map(part).collect::<Vec<_>>().join("_")
}
