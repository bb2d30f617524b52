//! The machine's roofline: bandwidth by a STREAM-like triad over threads and sizes, peak of
//! floating-point operations, idle latency, and the bytes in flight that follow (docs/roofline.md).
//! It measures the machine itself, apart from sessions.

mod kernels;
mod measure;
mod places;
mod print;
mod result;
mod timed;
mod work;

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity};

pub use self::{
    kernels::{Stores, Vectors},
    measure::measure,
    print::{json, table},
    result::{
        Bandwidth, Disturbance, FORMAT, Latency, On, Peak, Roof, Roofline, Runs, bytes_in_flight,
        lines_per_core,
    },
};
use crate::machine::cpus::{CpuList, CpuListError};

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Numbers of threads; empty: powers of two, one for each core, one for each CPU.
    pub threads: Vec<usize>,
    /// Bytes of the three arrays of all threads; empty: by the caches.
    pub sizes: Vec<u64>,
    /// Runs of which the best and the median are shown.
    pub runs: usize,
}

/// Why nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum RooflineError {
    /// The CPUs that this process may use are not told.
    #[error(
        "cannot tell on which CPUs this process may run ({0}): run it on one of up to 1024 CPUs, \
         as `taskset -c 0-7 pmuscope roofline`"
    )]
    Affinity(io::Error),
    /// The CPUs of the machine are not told.
    #[error(transparent)]
    Cpus(#[from] CpuListError),
    /// A thread cannot stay on its CPU.
    #[error("a thread may not run on CPU {cpu} ({error}): was it taken offline?")]
    Pin {
        /// The CPU.
        cpu: u32,
        /// What the kernel said.
        error: io::Error,
    },
    /// No more threads.
    #[error("cannot start a thread ({0}): raise the limit of tasks (pids.max), or use --threads")]
    Thread(io::Error),
    /// No memory.
    #[error("cannot map {bytes} bytes for the arrays ({error}): use a smaller --sizes")]
    Memory {
        /// How many.
        bytes: u64,
        /// What the kernel said.
        error: io::Error,
    },
    /// More threads than CPUs.
    #[error(
        "--threads {asked}: this process has {most} CPUs{why}; a thread is measured on a CPU of \
         its own"
    )]
    Threads {
        /// What was asked for.
        asked: usize,
        /// What there is.
        most: usize,
        /// The cgroup's limit, where that is the reason.
        why: &'static str,
    },
    /// Arrays that do not fit.
    #[error(
        "--sizes {asked}: of the memory that this process may use {most} bytes are free, and three \
         quarters of that are the most"
    )]
    Size {
        /// Bytes that were asked for.
        asked: u64,
        /// Bytes that are free.
        most: u64,
    },
}

/// The CPUs that this process may run on.
fn allowed() -> Result<CpuList, RooflineError> {
    let set = sched_getaffinity(None).map_err(|error| RooflineError::Affinity(error.into()))?;
    let all = 0..u32::try_from(CpuSet::MAX_CPU).unwrap_or(u32::MAX);
    Ok(all
        .filter(|cpu| usize::try_from(*cpu).is_ok_and(|cpu| set.is_set(cpu)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::allowed;

    /// A CPU that tests may run on.
    pub(super) fn first_cpu() -> u32 {
        allowed().unwrap().iter().next().unwrap()
    }
}
