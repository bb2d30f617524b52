//! The machine's roofline (docs/reference/roofline.md): bandwidth by a STREAM-like triad over
//! threads and sizes, peak of floating-point operations, idle latency, and the bytes in flight by
//! Little's law.
//!
//! [`measure()`] returns a [`Roofline`]; [`table`] and [`json`] write it. It needs no session.

pub(crate) mod kernels;
mod measure;
mod print;
mod result;
mod sweep;
mod timed;
mod work;

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity};

pub use self::{
    kernels::{Stores, Vectors},
    measure::measure,
    print::{json, table},
    result::{
        Bandwidth, Disturbance, FORMAT, Latency, MeasuredCpus, Peak, Roof, Roofline, RunStats,
        bytes_in_flight, lines_per_core,
    },
};
use crate::machine::cpus::{CpuList, CpuListError};

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RooflineOptions {
    /// Numbers of threads; empty: powers of two, one for each core, one for each CPU.
    pub threads: Vec<usize>,
    /// Total bytes of the three arrays of all threads; empty: chosen by the caches.
    pub sizes: Vec<u64>,
    /// Number of runs; the best and the median are shown.
    pub runs: usize,
}

/// Why nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum RooflineError {
    /// The kernel does not report the CPUs that this process may use.
    #[error(
        "cannot tell on which CPUs this process may run ({0}): run it on one of up to 1024 CPUs, \
         as `taskset -c 0-7 pmuscope roofline`"
    )]
    Affinity(io::Error),
    /// The kernel does not report the online CPUs.
    #[error(transparent)]
    Cpus(#[from] CpuListError),
    /// A thread cannot be pinned to its CPU.
    #[error("a thread may not run on CPU {cpu} ({error}): was it taken offline?")]
    Pin {
        /// The CPU.
        cpu: u32,
        /// The kernel's error.
        error: io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread ({0}): raise the limit of tasks (pids.max), or use --threads")]
    Thread(io::Error),
    /// Memory cannot be mapped.
    #[error("cannot map {bytes} bytes for the arrays ({error}): use a smaller --sizes")]
    Memory {
        /// Bytes to map.
        bytes: u64,
        /// The kernel's error.
        error: io::Error,
    },
    /// More threads were requested than there are CPUs.
    #[error(
        "--threads {asked}: this process has {most} CPUs{why}; a thread is measured on a CPU of \
         its own"
    )]
    Threads {
        /// Threads requested.
        asked: usize,
        /// Threads possible.
        most: usize,
        /// Names the cgroup's limit if that is the reason, else empty.
        why: &'static str,
    },
    /// The requested arrays do not fit into the free memory.
    #[error(
        "--sizes {asked}: of the memory that this process may use {most} bytes are free, and three \
         quarters of that are the most"
    )]
    Size {
        /// Bytes requested.
        asked: u64,
        /// Bytes that are free.
        most: u64,
    },
}

/// The CPUs that this process may run on.
pub(crate) fn allowed_cpus() -> Result<CpuList, RooflineError> {
    let set = sched_getaffinity(None).map_err(|error| RooflineError::Affinity(error.into()))?;
    let all = 0..u32::try_from(CpuSet::MAX_CPU).unwrap_or(u32::MAX);
    Ok(all
        .filter(|cpu| usize::try_from(*cpu).is_ok_and(|cpu| set.is_set(cpu)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::allowed_cpus;

    /// A CPU that tests may run on.
    pub(super) fn first_cpu() -> u32 {
        allowed_cpus().unwrap().iter().next().unwrap()
    }
}
