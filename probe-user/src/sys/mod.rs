//! System calls that no crate wraps, each as a safe function; limits and clocks of this process.

pub(crate) mod aux;
pub(crate) mod bpf;
pub(crate) mod clock;
pub mod descriptors;
pub(crate) mod heap;
pub(crate) mod largest_child;
pub(crate) mod memory_policy;
pub(crate) mod pages;
pub(crate) mod perf;
pub(crate) mod records;
pub(crate) mod ring;
pub mod roots;
pub(crate) mod samples;
pub(crate) mod signals;
pub(crate) mod spawn;
pub mod spin;
pub(crate) mod threads;
pub(crate) mod trusted_files;
pub(crate) mod uevents;
pub(crate) mod wire;
