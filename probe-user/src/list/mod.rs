//! List: what this machine can count, and why it cannot count the rest.
//!
//! [`Inventory`] joins the PMUs of sysfs with the kernel's generic events; whether a generic event is
//! counted here is found out by opening it, since no file says so.

mod events;
mod generic;
mod metrics;
mod pmus;
mod print;
#[cfg(test)]
mod tests;

use std::{io, path::Path};

pub(crate) use self::pmus::family;
pub use self::{
    events::{Availability, EventItem, Section},
    metrics::MetricItem,
    pmus::PmuItem,
    print::Part,
};
use crate::{
    catalogue::{Catalogue, Machine},
    devices::Devices,
    event::{Counter, Exclude},
    machine::{Pmus, cpus, topology::Topology},
    plan::Capacity,
    sys::perf,
};

/// Everything that can be listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    /// By name.
    pub pmus: Vec<PmuItem>,
    /// Generic events first, then those that PMUs name, then how to write raw ones.
    pub sections: Vec<Section>,
    /// PCI devices by what counts them.
    pub devices: Devices,
    /// The documented metrics of this platform.
    pub metrics: Vec<MetricItem>,
}

impl Inventory {
    /// What the running machine has; `machine` says which metrics hold on it.
    #[must_use]
    pub fn of_this_machine(pmus: &Pmus, catalogue: &Catalogue, machine: &Machine) -> Self {
        let online = cpus::online(Path::new("/sys")).unwrap_or_default();
        let cpu = online.iter().next().unwrap_or(0);
        let sysfs = Path::new("/sys");
        let clock = Counter::task_clock();
        let permitted = perf::open(&clock.attr(), Exclude::default(), cpu, None).is_ok();
        let capacity = if permitted {
            Capacity::of_this_machine(catalogue, machine, pmus, 0)
        } else {
            Capacity::documented(catalogue, machine, pmus, 0)
        };
        Self {
            devices: Devices::read(sysfs, pmus, &Topology::read(sysfs)),
            metrics: metrics::items(catalogue, machine, pmus, &capacity, permitted),
            ..Self::new(pmus, &|counter| {
                // One of those that it counts on, where cores differ in kind.
                let cpu = online
                    .iter()
                    .find(|cpu| counter.scope.counts_on(*cpu))
                    .unwrap_or(cpu);
                perf::open(&counter.attr(), Exclude::default(), cpu, None).map(drop)
            })
        }
    }

    /// What a machine with these PMUs has; `open` tries an event on one of its CPUs.
    fn new(pmus: &Pmus, open: &dyn Fn(&Counter) -> io::Result<()>) -> Self {
        Self {
            pmus: pmus::items(pmus),
            sections: events::sections(pmus, open),
            devices: Devices::default(),
            metrics: Vec::new(),
        }
    }
}
