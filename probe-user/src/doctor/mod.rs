//! The doctor: what counting per container can use on this machine, what is missing, and the
//! remedies.
//!
//! [`examine`] runs all checks and changes nothing. Every check reads only a [`Subject`]: files
//! below its roots, its process, and its trials. So the same checks run on recorded trees.

mod cgroups;
mod config;
mod counter_profile;
mod counters;
mod finding;
mod kernel;
mod pmus;
mod print;
mod rights;
mod spe;
mod subject;
#[cfg(test)]
mod tests;
mod trials;

pub use self::{
    counter_profile::{CorePmu, CounterProfile, DefaultEvents, MultiplexedGroup},
    finding::{Area, Diagnosis, ExaminedMachine, Finding, Loss, Remedy, State},
    subject::Subject,
};

/// Runs every check.
#[must_use]
pub fn examine(subject: &Subject) -> Diagnosis {
    let config = subject.machine.kernel_config();
    let hierarchy = subject.machine.hierarchy();
    let pmus = subject.machine.pmus().map_err(|error| error.to_string());
    let mut findings = kernel::check(subject, config);
    findings.extend(rights::check(subject));
    findings.extend(cgroups::check(subject, hierarchy.as_ref().copied()));
    findings.extend(pmus::check(subject, config, &pmus));
    findings.extend(spe::check(subject, config, &pmus));
    findings.extend(counters::check(subject, config, &pmus));
    let counters = CounterProfile::for_subject(subject, pmus.as_ref().ok().copied());
    findings.extend(
        counters
            .iter()
            .flat_map(|profile| profile.findings(subject)),
    );
    findings.extend(trials::check(
        subject,
        hierarchy.ok(),
        pmus.as_ref().ok().copied(),
    ));
    Diagnosis {
        machine: subject.describe(),
        findings,
        counters,
    }
}
