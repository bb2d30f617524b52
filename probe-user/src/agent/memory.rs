//! Memory that an agent takes at most, with all that it has in the kernel: the formula of
//! docs/kubernetes.md, which the chart's limit is computed by (templates/_helpers.tpl). The tests
//! compare its terms with what a session takes, and the chart and the page with it.

use crate::session::memory::{Memory, USUAL_THREADS};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The process without containers, and the text of a scrape of 1,000. Measured.
const PROCESS: usize = 32 * MIB;

/// A row of counts: one in the kernel's map, and two snapshots of it.
const ROW: usize = 416;

/// What is kept of a container beside its rows: names, windows, report, text. Measured.
const CONTAINER: usize = 8 * KIB;

/// Of each CPU: buckets and spare rows of the map of counts, counters, per-CPU state.
const CPU: usize = 128 * KIB;

/// Where memory accesses are sampled: the map of threads with as many as a busy node has, rows in
/// the kernel, and what is kept of each of those.
const SAMPLES: usize = 104 * MIB;

/// The same of each CPU: spare rows, and the timeline of switches where records name no thread.
const SAMPLED_CPU: usize = 128 * KIB;

/// A node, and what is counted there.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Its CPUs.
    pub cpus: usize,
    /// Containers that ran on all of them.
    pub containers: usize,
    /// Groups of events.
    pub groups: usize,
    /// Bytes of each CPU's buffer, where memory accesses are sampled.
    pub buffer: Option<usize>,
}

impl Node {
    /// MiB that an agent, all that it has in the kernel included, stays below; a quarter is spare.
    #[must_use]
    pub fn limit(self) -> usize {
        let sampled = |buffer| SAMPLES + self.cpus * (SAMPLED_CPU + buffer);
        let bytes = PROCESS
            + ROW * self.groups * self.cpus * self.containers
            + CONTAINER * self.containers
            + CPU * self.cpus
            + self.buffer.map_or(0, sampled);
        (bytes / 4 * 5).div_ceil(MIB)
    }
}

/// Rows of samples that an agent has room for: fewer than the kernel's memory for them allows,
/// since it keeps some 2 kB of each. Those of 40 containers that each CPU ran within two seconds
/// have a row; what was idle for longer makes room.
pub(super) fn sampled_rows(possible: usize) -> u32 {
    u32::try_from(possible.saturating_mul(192)).map_or(28_672, |rows| rows.clamp(14_336, 28_672))
}

/// What an agent takes that counts so on this machine.
pub(super) fn in_words(memory: &Memory, groups: usize, cpus: usize) -> String {
    let mib = |bytes: usize| bytes.div_ceil(MIB);
    let Memory {
        rows,
        counts,
        samples,
    } = *memory;
    let mut text = format!(
        "{} MiB of kernel memory at most for counts ({rows} rows)\n",
        mib(counts)
    );
    if let Some(samples) = samples {
        text += &format!(
            "{} MiB for samples ({} rows, {USUAL_THREADS} threads), {} MiB for their buffers\n",
            mib(samples.maps),
            samples.rows,
            mib(samples.buffers)
        );
    }
    let limit = |containers| {
        let buffer = samples.map(|samples| samples.buffers / cpus.max(1));
        let node = Node {
            cpus,
            containers,
            groups,
            buffer,
        };
        node.limit()
    };
    let [some, many] = [100, 1000].map(limit);
    text + &format!(
        "{some} MiB for all, the agent included, with 100 containers on {cpus} CPUs; {many} MiB \
         with 1,000"
    )
}

#[cfg(test)]
mod tests;
