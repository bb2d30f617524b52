//! The system calls that no crate wraps, each in a safe function.

pub(crate) mod aux;
pub(crate) mod bpf;
pub(crate) mod perf;
pub(crate) mod ring;
pub(crate) mod spawn;
