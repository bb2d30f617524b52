//! Doctor: what this machine gives to counting per container, what is lost, and what mends it.
//!
//! Every check reads below the roots of a [`Machine`] and asks its process and trials, so that the
//! same checks run on recorded trees. [`examine`] runs them all; nothing is changed by looking.

mod cgroups;
mod config;
mod counters;
mod finding;
mod kernel;
mod machine;
mod platform;
mod pmus;
mod print;
mod rights;
mod spe;
#[cfg(test)]
mod tests;
mod trials;

pub use self::{
    finding::{Area, Diagnosis, Finding, Loss, Remedy, State},
    machine::Machine,
};
use crate::machine::{cgroup::Hierarchy, kernel_config::KernelConfig};

/// Runs every check.
#[must_use]
pub fn examine(machine: &Machine) -> Diagnosis {
    let config = KernelConfig::read(&machine.proc, &machine.boot);
    let hierarchy = Hierarchy::find(&machine.proc);
    let pmus = pmus::read(machine);
    let mut findings = kernel::check(machine, config.as_ref());
    findings.extend(rights::check(machine));
    findings.extend(cgroups::check(machine, hierarchy.as_ref()));
    findings.extend(pmus::check(machine, config.as_ref(), &pmus));
    findings.extend(spe::check(machine, config.as_ref(), &pmus));
    findings.extend(counters::check(machine, config.as_ref(), &pmus));
    findings.extend(trials::check(
        machine,
        hierarchy.ok().as_ref(),
        pmus.as_ref().ok(),
    ));
    Diagnosis { findings }
}
