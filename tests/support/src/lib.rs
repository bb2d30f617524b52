//! What tests of several packages have in common, without a kernel.
#![allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod tree;

pub use self::tree::{Tree, fixture, sysfs};
