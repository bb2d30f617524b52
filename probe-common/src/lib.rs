//! Map keys and values shared by pmuscope's eBPF programs and its user space.
//!
//! Everything but the decoder in [`spe`] is plain old data made of 64-bit words: user space reads
//! the maps as arrays of words and converts them by [`Plain`]. There is no I/O and no allocation.
//! The only dependency is serde (feature `serde`), for the structures that user space records in
//! files.
#![no_std]
#![cfg_attr(not(feature = "tags"), forbid(unsafe_code))]
#![deny(unsafe_code)]

mod cgroup_walk;
mod clock;
mod kernel_log;
mod lifecycle;
mod marker;
mod process_walk;
mod state;
mod usage;
mod wait_slices;
mod waits;

pub mod pod;
pub mod sample;
pub mod spe;
#[cfg(feature = "tags")]
#[allow(unsafe_code, reason = "naked functions, opaque to the optimiser")]
pub mod tags;

pub use cgroup_walk::CgroupWalk;
pub use clock::ProgramClock;
pub use kernel_log::{LogCpu, LogKind, LogLimit};
pub use lifecycle::{LIFECYCLE_HEADER, LIFECYCLE_PATH, LifecycleKind, LifecycleRecord};
pub use marker::{
    MARKER_HEADER, MARKER_NAME, Marker, MarkerCpu, MarkerEvent, MarkerKind, MarkerRecord,
    UNREADABLE,
};
pub use pod::{Field, Plain};
pub use process_walk::{ProcessWalk, WalkedProcess};
pub use state::{
    CpuCounts, CpuState, FLUSH_BUSY, FlushMode, GroupTime, NO_GROUP, ROW_FREED, SampledCost,
};
pub use usage::{CgroupId, UsageKey, UsageRow};
pub use wait_slices::{WAIT_SLICES_BYTES, WaitSlice, WaitSlices, WaitSpan};
pub use waits::{SchedulerCounter, WAIT_BUCKETS, WAIT_TASKS, WaitKey, WaitTask, WaitTimes};

/// Counters that can be active on a CPU at once, over all groups.
pub const SLOTS: usize = 20;

/// Counters in one group, and in one row.
pub const GROUP_COUNTERS: usize = 8;

/// Groups that can be active at once. There may be more rotated groups: only one of those is active
/// on a CPU at a time.
pub const GROUPS: usize = 16;

/// One run in this many measures its own duration. `bpf_stats` would need root and costs 20 ns per
/// run.
pub const SAMPLE_EVERY: u64 = 1024;
