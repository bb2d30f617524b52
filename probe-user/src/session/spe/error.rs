//! Errors of sampling with SPE.

use std::io;

use crate::{event::spe::NoSpe, sys::descriptors};

/// Why SPE cannot be used. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpeError {
    /// The machine has no usable SPE.
    #[error(transparent)]
    NoSpe(#[from] NoSpe),
    /// No online CPU has SPE.
    #[error("no online CPU has SPE: bring one that has it online")]
    NoCpu,
    /// The event was refused.
    #[error("cannot open {pmu} on CPU {cpu}: {reason}")]
    Open {
        /// The PMU.
        pmu: String,
        /// The CPU.
        cpu: u32,
        /// The meaning of the refusal, and what to do.
        reason: String,
    },
    /// The buffer was refused.
    #[error("cannot map {kib} KiB of AUX buffer for CPU {cpu}: {reason}")]
    Buffer {
        /// The size of the buffer.
        kib: usize,
        /// The CPU.
        cpu: u32,
        /// The meaning of the refusal, and what to do.
        reason: String,
    },
    /// An event could not be started, stopped or changed.
    #[error("cannot {what} SPE on CPU {cpu}: {source}")]
    Control {
        /// What was tried.
        what: &'static str,
        /// The CPU.
        cpu: u32,
        /// Why it failed.
        source: io::Error,
    },
    /// The program attaches neither by fentry nor by a kprobe.
    #[error(
        "no program can be attached to perf_aux_output_end: as fentry {fentry}; as kprobe \
         {kprobe}; SPE needs a \
         kernel with CONFIG_FUNCTION_TRACER=y and CONFIG_BPF_EVENTS=y, or CONFIG_KPROBES=y"
    )]
    Hook {
        /// Why fentry failed.
        fentry: String,
        /// Why the kprobe failed.
        kprobe: String,
    },
}

/// The meaning of the kernel's refusal of an event.
pub(super) fn event_refusal(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EBUSY) => {
            "SPE is in exclusive use by another program, such as `perf record -e arm_spe_0//` \
             or a second pmuscope: end it first"
                .to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => {
            "permission denied: CAP_PERFMON is needed to sample all tasks of a CPU, and \
             where kernel.perf_event_paranoid is above 2 some distributions' kernels want \
             CAP_SYS_ADMIN instead"
                .to_owned()
        }
        Some(libc::EOPNOTSUPP) => {
            "this core's SPE has no such filter: leave out event_filter bits or min_latency"
                .to_owned()
        }
        Some(libc::EINVAL) => "the driver takes no such settings".to_owned(),
        errno => descriptors::exhausted(errno).unwrap_or_else(|| error.to_string()),
    }
}

/// The meaning of the kernel's refusal of a buffer.
pub(super) fn buffer_refusal(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => "that is more locked memory than kernel.perf_event_mlock_kb allows \
             without CAP_IPC_LOCK: grant the capability, or allow less time by --spe-irq-max"
            .to_owned(),
        Some(libc::ENOMEM) => "out of memory".to_owned(),
        _ => error.to_string(),
    }
}
