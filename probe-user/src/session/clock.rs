//! The clock of the programs' timestamps, read in user space.
//!
//! Programs and user space both read `CLOCK_MONOTONIC`. But in a time namespace user space sees
//! another clock (Linux 5.6, `time_namespaces(7)`). The offset between these clocks is constant,
//! and is measured.

use std::time::Duration;

use super::{EbpfObject, SessionError, object::CLOCK};
use crate::sys::clock::{nanos, now, wall};

/// The programs' clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelClock {
    /// Nanoseconds by which the programs' clock is ahead of this process's clock.
    ahead: i64,
}

/// Number of readings that narrow the offset down. An interrupt makes a single reading less exact.
const READINGS: usize = 8;

impl KernelClock {
    /// Measures the offset, to less than a microsecond; it is exactly 0 in the initial time
    /// namespace.
    pub(crate) fn measure(object: &mut EbpfObject) -> Result<Self, SessionError> {
        object.programs.load(CLOCK)?;
        let mut bounds = OffsetBounds::default();
        for _ in 0..READINGS {
            let before = nanos(now());
            object.programs.run(CLOCK, None, &[])?;
            let after = nanos(now());
            bounds.narrow(before, object.maps.clock.get(0)?.now, after);
        }
        Ok(Self {
            ahead: bounds.offset(),
        })
    }

    /// Unix time at which the programs' clock was 0, by the current wall clock.
    pub(crate) fn boot_time(self) -> Duration {
        wall().saturating_sub(self.now())
    }

    /// Converts a time of this process's clock to the programs' clock.
    pub(crate) fn convert(self, process_time: Duration) -> Duration {
        Duration::from_nanos(nanos(process_time).saturating_add_signed(self.ahead))
    }

    /// The current time of the programs' clock.
    pub(crate) fn now(self) -> Duration {
        self.convert(now())
    }
}

/// Lower and upper bound of the offset, in ns.
struct OffsetBounds {
    lower: i64,
    upper: i64,
}

impl Default for OffsetBounds {
    fn default() -> Self {
        Self {
            lower: i64::MIN,
            upper: i64::MAX,
        }
    }
}

impl OffsetBounds {
    /// Narrows the bounds by a timestamp of the programs that was taken between two readings of
    /// this process's clock.
    fn narrow(&mut self, before: u64, stamp: u64, after: u64) {
        self.lower = self.lower.max(stamp.wrapping_sub(after).cast_signed());
        self.upper = self.upper.min(stamp.wrapping_sub(before).cast_signed());
    }

    /// The offset: 0 if the bounds allow it, else the middle between them.
    fn offset(&self) -> i64 {
        if (self.lower..=self.upper).contains(&0) {
            0
        } else {
            self.lower.midpoint(self.upper)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The error of the offset is never larger than the duration of a reading.
        #[test]
        fn the_offset_is_exact_to_the_narrowest_reading(
            ahead in -1_i64 << 60..1 << 60,
            readings in prop::collection::vec(
                (1_u64 << 61..1 << 62, 0_u64..5000, 0_u64..5000),
                1..8,
            ),
        ) {
            let mut bounds = OffsetBounds::default();
            for (at, before, after) in &readings {
                bounds.narrow(at - before, at.wrapping_add_signed(ahead), at + after);
            }
            let narrowest = readings.iter().map(|(_, before, after)| before + after).min();
            prop_assert!(bounds.offset().abs_diff(ahead) <= narrowest.unwrap());
        }

        #[test]
        fn equal_clocks_have_no_offset(
            readings in prop::collection::vec((1_u64 << 40.., 0_u64..5000, 0_u64..5000), 1..8),
        ) {
            let mut bounds = OffsetBounds::default();
            for (at, before, after) in readings {
                bounds.narrow(at - before, at, at.saturating_add(after));
            }
            prop_assert_eq!(bounds.offset(), 0);
        }
    }
}
