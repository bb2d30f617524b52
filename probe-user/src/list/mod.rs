//! List: what this machine can count, and why it cannot count the rest.
//!
//! [`Inventory`] joins the PMUs of sysfs with the kernel's generic events; whether a generic event is
//! counted here is found out by opening it, since no file says so.

mod events;
mod generic;
mod pmus;
mod print;
#[cfg(test)]
mod tests;

use std::{io, path::Path};

pub(crate) use self::pmus::family;
pub use self::{
    events::{Availability, EventItem, Section},
    pmus::PmuItem,
    print::Part,
};
use crate::{
    cpus,
    devices::Devices,
    event::{Counter, Exclude, Pmus},
    sys::perf,
    topology::Topology,
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
}

impl Inventory {
    /// What the running machine has.
    #[must_use]
    pub fn of_this_machine(pmus: &Pmus) -> Self {
        let online = cpus::online(Path::new("/sys")).unwrap_or_default();
        let cpu = online.iter().next().unwrap_or(0);
        let sysfs = Path::new("/sys");
        let devices = Devices::read(sysfs, pmus, &Topology::read(sysfs));
        let open = |counter: &Counter| perf::open(counter, Exclude::default(), cpu, None).map(drop);
        Self {
            devices,
            ..Self::new(pmus, &open)
        }
    }

    /// What a machine with these PMUs has; `open` tries an event on one of its CPUs.
    fn new(pmus: &Pmus, open: &dyn Fn(&Counter) -> io::Result<()>) -> Self {
        Self {
            pmus: pmus::items(pmus),
            sections: events::sections(pmus, open),
            devices: Devices::default(),
        }
    }
}
