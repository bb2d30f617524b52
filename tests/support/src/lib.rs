//! Test support for several packages that needs no kernel.
//!
//! This crate does not name probe-user, so that the unit tests of probe-user can use it.
#![allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod fields;
mod random;
mod tree;

pub use self::{
    fields::Fields,
    random::Random,
    tree::{Tree, fixture, sysfs},
};
