//! Tests on the running kernel with software events, for which the exact counts are known.
//!
//! The tests need `CAP_BPF`, `CAP_PERFMON` and the right to create cgroups. Without these they
//! print that they were skipped.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod attribution;
mod bpffs;
mod command;
mod conservation;
mod containerd;
mod controlled;
mod descriptors;
mod doctor;
mod endings;
mod full;
mod hidden;
mod hot;
mod kernel_log;
mod kinds;
mod leftovers;
mod lifetimes;
mod mem_record;
mod memory;
mod moves;
mod namespaces;
mod nobody;
mod peers;
mod pins;
mod pressure;
mod processes;
mod recordings;
mod regions;
mod restarts;
mod rights;
mod roofline;
mod rows;
mod runc;
mod sampled;
mod soak;
mod terminal;
mod top;
mod usage;
mod waits;
mod waits_of_containers;
