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

/// What is kept for a container beside its rows: names, windows, report, text. Measured.
const CONTAINER: usize = 8 * KIB;

/// Of each CPU: buckets and spare rows of the map of counts, counters, per-CPU state.
const CPU: usize = 128 * KIB;

/// Where memory accesses are sampled: the map of threads for a busy node, rows in the kernel, and
/// what is kept for each row. Where events sample accesses there is no map of threads, so this is
/// enough.
const SAMPLES: usize = 104 * MIB;

/// The same of each CPU: spare rows, and the timeline of switches where records name no thread.
const SAMPLED_CPU: usize = 128 * KIB;

/// What is kept for a process beside its rows, where processes are shown: names, windows. Measured.
const PROCESS_ROW: usize = 3 * KIB;

/// Where events are sampled: 16,384 rows of samples in the kernel, and what is kept of each of
/// those.
const EVENTS: usize = 51 * MIB;

/// The same of each CPU: spare rows, and what became of its samples.
const EVENTS_CPU: usize = 64 * KIB;

/// A node, and what is counted there.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Its CPUs.
    pub cpus: usize,
    /// Containers that ran on all of them.
    pub containers: usize,
    /// Processes that ran on all of them, where some are shown by themselves; else 0.
    pub processes: usize,
    /// Groups of events.
    pub groups: usize,
    /// Whether events are sampled.
    pub events: bool,
    /// Bytes of each CPU's buffer, where memory accesses are sampled; 0 without SPE.
    pub buffer: Option<usize>,
}

impl Node {
    /// MiB that an agent, all that it has in the kernel included, stays below; a quarter is spare.
    #[must_use]
    pub fn limit(self) -> usize {
        let sampled = |buffer| SAMPLES + self.cpus * (SAMPLED_CPU + buffer);
        let bytes = PROCESS
            + ROW * self.groups * self.cpus * (self.containers + self.processes)
            + CONTAINER * self.containers
            + PROCESS_ROW * self.processes
            + CPU * self.cpus
            + usize::from(self.events) * (EVENTS + self.cpus * EVENTS_CPU)
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

/// The same of sampled events. Rows are freed every two seconds, so that this is room for 128
/// owners and events on each CPU within four, on large machines for fewer.
pub(super) fn event_rows(possible: usize) -> u32 {
    u32::try_from(possible.saturating_mul(128)).map_or(16_384, |rows| rows.clamp(8192, 16_384))
}

/// Processes of a container where nobody says how many.
const USUAL_PROCESSES: usize = 10;

/// What an agent takes that counts so on this machine, with rows of processes or without.
pub(super) fn in_words(memory: &Memory, groups: usize, cpus: usize, by_process: bool) -> String {
    let mib = |bytes: usize| bytes.div_ceil(MIB);
    let Memory {
        rows,
        counts,
        samples,
        events,
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
    if let Some(events) = events {
        let what = match (events.accesses, events.others) {
            (true, true) => "samples of events and of memory accesses",
            (true, false) => "samples of memory accesses",
            (false, _) => "sampled events",
        };
        text += &format!(
            "{} MiB for {what} ({} rows)\n",
            mib(events.maps),
            events.rows
        );
    }
    let processes = if by_process { USUAL_PROCESSES } else { 0 };
    let limit = |containers| {
        let by_events = events.filter(|events| events.accesses).map(|_| 0);
        let buffer = samples.map(|samples| samples.buffers / cpus.max(1));
        let node = Node {
            cpus,
            containers,
            processes: containers * processes,
            groups,
            events: events.is_some_and(|events| events.others),
            buffer: buffer.or(by_events),
        };
        node.limit()
    };
    let [some, many] = [100, 1000].map(limit);
    let of_each = match processes {
        0 => String::new(),
        processes => format!(" of {processes} processes each"),
    };
    text + &format!(
        "{some} MiB for all, the agent included, with 100 containers{of_each} on {cpus} CPUs; \
         {many} MiB with 1,000"
    )
}

#[cfg(test)]
mod tests;
