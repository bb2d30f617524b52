//! Resolves the hardware that metrics are for: the chip that was named, or the detected one.

use super::{Chip, Hardware};
use crate::machine::Machine;

/// The hardware of the named chip; without one, the detected hardware. Warns if the detected chip
/// is another one: the formulas of the wrong chip give wrong values without an error.
#[must_use]
pub fn resolve_hardware(machine: &Machine, named: Option<Chip>) -> Hardware {
    let detected = Hardware::detect(machine);
    let Some(named) = named else {
        return detected;
    };
    if let Some(found) = mismatch(&detected, named) {
        tracing::warn!(
            "chip {named} is not what this machine is found to be, which is {found}: metrics \
             are those that are documented for {named}"
        );
    }
    // The chip does not determine the number of sockets.
    Hardware {
        sockets: detected.sockets,
        ..Hardware::of_chip(named)
    }
}

/// The name of the detected hardware if it cannot be the named chip, else `None`.
fn mismatch(detected: &Hardware, named: Chip) -> Option<String> {
    match detected.chip {
        Some(chip) if chip == named => None,
        Some(chip) => Some(chip.to_string()),
        None if detected.platform == named.platform() => None,
        None => Some(format!("of platform {}", detected.platform)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_chip_is_reported() {
        let chip = |name| Chip::named(name).expect("the catalogue has it");
        let here = Hardware::of_chip(chip("grace-hopper"));
        assert_eq!(mismatch(&here, chip("grace-hopper")), None);
        let other_chip = mismatch(&here, chip("grace-cpu-superchip"));
        assert_eq!(other_chip.as_deref(), Some("grace-hopper"));
        // A platform with several chips does not determine the chip.
        let platform = Hardware::of_platform(chip("grace-hopper").platform());
        assert_eq!(mismatch(&platform, chip("grace-cpu-superchip")), None);
        let other_platform = mismatch(&platform, chip("sapphire-rapids"));
        assert_eq!(other_platform.as_deref(), Some("of platform grace"));
    }
}
