//! Calibrates the weights of memory traffic on this machine (docs/reference/calibrate.md). Kernels
//! are loops with known accesses to memory, and nothing else should run beside them. A
//! [`Calibration`] is computed from the counts of the cores' events and of the socket's counters.

mod kernels;
mod load;
mod measure;
mod place;
mod print;
mod vectors;

use std::{io, time::Duration};

pub use self::{
    measure::{Measured, MeasuredPattern, calibrate},
    print::table,
};
use crate::{
    calibration::Calibration,
    catalogue::{CatalogueError, Chip},
    machine::cpus::CpuListError,
    plan::PlanRequestError,
    roofline::RooflineError,
    session::SessionError,
};

/// What to calibrate, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalibrateOptions {
    /// Lists of metrics; empty: those of the machine's profile.
    pub metrics: Vec<String>,
    /// The chip, if it is not detected.
    pub chip: Option<Chip>,
    /// Bytes that the kernels of all threads work on together; None: twelve times the last-level
    /// caches.
    pub size: Option<u64>,
    /// The time of one measurement. A run of a kernel takes six measurements.
    pub time: Duration,
}

/// Why the machine cannot be calibrated. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// An error of the catalogue.
    #[error(transparent)]
    Catalogue(#[from] Box<CatalogueError>),
    /// The metrics cannot be counted here.
    #[error(transparent)]
    Plan(#[from] Box<PlanRequestError>),
    /// An error of the session.
    #[error(transparent)]
    Session(#[from] Box<SessionError>),
    /// The CPUs that this process may run on are unknown.
    #[error(transparent)]
    Allowed(#[from] Box<RooflineError>),
    /// The online CPUs are unknown.
    #[error(transparent)]
    Cpus(#[from] CpuListError),
    /// The machine has more than two sockets.
    #[error(
        "this machine has {0} sockets: a calibration is of one socket, or of two, whose counters \
         count the accesses to each memory apart"
    )]
    Sockets(u32),
    /// A socket's memory cannot be chosen.
    #[error(
        "the kernel shows no NUMA node of socket {0}, so no pattern can run with its memory: do \
         not boot with numa=off"
    )]
    NoNode(u32),
    /// This process may use no CPU of the socket that runs the kernels.
    #[error("this process may run on no CPU of socket {0}: run it without taskset or cpuset")]
    NoCpus(u32),
    /// No event counts the accesses to each socket's memory apart.
    #[error("{0}: no event counts the accesses to each socket's memory apart: not divided here")]
    BothMemories(String),
    /// None of the metrics is divided by weights.
    #[error(
        "none of the metrics is traffic that is divided by counts of cores: name some with -M \
         (`pmuscope list metrics` shows what this machine has)"
    )]
    NothingToCalibrate,
    /// A thread cannot be started.
    #[error("cannot start a thread on each CPU ({0}): raise the limit of tasks (pids.max)")]
    Start(io::Error),
    /// A thread cannot be pinned to its CPU.
    #[error("cannot run a thread on CPU {cpu} ({error}): may this process use it?")]
    Thread {
        /// The CPU.
        cpu: u32,
        /// The error of the system call.
        error: io::Error,
    },
    /// The memory cannot be allocated on these NUMA nodes.
    #[error(
        "cannot use the memory of NUMA nodes {nodes:?} ({error}): have they memory, and does a \
         cpuset or seccomp filter allow it?"
    )]
    Nodes {
        /// The nodes.
        nodes: Vec<u32>,
        /// The error of the system call.
        error: io::Error,
    },
    /// The memory of the kernels cannot be mapped.
    #[error("cannot map {bytes} bytes ({error}): give a smaller --size")]
    Memory {
        /// Bytes to map.
        bytes: u64,
        /// The error of the system call.
        error: io::Error,
    },
    /// Other programs move memory too.
    #[error(
        "{metric}: others moved {percent:.1}% of what {kernel} did: calibrate on a machine that \
         does nothing else"
    )]
    Busy {
        /// The metric.
        metric: String,
        /// The kernel.
        kernel: String,
        /// What other programs moved before or after the kernel ran, in percent of its traffic.
        percent: f64,
    },
    /// The metric does not count what the kernels move.
    #[error(
        "{0}: the socket counted nothing while the kernels ran: is --chip this machine's, and are \
         the counters of its memory there (`pmuscope list metrics`)?"
    )]
    NoTraffic(String),
    /// An event or the traffic was not counted.
    #[error("{metric}: {what} was not counted while {kernel} ran: stop other users of counters")]
    NotCounted {
        /// The metric.
        metric: String,
        /// The event, or the traffic.
        what: String,
        /// The kernel.
        kernel: String,
    },
    /// Every event also counts accesses that are not of the metric's traffic.
    #[error(
        "{metric}: every event also counts accesses that are not of its traffic ({events}): it \
         cannot be divided here"
    )]
    NoEvent {
        /// The metric.
        metric: String,
        /// The events.
        events: String,
    },
}

impl From<SessionError> for CalibrateError {
    fn from(error: SessionError) -> Self {
        Box::new(error).into()
    }
}

impl From<Measured> for Calibration {
    fn from(measured: Measured) -> Self {
        Self::new(measured.machine, measured.traffics)
    }
}
