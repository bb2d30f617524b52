//! The parts of an IIO stack that count a device, by the catalogue's tables from Intel PCM
//! ([`StackSpec`]).

use super::Device;
use crate::{catalogue::StackSpec, machine::Bdf};

/// A unit of the IIO PMU on one die.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stack<'a> {
    pub(super) spec: &'a StackSpec,
    /// Number of the unit.
    pub(super) unit: u32,
    /// Number of the unit that leads to the chipset (DMI); `None` if unknown.
    pub(super) dmi: Option<u32>,
}

impl Stack<'_> {
    /// The parts that count a device on the root bus, or all devices behind a root port on it.
    /// There are several if the device uses several, or if it is unknown which part it uses. Empty
    /// if nothing is known.
    pub(super) fn parts(self, port: Bdf, device: &Device, is_bridge: bool) -> Vec<u32> {
        if let Some(accelerator) = self.spec.accelerator(device.vendor, device.device) {
            let dies = accelerator.dies.iter();
            let mut matching = dies.filter(|die| Some(die.dmi_unit) == self.dmi);
            return match matching.next() {
                Some(die) => vec![die.part],
                None => accelerator.parts.clone(),
            };
        }
        if self.dmi == Some(self.unit) {
            return vec![self.spec.dmi];
        }
        u32::from(port.device)
            .checked_sub(self.spec.first_device)
            .filter(|part| is_bridge && *part < 8)
            .into_iter()
            .collect()
    }
}
