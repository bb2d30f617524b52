//! Errors of a session.

use std::io;

use crate::{
    machine::{
        BtfError, MissingCapabilities, cgroup::CgroupError, cpus::CpuListError, memory::MemoryError,
    },
    plan::PlanError,
    sys::descriptors::{self, TooFewDescriptors},
};

/// Why counting could not start or continue. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Rights are missing.
    #[error(transparent)]
    Capabilities(#[from] MissingCapabilities),
    /// The kernel's types (BTF) cannot be used.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// The kernel refused the object, one of its maps or one of its programs.
    #[error(
        "the kernel refused {what}: {reason}; {advice}", advice = advice(reason)
    )]
    Bpf {
        /// What was refused.
        what: String,
        /// The chain of causes.
        reason: String,
    },
    /// A map or program could not be pinned.
    #[error("cannot pin {what}: {reason}; free memory, or give a directory on another bpffs")]
    Pin {
        /// What was to be pinned.
        what: String,
        /// The chain of causes.
        reason: String,
    },
    /// The pins cannot be used.
    #[error(transparent)]
    Pins(#[from] super::PinError),
    /// A counter cannot be opened.
    #[error("cannot count {event} on CPU {cpu}: {reason}")]
    Open {
        /// The event as the user wrote it.
        event: String,
        /// The CPU.
        cpu: u32,
        /// The meaning of the refusal, and what to do.
        reason: String,
    },
    /// The hook does not see the task whose wait ends.
    #[error(
        "cannot count {0}: the hook cgroup-switches does not see the task that comes in; leave out \
         `--hook cgroup-switches`"
    )]
    WaitsHook(String),
    /// The kernel keeps no account of waits.
    #[error(
        "cannot count {0}: this kernel keeps no account of waits; leave it out, or boot a kernel \
         with CONFIG_SCHED_INFO (by CONFIG_SCHEDSTATS or CONFIG_TASK_DELAY_ACCT) and \
         CONFIG_FAIR_GROUP_SCHED, as every current distribution's"
    )]
    NoWaits(String),
    /// The cpumask of an uncore PMU names a CPU that is offline.
    #[error(
        "cannot count {event}: the cpumask of {pmu} names CPU {cpu}, which is offline; bring it \
         online (`echo 1 > /sys/devices/system/cpu/cpu{cpu}/online`)"
    )]
    OfflineCpumask {
        /// The event as the user wrote it.
        event: String,
        /// The PMU.
        pmu: String,
        /// The CPU.
        cpu: u32,
    },
    /// The requested events cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A map could not be read or written.
    #[error("cannot {what}: {source}")]
    Map {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A process that is to be followed does not exist.
    #[error("there is no process {0} any more: start pmuscope again")]
    NoProcess(u32),
    /// What cgroups or processes hold in memory cannot be read.
    #[error("cannot tell what is held in memory: {0}")]
    Memory(#[from] MemoryError),
    /// The cgroup hierarchy cannot be used.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// Every try of a flush interrupted another program.
    #[error(
        "the counters of CPU {cpu} could not be read: another program of pmuscope was at work \
         there at each of {tries} tries; start pmuscope again, and please report it if that does \
         not help"
    )]
    Busy {
        /// The CPU.
        cpu: u32,
        /// Number of tries.
        tries: u32,
    },
    /// The session needs more descriptors than this process may have.
    #[error(transparent)]
    Descriptors(#[from] TooFewDescriptors),
    /// SPE cannot be used.
    #[error(transparent)]
    Spe(#[from] super::SpeError),
    /// Events cannot be sampled.
    #[error(transparent)]
    Sample(#[from] super::SampleError),
    /// A CPU is not among the kernel's possible CPUs.
    #[error(
        "CPU {0} is not in /sys/devices/system/cpu/possible: let pmuscope see the machine's own /sys"
    )]
    NotPossible(u32),
    /// The list of CPUs cannot be read.
    #[error(transparent)]
    Cpus(#[from] CpuListError),
}

impl SessionError {
    /// Only the kernel's reason, if the kernel refused a part of the object; else the whole
    /// message.
    pub(crate) fn reason(self) -> String {
        match self {
            Self::Bpf { reason, .. } => reason,
            other => other.to_string(),
        }
    }
}

/// What to do if the kernel refuses a part of the programs.
fn advice(reason: &str) -> String {
    let errno = reason
        .split_once("(os error ")
        .and_then(|(_, rest)| rest.split_once(')')?.0.parse().ok());
    let advice = match errno {
        Some(libc::EPERM) => {
            "a policy of this machine forbids it to all: see kernel lockdown (`cat \
             /sys/kernel/security/lockdown`), the container's seccomp profile and SELinux's log"
        }
        Some(libc::EAGAIN) => "it was interrupted several times: start pmuscope again",
        Some(libc::ENOMEM) => "the kernel has no memory for it: free some",
        _ => "pmuscope needs Linux 6.1 or newer with CONFIG_BPF_SYSCALL=y",
    };
    descriptors::exhausted(errno).unwrap_or_else(|| advice.to_owned())
}

/// Prefixes of the lines of statistics at the end of every verifier log.
const STATISTICS: [&str; 3] = ["processed ", "stack depth ", "verification time "];

/// An error with all its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    // The verifier's log is pages long; the reason is its last line before the statistics.
    match text
        .lines()
        .filter(|line| !line.is_empty() && !STATISTICS.iter().any(|word| line.starts_with(word)))
        .collect::<Vec<_>>()
        .as_slice()
    {
        [] => text,
        [only] => (*only).to_owned(),
        [first, .., last] => format!("{first} ... {last}"),
    }
}
