//! Tests that run inside the guests of `cargo xtask vm`, each in a process of its own.
//!
//! A test that cannot run in a guest calls [`guest::skip`] and returns: the run shows the reason.

mod counter;
mod guest;
mod smoke;
