//! The eBPF object as user space knows it: every map, program and global by a typed name. No other
//! module spells one of their names, or looks one up.
//!
//! `cargo nextest run -p probe-user object` compares the names and types here with the compiled
//! object's.

mod globals;
mod kernel_log;
mod load;
mod maps;
pub(crate) mod offsets;
mod programs;
mod slots;
#[cfg(test)]
mod tests;
mod types;

use std::io;

use aya::maps::MapError;

pub(crate) use self::{
    kernel_log::{is_shown as log_is_shown, ring_size as log_ring_size},
    maps::{Hash, Maps, PerCpu, Ring, can_use, rows_of},
    programs::{
        CGROUP_ATTACH, CGROUP_MKDIR, CGROUP_RMDIR, CGROUP_SWITCH, CGROUPS, CLOCK, CPU_HOTPLUG,
        EVENT_SAMPLE, FLUSH, FOLLOW_FORK, FOLLOW_FREE, Links, MARKER, MARKER_EXEC, MARKER_EXIT,
        MARKER_FORK, PROCESS_EXIT, Programs, READ_COST, SAMPLE_PREALLOCATE_ROWS, SCHED_EXIT,
        SCHED_SWITCH, SPE_ATTACH, SPE_CHUNK, SPE_CHUNK_KPROBE, SPE_EXEC, SPE_EXIT, SPE_FORK,
        SPE_PREALLOCATE_ROWS, SPE_SWITCH, Tracepoint, WALK,
    },
};
use super::{SessionError, error::chain};

/// The eBPF object, built for this architecture.
pub(super) static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/probe-ebpf"));

/// The object, loaded for one session: its maps are there, its programs not in the kernel yet.
pub(crate) struct Object {
    pub(crate) maps: Maps,
    pub(crate) programs: Programs,
}

/// The descriptors of an object: maps, programs with a link each, and the object's types.
pub(crate) const DESCRIPTORS: usize = maps::COUNT + 2 * programs::ALL.len() + 1;

/// The kernel's refusal of a part of the object.
fn refused(what: impl Into<String>, error: &dyn std::error::Error) -> SessionError {
    SessionError::Bpf {
        what: what.into(),
        reason: chain(error),
    }
}

/// The same, of what may be pinned.
fn refused_pin(what: impl Into<String>, error: &dyn std::error::Error) -> SessionError {
    let error = refused(what, error);
    match error {
        // The advice about kernels would mislead.
        SessionError::Bpf { what, reason } if reason.contains("BPF_OBJ_PIN") => {
            SessionError::Pin { what, reason }
        }
        other => other,
    }
}

/// Where the compiled object lacks what is named here.
fn missing(what: String) -> SessionError {
    SessionError::Bpf {
        what,
        reason: "the object has none".into(),
    }
}

/// The answer to bpf(2) in an error of aya's.
fn io_error(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        other => io::Error::other(other),
    }
}
