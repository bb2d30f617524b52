//! Why counting could not start.

use std::{io, path::PathBuf};

use crate::{
    cgroup::CgroupError,
    cpus::CpuListError,
    descriptors::{self, TooFew},
    event::EventError,
};

/// Why counting could not start or go on. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Rights are missing.
    #[error(
        "counting needs {missing}, which this process does not have: run it as root, or grant it once with \
         `sudo setcap cap_bpf,cap_perfmon+ep {binary}`"
    )]
    Capability {
        /// The capabilities that are missing.
        missing: String,
        /// This program.
        binary: PathBuf,
    },
    /// The kernel does not describe its types.
    #[error(
        "cannot read the kernel's BTF at {path}: {reason}; pmuscope needs a kernel built with \
         CONFIG_DEBUG_INFO_BTF=y (every current distribution's is)"
    )]
    Btf {
        /// Where it was looked for.
        path: PathBuf,
        /// What failed.
        reason: String,
    },
    /// Maps of this kernel allocate memory in a way that is not safe in the scheduler.
    #[error(
        "this kernel has no struct bpf_mem_alloc (read in {path}): pmuscope's maps would allocate \
         memory under the scheduler's lock, which can deadlock it; boot Linux 6.1 or newer, or a \
         kernel with a backport, such as RHEL 9's"
    )]
    MapAllocator {
        /// The BTF file.
        path: PathBuf,
    },
    /// The kernel's types are not those that the programs know.
    #[error(
        "the kernel's BTF at {path} has no {structure}.{member}: this kernel is newer or older than pmuscope \
         knows; please report it with the output of `uname -r`"
    )]
    Field {
        /// The BTF file.
        path: PathBuf,
        /// The structure.
        structure: &'static str,
        /// Its member.
        member: &'static str,
    },
    /// One of them is not what the programs take it for.
    #[error(
        "the kernel's BTF at {path} has {structure}.{member} as {found}, and the programs read {expected} there: this \
         kernel is newer or older than pmuscope knows; please report it with the output of `uname -r`"
    )]
    FieldType {
        /// The BTF file.
        path: PathBuf,
        /// The structure.
        structure: &'static str,
        /// Its member.
        member: &'static str,
        /// What it is there.
        found: String,
        /// What it has to be.
        expected: String,
    },
    /// The object, one of its maps or programs was refused.
    #[error(
        "the kernel refused {what}: {reason}; {advice}", advice = advice(reason)
    )]
    Bpf {
        /// What was refused.
        what: String,
        /// The chain of causes.
        reason: String,
    },
    /// A counter cannot be opened.
    #[error("cannot count {event} on CPU {cpu}: {reason}")]
    Open {
        /// The event as the user wrote it.
        event: String,
        /// The CPU.
        cpu: u32,
        /// What it means and what to do.
        reason: String,
    },
    /// The cpumask of an uncore PMU names a CPU that is offline.
    #[error(
        "cannot count {event}: the cpumask of {pmu} names CPU {cpu}, which is offline; bring it online \
         (`echo 1 > /sys/devices/system/cpu/cpu{cpu}/online`)"
    )]
    OfflineCpumask {
        /// The event as the user wrote it.
        event: String,
        /// The PMU.
        pmu: String,
        /// The CPU.
        cpu: u32,
    },
    /// More events than the programs have slots for.
    #[error(
        "{events} events in {groups} groups are more than fit at once: at most {slots} counters, \
         {in_group} in a group"
    )]
    TooManyEvents {
        /// Events asked for.
        events: usize,
        /// Groups they are in.
        groups: usize,
        /// What fits.
        slots: usize,
        /// What fits in one group.
        in_group: usize,
    },
    /// A map could not be read or written.
    #[error("cannot {what}: {source}")]
    Map {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A process whose children were to be followed.
    #[error("there is no process {0} any more: start pmuscope again")]
    NoProcess(u32),
    /// The cgroup hierarchy.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// A flush met another program at work, each time.
    #[error(
        "the counters of CPU {cpu} could not be read: program sched_exit was at work there at each of {tries} tries; \
         start pmuscope again, and please report it if that does not help"
    )]
    Busy {
        /// The CPU.
        cpu: u32,
        /// How often it was tried.
        tries: u32,
    },
    /// More descriptors than this process may have.
    #[error(transparent)]
    Descriptors(#[from] TooFew),
    /// Sampling with SPE.
    #[error(transparent)]
    Spe(#[from] super::SpeError),
    /// Filters of events and metrics exclude each other.
    #[error(transparent)]
    Filters(#[from] EventError),
    /// The list of CPUs.
    #[error(transparent)]
    Cpus(#[from] CpuListError),
}

/// What to do where the kernel refuses a part of the programs.
fn advice(reason: &str) -> String {
    let errno = reason
        .split_once("(os error ")
        .and_then(|(_, rest)| rest.split_once(')')?.0.parse().ok());
    descriptors::exhausted(errno)
        .unwrap_or_else(|| "pmuscope needs Linux 6.1 or newer with CONFIG_BPF_SYSCALL=y".to_owned())
}

/// How the lines begin that end every log of the verifier.
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
    // The verifier's log is pages long; its end says what it minds, before the statistics.
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
