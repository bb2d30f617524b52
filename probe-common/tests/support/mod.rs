//! What the SPE tests and the benchmark share: records described by their fields,
//! the bytes a core could write for them, and files that perf reads.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part of this module"
)]

pub mod fields;
pub mod perf;
pub mod random;
