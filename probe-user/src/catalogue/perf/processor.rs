//! The CPU whose files are read from a directory of perf's.

use std::sync::OnceLock;

use crate::{
    catalogue::{Catalogue, Hardware, Models, Platform},
    machine::Machine,
    sys::clock,
};

/// `MIDR_EL1` without variant and revision.
const MIDR_PART: u64 = 0xff0f_fff0;

/// Variant and revision in `MIDR_EL1`.
const MIDR_REVISION: u64 = 0x00f0_000f;

/// The CPU models that mapfile.csv is searched for, and what expressions ask about them.
#[derive(Clone, Debug, Default)]
pub struct Processor {
    /// perf's names of an x86 CPU, with its stepping and without.
    names: Vec<String>,
    /// `MIDR_EL1` of Arm cores.
    midr: Vec<u64>,
    /// Whether it is this machine's CPU. Only then does `midr` have variant and revision.
    is_exact: bool,
    /// Whether cores run two threads; `None` if unknown.
    smt: Option<bool>,
    /// Hz of the time stamp counter, measured at its first use; `None` if unknown.
    tsc_frequency: OnceLock<Option<f64>>,
}

impl Processor {
    /// The CPU of the hardware: this machine's, unless another platform was named.
    #[must_use]
    pub fn of_machine(catalogue: &Catalogue, machine: &Machine, hardware: &Hardware) -> Self {
        if Hardware::detect(machine).platform != hardware.platform {
            return Self::of_platform(catalogue, hardware.platform);
        }
        let names = machine.cpu_model().map(|cpu| {
            let name = format!("{}-{}-{:X}", cpu.vendor, cpu.family, cpu.model);
            let with_stepping = cpu.stepping.map(|stepping| format!("{name}-{stepping:X}"));
            std::iter::once(name).chain(with_stepping)
        });
        let smt = machine.sys("devices/system/cpu/smt/active");
        Self {
            names: names.into_iter().flatten().collect(),
            midr: machine.midr(0).into_iter().collect(),
            is_exact: true,
            smt: smt.map(|active| active == "1"),
            tsc_frequency: OnceLock::new(),
        }
    }

    /// The CPU models of a platform.
    #[must_use]
    pub fn of_platform(catalogue: &Catalogue, platform: Platform) -> Self {
        let spec = platform.spec();
        let names = spec.cpus.iter().flat_map(|cpus| {
            let models = cpus.models.iter().flat_map(|models| match *models {
                Models::One(one) => one..=one,
                Models::Range(first, last) => first..=last,
            });
            models.map(|model| format!("{}-{}-{model:X}", cpus.vendor, cpus.family))
        });
        // A platform that is identified by its PMUs has the cores of its families.
        let of_families = catalogue
            .families()
            .filter(|family| family.platforms.contains(&platform))
            .flat_map(|family| &family.midr);
        let midr = spec.midr.iter().chain(of_families);
        Self {
            names: names.collect(),
            midr: midr.map(|midr| u64::from(*midr)).collect(),
            is_exact: false,
            smt: None,
            tsc_frequency: OnceLock::new(),
        }
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether it has cores with this `MIDR_EL1`, apart from variant and revision.
    pub(super) fn is_part(&self, midr: u64) -> bool {
        let mut own = self.midr.iter();
        own.any(|own| own & MIDR_PART == midr & MIDR_PART)
    }

    /// Whether it has cores with this `MIDR_EL1`, in this variant and revision or a later one;
    /// `None` if unknown.
    pub(super) fn is_at_least(&self, midr: u64) -> Option<bool> {
        if !self.is_part(midr) {
            return (!self.midr.is_empty()).then_some(false);
        }
        let revision = midr & MIDR_REVISION;
        if revision == 0 {
            return Some(true);
        }
        let mut own = self.midr.iter();
        self.is_exact
            .then(|| own.any(|own| own & MIDR_REVISION >= revision))
    }

    pub(super) fn smt(&self) -> Option<bool> {
        self.smt
    }

    pub(super) fn tsc_frequency(&self) -> Option<f64> {
        let measure = || self.is_exact.then(clock::tsc_frequency).flatten();
        *self.tsc_frequency.get_or_init(measure)
    }
}

/// The names, for messages.
impl std::fmt::Display for Processor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let midr = self.midr.iter().map(|midr| format!("MIDR {midr:#x}"));
        let all: Vec<String> = self.names.iter().cloned().chain(midr).collect();
        match &all[..] {
            [] => f.write_str("an unknown CPU"),
            _ => f.write_str(&all.join(", ")),
        }
    }
}
