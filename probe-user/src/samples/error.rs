//! Errors of a recording.

use std::{io, path::PathBuf, sync::Arc};

use super::Size;
use crate::{
    event::{EventError, accesses::NoAccesses, spe::NoSpe},
    machine::{SysfsError, cgroup::CgroupError, cpus::CpuListError},
    session::SessionError,
    sys::descriptors::{self, TooFewDescriptors},
};

/// Why a recording cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The machine has no usable SPE.
    #[error(transparent)]
    NoSpe(#[from] NoSpe),
    /// The machine has no usable events.
    #[error(transparent)]
    NoAccesses(#[from] NoAccesses),
    /// The core PMU has no `mem_access`.
    #[error(transparent)]
    Event(#[from] EventError),
    /// An impossible size.
    #[error("{what} {size}: {reason}")]
    Size {
        /// The option.
        what: &'static str,
        /// The size that the user gave.
        size: Size,
        /// What the size must be.
        reason: String,
    },
    /// There is no process with this id.
    #[error("there is no process {0}: it has ended, or lives in another pid namespace")]
    NoProcess(u32),
    /// All CPUs that can be sampled are offline.
    #[error("no online CPU can be sampled: the PMU names CPUs {0}; bring one of them online")]
    NoCpu(String),
    /// A thread's buffer cannot switch PMUs when the thread changes CPUs.
    #[error("--per-thread needs one kind of SPE, and this machine has {0}: leave it out")]
    SeveralKinds(usize),
    /// An event cannot be opened.
    #[error("cannot open {pmu} for {target}: {reason}")]
    Open {
        /// The PMU.
        pmu: String,
        /// Its target.
        target: String,
        /// The kernel's error, and what to do.
        reason: String,
    },
    /// A buffer cannot be mapped.
    #[error("cannot get a buffer of {size} ({what}): {reason}")]
    Map {
        /// The option that sets its size.
        what: &'static str,
        /// Its size.
        size: Size,
        /// The kernel's error, and what to do.
        reason: String,
    },
    /// An event does not start.
    #[error("the kernel refuses to set up sampling: {0}")]
    Enable(io::Error),
    /// The buffers cannot be waited for, or a counter cannot be read.
    #[error("cannot read the samples or their counters: {0}")]
    Poll(io::Error),
    /// The output cannot be written.
    #[error("cannot write the recording: {0}")]
    Write(io::Error),
    /// A process's threads in procfs, or a cgroup's directory, cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The recording needs more descriptors than this process may have.
    #[error("{0}; sampling needs some for each CPU and event")]
    Descriptors(#[from] TooFewDescriptors),
    /// The list of online CPUs cannot be read.
    #[error(transparent)]
    Cpus(#[from] CpuListError),
    /// The cgroup does not exist.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// Markers cannot be observed.
    #[error("cannot observe markers for --regions: {0}")]
    Markers(#[from] SessionError),
    /// Markers carry ids of another pid namespace.
    #[error(
        "--regions needs the host's pid namespace, since the kernel reports markers with its ids: \
         run pmuscope there (hostPID: true in Kubernetes), or leave --regions out"
    )]
    PidNamespace,
    /// The PMUs cannot be listed.
    #[error(transparent)]
    Pmus(#[from] Arc<SysfsError>),
}

/// Why the kernel refused to open an SPE event, and what to do (`perf_event_open(2)`;
/// `drivers/perf/arm_spe_pmu.c`).
pub(super) fn open_reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "{error}: it needs CAP_PERFMON or root (with kernel.perf_event_paranoid at 3, root)"
        ),
        Some(libc::EBUSY) => format!(
            "{error}: the SPE of a CPU serves one session at a time, and perf or another pmuscope \
             has it"
        ),
        Some(libc::EOPNOTSUPP) => {
            format!("{error}: the core does not have one of the filters that were asked for")
        }
        Some(libc::ENOENT) => format!(
            "{error}: the cgroup has no perf_event state; `echo +pids > \
             .../cgroup.subtree_control` in the root of the hierarchy gives it one"
        ),
        errno => match descriptors::exhausted(errno) {
            Some(reason) => {
                format!("{reason}; or record a --cgroup, which needs two for each CPU")
            }
            None => error.to_string(),
        },
    }
}

/// Why the kernel refused to map a buffer, and what to do (kernel/events/core.c, `perf_mmap`).
pub(super) fn map_reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => format!(
            "{error}: that is more locked memory than kernel.perf_event_mlock_kb and `ulimit -l` \
             allow; ask for less, or run with CAP_IPC_LOCK"
        ),
        Some(libc::ENOMEM) => format!("{error}: ask for less"),
        _ => error.to_string(),
    }
}
