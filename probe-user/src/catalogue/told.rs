//! The chip that metrics hold on: that of this machine, or the one that was named.

use super::{Chip, Hardware};
use crate::machine::Machine;

impl Hardware {
    /// What the user named, or what this machine is found to be. A warning where it is known to be
    /// another one: formulas and coverage of the wrong chip give wrong values, and no error.
    #[must_use]
    pub fn told(machine: &Machine, named: Option<Chip>) -> Self {
        let detected = Self::detect(machine);
        let Some(named) = named else {
            return detected;
        };
        if let Some(here) = other(&detected, named) {
            tracing::warn!(
                "chip {named} is not what this machine is found to be, which is {here}: metrics \
                 are those that are documented for {named}"
            );
        }
        // The chip does not tell how many sockets this machine has.
        Self {
            sockets: detected.sockets,
            ..Self::of_chip(named)
        }
    }
}

/// What the machine is, where it is not that chip.
fn other(detected: &Hardware, named: Chip) -> Option<String> {
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
    fn another_chip_is_said() {
        let chip = |name| Chip::named(name).expect("the catalogue has it");
        let here = Hardware::of_chip(chip("grace-hopper"));
        assert_eq!(other(&here, chip("grace-hopper")), None);
        let other_chip = other(&here, chip("grace-cpu-superchip"));
        assert_eq!(other_chip.as_deref(), Some("grace-hopper"));
        // A platform of several chips does not tell which.
        let platform = Hardware::of_platform(chip("grace-hopper").platform());
        assert_eq!(other(&platform, chip("grace-cpu-superchip")), None);
        let other_platform = other(&platform, chip("sapphire-rapids"));
        assert_eq!(other_platform.as_deref(), Some("of platform grace"));
    }
}
