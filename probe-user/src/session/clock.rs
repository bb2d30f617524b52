//! The clock that the programs stamp with, read in user space.
//!
//! Both call it `CLOCK_MONOTONIC`, but in a time namespace user space gets another one (Linux 5.6,
//! `time_namespaces(7)`): at a constant distance, which is measured.

use std::time::Duration;

use super::{Object, SessionError, object::CLOCK};
use crate::sys::clock::{nanos, now, wall};

/// The programs' clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelClock {
    /// Nanoseconds that it is ahead of ours.
    ahead: i64,
}

/// Readings that narrow the distance down: an interrupt widens some.
const READINGS: usize = 8;

impl KernelClock {
    /// Measures the distance; off by less than a microsecond, but exactly 0 in the initial time
    /// namespace.
    pub(crate) fn measure(object: &mut Object) -> Result<Self, SessionError> {
        object.programs.load(CLOCK)?;
        let mut bounds = Bounds::default();
        for _ in 0..READINGS {
            let before = nanos(now());
            object.programs.run(CLOCK, None, &[])?;
            let after = nanos(now());
            bounds.narrow(before, object.maps.clock.get(0)?.now, after);
        }
        Ok(Self {
            ahead: bounds.distance(),
        })
    }

    /// Unix time at which the programs' clock was 0, by the wall's clock of now.
    pub(crate) fn boot_time(self) -> Duration {
        wall().saturating_sub(self.now())
    }

    /// A time of our clock, by that of the programs.
    pub(crate) fn of(self, ours: Duration) -> Duration {
        Duration::from_nanos(nanos(ours).saturating_add_signed(self.ahead))
    }

    /// What the programs would stamp with now.
    pub(crate) fn now(self) -> Duration {
        self.of(now())
    }
}

/// Between which the distance lies.
struct Bounds {
    least: i64,
    most: i64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            least: i64::MIN,
            most: i64::MAX,
        }
    }
}

impl Bounds {
    /// Takes in a stamp of the other clock from between two of ours.
    fn narrow(&mut self, before: u64, stamp: u64, after: u64) {
        self.least = self.least.max(stamp.wrapping_sub(after).cast_signed());
        self.most = self.most.min(stamp.wrapping_sub(before).cast_signed());
    }

    fn distance(&self) -> i64 {
        if (self.least..=self.most).contains(&0) {
            0
        } else {
            self.least.midpoint(self.most)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the other clock is ahead by, the distance is off by no more than a reading
        /// takes.
        #[test]
        fn the_distance_is_within_the_narrowest_reading(
            ahead in -1_i64 << 60..1 << 60,
            readings in prop::collection::vec(
                (1_u64 << 61..1 << 62, 0_u64..5000, 0_u64..5000),
                1..8,
            ),
        ) {
            let mut bounds = Bounds::default();
            for (at, before, after) in &readings {
                bounds.narrow(at - before, at.wrapping_add_signed(ahead), at + after);
            }
            let narrowest = readings.iter().map(|(_, before, after)| before + after).min();
            prop_assert!(bounds.distance().abs_diff(ahead) <= narrowest.unwrap());
        }

        #[test]
        fn the_same_clock_is_at_no_distance(
            readings in prop::collection::vec((1_u64 << 40.., 0_u64..5000, 0_u64..5000), 1..8),
        ) {
            let mut bounds = Bounds::default();
            for (at, before, after) in readings {
                bounds.narrow(at - before, at, at.saturating_add(after));
            }
            prop_assert_eq!(bounds.distance(), 0);
        }
    }
}
