//! The clock of differences.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` of this time namespace, for differences: the programs' clock is
/// `session::KernelClock`.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::try_from(time).expect("the monotonic clock starts at 0")
}
