//! The eBPF object in user space: every map, program and global has a typed name. Only this module
//! spells these names and looks them up.
//!
//! `cargo nextest run -p probe-user object` compares the names and types here with those of the
//! compiled object.

mod attach_types;
mod globals;
mod kernel_log;
mod load;
mod maps;
pub(crate) mod offsets;
mod programs;
mod slots;
#[cfg(test)]
mod tests;

use std::io;

use aya::maps::MapError;

pub(crate) use self::{
    kernel_log::{is_shown as log_is_shown, ring_size as log_ring_size},
    maps::{Hash, Maps, PerCpu, RingMap, can_use, row_capacity},
    programs::{
        CGROUP_ATTACH, CGROUP_MKDIR, CGROUP_RMDIR, CGROUP_SWITCH, CGROUPS, CLOCK, CPU_HOTPLUG,
        EVENT_SAMPLE, EbpfPrograms, EventLinks, FLUSH, FOLLOW_FORK, FOLLOW_FREE, MARKER,
        MARKER_EXEC, MARKER_EXIT, MARKER_FORK, PROCESS_EXIT, READ_COST, SAMPLE_COUNT_FROM,
        SAMPLE_PREPARE, SCHED_EXIT, SCHED_SWITCH, SPE_ATTACH, SPE_CHUNK, SPE_CHUNK_KPROBE,
        SPE_EXEC, SPE_EXIT, SPE_FORK, SPE_PREALLOCATE_ROWS, SPE_SWITCH, Tracepoint, WAIT_MIGRATE,
        WALK,
    },
};
use super::{SessionError, error::chain};

/// The eBPF object, built for this architecture.
pub(super) static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/probe-ebpf"));

/// The object of one session: its maps exist, and its programs are loaded on demand.
pub(crate) struct EbpfObject {
    pub(crate) maps: Maps,
    pub(crate) programs: EbpfPrograms,
}

/// Number of file descriptors of an object: of its maps, its programs with a link each, and its
/// types.
pub(crate) const DESCRIPTORS: usize = maps::COUNT + 2 * programs::ALL.len() + 1;

/// The error for a part of the object that the kernel refused.
fn refused(what: impl Into<String>, error: &dyn std::error::Error) -> SessionError {
    SessionError::Bpf {
        what: what.into(),
        reason: chain(error),
    }
}

/// [`refused`] for a part that may be pinned.
fn refused_pin(what: impl Into<String>, error: &dyn std::error::Error) -> SessionError {
    let error = refused(what, error);
    match error {
        // The advice for a refused object, which is about kernel versions, would mislead.
        SessionError::Bpf { what, reason } if reason.contains("BPF_OBJ_PIN") => {
            SessionError::Pin { what, reason }
        }
        other => other,
    }
}

/// The error if the compiled object lacks a map or program that this module names.
fn missing(what: String) -> SessionError {
    SessionError::Bpf {
        what,
        reason: "the object has none".into(),
    }
}

/// The error of the bpf(2) call that an error of aya contains.
fn io_error(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        other => io::Error::other(other),
    }
}
