//! Tests that run inside the guests of `cargo xtask vm`, each in its own process.
//!
//! A test that cannot run in a guest calls [`guest::skip`] and returns: the run shows the reason.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access_record;
mod access_support;
mod accesses;
mod accounting;
mod agent;
mod agent_accesses;
mod calibrated;
mod capacity;
mod cli;
mod counter;
mod guest;
mod hooks;
mod hotplug;
mod hybrid;
mod icount;
mod mem_record;
mod mem_support;
mod metrics;
mod metrics_stat;
mod metrics_uncore;
mod pins;
mod plans;
mod pmus;
mod recordings;
mod regions;
mod report;
mod roofline;
mod sampled;
mod sampled_plan;
mod scale;
mod shares;
mod signals;
mod smoke;
mod spe;
mod spe_clock;
mod spe_lines;
mod spe_lives;
mod spe_losses;
mod spe_support;
mod testpmu;
mod turns;
mod uncore;
