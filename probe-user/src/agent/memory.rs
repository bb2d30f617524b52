//! The most memory of an agent, including its kernel memory: the formula of
//! docs/reference/chart.md. The chart computes its memory limit by the same formula
//! (deploy/helm/pmuscope/templates/_helpers.tpl). Sizes are in bytes. Tests compare the terms of
//! this module with the memory of a session, with the chart, and with the page.

use crate::session::memory::{Memory, USUAL_THREADS};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Memory of the process without containers, and of the text of a scrape of 1,000 containers.
/// Measured.
const PROCESS: usize = 32 * MIB;

/// Memory of a row of counts: the row in the kernel's map, and two snapshots of it.
const ROW: usize = 416;

/// Memory of a container in addition to its rows: names, windows, report, text. Measured.
const CONTAINER: usize = 8 * KIB;

/// Memory of each CPU: buckets and spare rows of the map of counts, counters, per-CPU state.
const CPU: usize = 128 * KIB;

/// Memory of sampled accesses: the map of threads for a busy node, rows in the kernel, and the user
/// space memory of each row. It is enough for sampling by events too, which has no map of threads.
const SAMPLES: usize = 104 * MIB;

/// Memory of sampled accesses on each CPU: spare rows, and the timeline of switches if records have
/// no thread id.
const SAMPLED_CPU: usize = 128 * KIB;

/// Memory of a shown process in addition to its rows: names, windows. Measured.
const PROCESS_ROW: usize = 3 * KIB;

/// Memory of sampled events: 16,384 rows in the kernel, and the user space memory of each row.
const EVENTS: usize = 58 * MIB;

/// Memory of sampled events on each CPU: spare rows, and the sampled counters.
const EVENTS_CPU: usize = 64 * KIB;

/// The size of a node, and of what is counted there.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Number of its CPUs.
    pub cpus: usize,
    /// Number of containers, each of which ran on all CPUs.
    pub containers: usize,
    /// Number of processes, each of which ran on all CPUs; 0 if processes are not shown.
    pub processes: usize,
    /// Number of groups of events.
    pub groups: usize,
    /// Whether events are sampled.
    pub events: bool,
    /// Bytes of each CPU's buffer for sampled memory accesses, 0 if events sample them without SPE;
    /// None if they are not sampled.
    pub buffer: Option<usize>,
}

impl Node {
    /// The most memory of an agent in MiB, including its kernel memory, with a quarter to spare.
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

/// Number of rows of sampled accesses in an agent's map, by the number of possible CPUs. The limit
/// on a session's kernel memory would allow more, but user space takes some 2 kB for each. The rows
/// suffice if each CPU ran 40 containers within two seconds. Rows that were idle for longer are
/// freed before the map is full.
pub(super) fn access_rows(possible: usize) -> u32 {
    u32::try_from(possible.saturating_mul(192)).map_or(28_672, |rows| rows.clamp(14_336, 28_672))
}

/// Number of rows of sampled events in an agent's map, by the number of possible CPUs. Rows are
/// freed every two seconds: they suffice for 128 pairs of owner and event on each CPU within four
/// seconds. On more than 128 CPUs they suffice for fewer pairs.
pub(super) fn event_rows(possible: usize) -> u32 {
    u32::try_from(possible.saturating_mul(128)).map_or(16_384, |rows| rows.clamp(8192, 16_384))
}

/// Assumed number of processes of a container.
const USUAL_PROCESSES: usize = 10;

/// The memory of an agent as text: by kind, and the limit for 100 and 1,000 containers.
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
        let no_buffer = events.filter(|events| events.accesses).map(|_| 0);
        let spe_buffer = samples.map(|samples| samples.buffers / cpus.max(1));
        let node = Node {
            cpus,
            containers,
            processes: containers * processes,
            groups,
            events: events.is_some_and(|events| events.others),
            buffer: spe_buffer.or(no_buffer),
        };
        node.limit()
    };
    let [limit_100, limit_1000] = [100, 1000].map(limit);
    let per_container = match processes {
        0 => String::new(),
        processes => format!(" of {processes} processes each"),
    };
    text + &format!(
        "{limit_100} MiB for all, the agent included, with 100 containers{per_container} on {cpus} \
         CPUs; {limit_1000} MiB with 1,000"
    )
}

#[cfg(test)]
mod tests;
