//! SPE's pages and cache lines, and the accounting of everything that it wrote.

use std::{collections::BTreeMap, sync::Arc};

use probe_common::{
    CgroupId,
    spe::{LineKey, LineRow, PageKey, PageRow, SourceTable, SpeCpu, SpeKey},
};
use serde::{Deserialize, Serialize};

use super::MapMemory;

/// Owner of samples without a known cgroup.
pub const UNATTRIBUTED: CgroupId = SpeKey::UNATTRIBUTED;

/// The hook of the program at the end of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpeHook {
    /// fentry.
    Fentry,
    /// A kprobe: the kernel skips it while its CPU is in a bpf(2) call that reads or changes a map.
    /// Missed chunks are read later (`spe_late_bytes`), or counted as lost (`spe_missed_bytes`).
    Kprobe,
}

/// SPE's pages, cache lines and accounting since the session began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpeReading {
    /// Pages by process; empty if none are kept.
    pub pages: Vec<(PageKey, PageRow)>,
    /// Cache lines by owner and CPU; empty if none are kept.
    #[serde(default)]
    pub lines: Vec<(LineKey, LineRow)>,
    /// Data-source tables by CPU.
    pub tables: Arc<BTreeMap<u32, SourceTable>>,
    /// The programs' accounting.
    pub health: SpeHealth,
}

/// The programs' accounting since the session began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeHealth {
    /// The hook in use.
    pub hook: SpeHook,
    /// Current sampling period, in operations.
    pub period: u64,
    /// Maximum latency of a record, in cycles: longer latencies saturate at it.
    #[serde(default = "sixteen_bits")]
    pub max_latency: u16,
    /// Accounting of everything that was written, on all CPUs; `event`, `next`, `longest` and
    /// `switches` have no meaning here.
    pub sum: SpeCpu,
    /// Longest time that the program took for a chunk, in ns.
    pub longest: u64,
    /// Number of rows in the map of samples.
    pub rows: usize,
    /// Rows freed because they had no new samples and the map was nearly full; their counts are
    /// kept.
    #[serde(default)]
    pub freed_idle: u64,
    /// Kernel memory of the maps of samples, without threads: a thread takes 128 bytes.
    #[serde(default)]
    pub memory: MapMemory,
    /// The cores' own counts of their sampling since the CPUs' events were opened: operations,
    /// samples taken, kept, and dropped because of a collision. Empty on cores without them.
    pub sampler: BTreeMap<String, u64>,
    /// Bytes of each CPU's AUX buffer.
    pub aux_size: usize,
    /// Chunks of unknown size: the ring in which the kernel logs sizes was full, which can happen
    /// only with the kprobe hook.
    pub unlogged: u64,
    /// Nanoseconds in the program at the end of chunks as measured by the kernel; None if
    /// `kernel.bpf_stats_enabled` is or was off.
    pub bpf_stats: Option<u64>,
}

/// Default for recordings without the field.
const fn sixteen_bits() -> u16 {
    u16::MAX
}

impl SpeHealth {
    /// Nanoseconds per decoded record, given the nanoseconds for all of them.
    pub(crate) fn per_record(&self, nanos: u64) -> Option<u64> {
        nanos.checked_div(self.sum.records)
    }
}
