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
    /// The unit of the chipset (DMI).
    pub(super) dmi: Option<u32>,
}

impl Stack<'_> {
    /// The parts that count a device on the root bus, or all devices behind a root port on it.
    /// Several if the device uses several, or if it is unknown which one. Empty if nothing is
    /// known.
    pub(super) fn parts(self, port: Bdf, device: &Device, is_bridge: bool) -> Vec<u32> {
        if let Some(accelerator) = self.spec.accelerator(device.vendor, device.device) {
            let dies = accelerator.dies.iter();
            let mut known = dies.filter(|die| Some(die.dmi_unit) == self.dmi);
            return match known.next() {
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
