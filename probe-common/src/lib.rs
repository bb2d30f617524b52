//! What pmuscope's eBPF programs and its user space share: map keys and values.
//!
//! Everything but the decoder in [`spe`] is plain old data made of 64-bit words: user space reads
//! the maps as arrays of words and converts them by [`Plain`]. No I/O, no allocation, and no
//! dependency but serde in user space, which records them in files (feature `serde`).
#![no_std]
#![cfg_attr(not(feature = "tags"), forbid(unsafe_code))]
#![deny(unsafe_code)]

mod clock;
mod kernel_log;
mod lifecycle;
mod marker;
mod process;
mod state;
mod tree;
mod usage;

pub mod sample;
pub mod spe;
#[cfg(feature = "tags")]
#[allow(
    unsafe_code,
    reason = "functions that no optimisation looks into are machine code"
)]
pub mod tags;
pub mod words;

pub use clock::Clock;
pub use kernel_log::{LogCpu, LogKind, LogLimit};
pub use lifecycle::{LIFECYCLE_HEADER, LIFECYCLE_PATH, Lifecycle, LifecycleKind};
pub use marker::{
    MARKER_HEADER, MARKER_NAME, Marked, Marker, MarkerCpu, MarkerKind, UNREADABLE, What,
};
pub use process::{Process, Walk};
pub use state::{
    CpuCounts, CpuState, FLUSH_BUSY, FlushMode, GroupTime, NO_GROUP, ROW_FREED, SampledCost,
};
pub use tree::Tree;
pub use usage::{CgroupId, UsageKey, UsageRow};
pub use words::{Field, Plain};

/// Counters that can be live on a CPU at once, over all groups.
pub const SLOTS: usize = 16;

/// Counters in one group, and in one row.
pub const GROUP_COUNTERS: usize = 8;

/// Groups that can be live at once. Rotated ones may be more: one of them is live on a CPU.
pub const GROUPS: usize = 16;

/// One run in this many measures its own duration: `bpf_stats` would need root and costs 20 ns a
/// run.
pub const SAMPLE_EVERY: u64 = 1024;
