//! Lists what this machine can count, and why it cannot count the rest.
//!
//! [`Inventory`] joins the PMUs of sysfs with the kernel's generic events. No file says whether a
//! generic event is counted here, so each is opened.

mod events;
mod generic;
mod metrics;
mod pmus;
mod print;
#[cfg(test)]
mod tests;

use std::{io, sync::Arc};

pub(crate) use self::pmus::pmu_kind;
pub use self::{
    events::{Availability, EventItem, EventSection},
    metrics::MetricItem,
    pmus::PmuItem,
    print::{InventoryPart, write_metrics},
};
use crate::{
    catalogue::{Catalogue, Hardware},
    devices::Devices,
    event::{Counter, Exclude},
    machine::{Machine, Pmus, SysfsError},
    plan::Capacity,
    sys::perf,
};

/// Everything that can be listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    /// The PMUs, in the order of their names.
    pub pmus: Vec<PmuItem>,
    /// Generic events first, then events that PMUs name, then how to write raw events.
    pub sections: Vec<EventSection>,
    /// PCI devices, with the uncore PMUs that count them.
    pub devices: Devices,
    /// The documented metrics of this platform.
    pub metrics: Vec<MetricItem>,
}

impl Inventory {
    /// The inventory of the running machine; `hardware` decides which metrics apply.
    ///
    /// # Errors
    ///
    /// The PMUs cannot be listed.
    pub fn of_this_machine(
        machine: &Machine,
        catalogue: &Catalogue,
        hardware: &Hardware,
    ) -> Result<Self, Arc<SysfsError>> {
        let pmus = machine.pmus()?;
        let online = machine.online().unwrap_or_default();
        let cpu = online.iter().next().unwrap_or(0);
        let clock = Counter::task_clock();
        let permitted = perf::open(&clock.attr(), Exclude::default(), cpu, None).is_ok();
        let capacity = if permitted {
            Capacity::of_this_machine(catalogue, hardware, pmus, online.clone(), 0)
        } else {
            Capacity::documented(catalogue, hardware, pmus, 0)
        };
        let mut inventory = Self {
            devices: Devices::read(machine, pmus, catalogue),
            metrics: metrics::items(catalogue, hardware, pmus, &capacity, permitted),
            ..Self::new(pmus, &|counter| {
                if counter.is_of_scheduler() {
                    let error = || io::Error::from_raw_os_error(libc::ENOSYS);
                    return machine.keeps_waits().then_some(()).ok_or_else(error);
                }
                // With several kinds of core, the event counts only on some CPUs.
                let cpu = online
                    .iter()
                    .find(|cpu| counter.scope.counts_on(*cpu))
                    .unwrap_or(cpu);
                perf::open(&counter.attr(), Exclude::default(), cpu, None).map(drop)
            })
        };
        events::describe(&mut inventory.sections, catalogue, hardware);
        Ok(inventory)
    }

    /// The inventory of a machine with these PMUs; `open` tries an event on one of its CPUs.
    fn new(pmus: &Pmus, open: &dyn Fn(&Counter) -> io::Result<()>) -> Self {
        Self {
            pmus: pmus::items(pmus),
            sections: events::sections(pmus, open),
            devices: Devices::default(),
            metrics: Vec::new(),
        }
    }
}
