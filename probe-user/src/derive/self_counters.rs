//! Tables of self-counters, with a row for each counter. The report and
//! docs/reference/self-counters.md ([`self_counters_page`]) come from these tables.
//!
//! A counter of BPF programs needs a field, a program that counts it, and a row here
//! (CONTRIBUTING.md, "Add a self-counter"). Its field is summed over CPUs without further code.

mod page;

use probe_common::SampledCost;

pub use self::page::self_counters_page;
use super::{AgentHealth, MetricKind};
use crate::{
    names::resolver::ResolverHealth,
    snapshot::{Health, NameCounts, SampledEventHealth, SpeHealth},
    window::EventWindow,
};

/// A value of `--self`.
pub(super) struct SelfCounter<T> {
    pub(super) kind: MetricKind,
    pub(super) name: &'static str,
    /// Empty for a number of occurrences.
    pub(super) unit: &'static str,
    /// None if nothing was measured.
    pub(super) value: fn(&T) -> Option<u64>,
    /// Its meaning in one line.
    pub(super) help: &'static str,
}

macro_rules! self_counters {
    ($(#[$meta:meta])* $table:ident of $type:ty {
        $($kind:ident $name:literal $unit:literal = |$health:ident| $value:expr, $help:literal;)*
    }) => {
        $(#[$meta])*
        pub(super) const $table: &[SelfCounter<$type>] = &[$(SelfCounter {
            kind: MetricKind::$kind,
            name: $name,
            unit: $unit,
            value: |$health| Option::from($value),
            help: $help,
        },)*];
    };
}

fn mean_nanos(sampled: &SampledCost) -> Option<u64> {
    sampled.nanos.checked_div(sampled.samples)
}

self_counters! {
    /// Counters of counting.
    COUNTING of Health {
        Counter "runs" "" = |it| it.sum.runs, "Runs of the hook";
        Counter "charges" "" = |it| it.sum.charges, "Slices charged to their owner";
        Gauge "ns_per_run_same_owner" "ns" = |it| mean_nanos(&it.sum.same),
            "Mean cost of a run that found the same owner";
        Gauge "ns_per_run_charging" "ns" = |it| mean_nanos(&it.sum.changed),
            "Mean cost of a run that charged";
        Counter "sampled_runs" "" = |it| it.sum.same.samples + it.sum.changed.samples,
            "Runs whose cost was measured, one in 1,024";
        Gauge "ns_per_read" "ns" = |it| it.cost.read.each(),
            "Cost of reading one counter, measured at the start";
        Gauge "counting_ppm_of_busiest_cpu" "ppm" = |it| it.cost.ppm(),
            "Share of a CPU that the programs took, where they took most";
        Gauge "ipis_per_pull" "" = |it| it.flushes,
            "Interrupts of the last pull: CPUs flushed";
        Gauge "pull_skew_ns" "ns" = |it| it.skew,
            "First flush to last row of the last pull: events meanwhile are in either window";
        Counter "group_exchanges" "" = |it| it.exchanges,
            "Switches of a CPU to the next counter group";
        Gauge "rows" "" = |it| it.rows as u64, "Rows in the map of counts";
        Counter "rows_made" "" = |it| it.sum.rows_made,
            "Rows created: far more than `rows` where owners come and go";
        Counter "evicted_rows" "" = |it| it.evicted_rows,
            "Rows freed in a map more than half full: no processes, or idle and no container";
        Gauge "map_memory_bytes" "B" = |it| it.memory.total() as u64,
            "Kernel memory of the maps, by arithmetic";
        Counter "missed_switches" "" = |it| it.sum.missed_switches,
            "Switches that no program saw";
        Counter "late_switches" "" = |it| it.sum.late,
            "Switches that only a second program saw, right after them";
        Counter "moved_while_running" "" = |it| it.sum.moved,
            "Slices whose task was moved to another cgroup while running: charged to the old one";
        Counter "estimated_ns" "ns" = |it| it.sum.missed_nanos,
            "Time of slices with a missed switch between two owners: divided by an estimate";
        Counter "stale_clock_ns" "ns" = |it| it.sum.stale_clock_nanos,
            "Time of tasks that ran on after a wake-up: `cpu.stat` charges it to the woken task";
        Counter "overflowed_charges" "" = |it| it.sum.overflowed,
            "Charges to `system (overflow)` for want of a row";
        Counter "refused_rows_full" "" = |it| it.sum.full,
            "Rows not created: the map was full";
        Counter "refused_rows_no_memory" "" = |it| it.sum.no_memory,
            "Rows not created: no memory at hand";
        Counter "refused_rows_locked" "" = |it| it.sum.contended,
            "Rows not created: a part of the map was locked";
        Counter "rebased_counters" "" = |it| it.sum.rebased,
            "Counters that went back and became a new baseline";
        Counter "refused_reads" "" = |it| it.sum.read_errors,
            "Counter reads that the kernel refused";
        Counter "map_retries" "" = |it| it.map_retries,
            "Map calls of pmuscope repeated since the map was busy";
        Counter "skipped_runs" "" = |it| it.skipped_runs,
            "Runs that the kernel skipped: the program was already running on that CPU";
        Counter "lost_events" "" = |it| it.sum.lost_events,
            "Lost records of cgroups and processes that came or went";
        Counter "kernel_log_suppressed" "" = |it| it.log.map(|it| it.suppressed),
            "Kernel log messages beyond four a second of a kind on a CPU";
        Counter "kernel_log_dropped" "" = |it| it.log.map(|it| it.dropped),
            "Kernel log messages dropped: its ring was full";
        Counter "handovers" "" = |it| it.handed_over.map(|it| it.times),
            "Times another process took over the pinned maps";
        Counter "handover_gap_ns" "ns" = |it| it.handed_over.map(|it| it.gap),
            "CPU time counted for nobody during these handovers";
        Counter "unattended_ns" "ns" = |it| it.handed_over.map(|it| it.unattended),
            "Time without a process that reads: SPE and uncore counters paused";
    }
}

self_counters! {
    /// Counters of SPE sampling.
    SAMPLING of SpeHealth {
        Gauge "spe_period" "" = |it| it.period, "Operations between two samples, now";
        Gauge "spe_aux_bytes" "B" = |it| it.aux_size as u64, "Size of each CPU's buffer";
        Gauge "spe_rows" "" = |it| it.rows as u64, "Rows in the map of samples";
        Counter "spe_freed_idle_rows" "" = |it| it.freed_idle,
            "Rows without new samples, freed since the map was nearly full: their counts are kept";
        Gauge "spe_map_memory_bytes" "B" = |it| it.memory.total() as u64,
            "Kernel memory of the maps of samples, by arithmetic; 128 bytes more per thread";
        Counter "spe_chunks" "" = |it| it.sum.chunks, "Chunks of buffers handed over";
        Counter "spe_bytes" "B" = |it| it.sum.bytes, "Their bytes";
        Counter "spe_records" "" = |it| it.sum.records, "Decoded records";
        Counter "spe_padding_bytes" "B" = |it| it.sum.padding, "Padding between records";
        Counter "spe_undecoded_bytes" "B" = |it| it.sum.undecoded,
            "Bytes that are no decodable record: `spe_bad_records_*` say why";
        Counter "spe_skipped_bytes" "B" = |it| it.sum.skipped,
            "Bytes left out to bound the time with interrupts off";
        Counter "spe_invalid_records" "" = |it| it.sum.invalid,
            "Loads and stores with a zero address or timestamp";
        Counter "spe_overflowed_records" "" = |it| it.sum.overflowed,
            "Records without a row in the map";
        Counter "spe_missed_bytes" "B" = |it| it.sum.missed_bytes,
            "Bytes that no program was shown";
        Counter "spe_late_bytes" "B" = |it| it.sum.late_bytes,
            "Bytes of chunks without a call at their end: read at the end of the next one";
        Counter "spe_unlogged_chunks" "" = |it| it.unlogged,
            "Chunks of unknown size: the kernel's log was full";
        Counter "spe_aux_buffers_truncated" "" = |it| it.sum.truncated,
            "Chunks in which the hardware lost data";
        Counter "spe_aux_buffers_partial" "" = |it| it.sum.partial,
            "Chunks whose last record may be cut";
        Counter "spe_aux_buffers_with_collision" "" = |it| it.sum.collided,
            "Chunks with a sample dropped because the one before was in flight";
        Counter "spe_unreadable_chunks" "" = |it| it.sum.unreadable,
            "Chunks that could not be read";
        Counter "spe_decode_ns" "ns" = |it| it.sum.nanos,
            "Time spent on chunks, interrupts off";
        Gauge "spe_irq_off_ns_max" "ns" = |it| it.longest, "Longest time spent on a chunk";
        Counter "spe_unknown_threads" "" = |it| it.sum.unknown_threads,
            "Threads without room in the map of threads";
        Counter "spe_lost_exits" "" = |it| it.sum.lost_exits,
            "Exits of threads not reported in time";
        Counter "spe_unpaged_records" "" = |it| it.sum.unpaged,
            "Records not in the table of pages";
        Counter "spe_lined_records" "" = |it| it.sum.lined,
            "Loads and stores with an address and an owner, where cache lines are shown";
        Counter "spe_unlined_records" "" = |it| it.sum.unlined,
            "Those of them not in the table of cache lines";
        Gauge "spe_ns_per_record" "ns" = |it| it.per_record(it.sum.nanos),
            "Mean cost of a decoded record";
        Gauge "spe_ns_per_record_by_bpf_stats" "ns" = |it| {
            it.bpf_stats.and_then(|nanos| it.per_record(nanos))
        }, "The same by the kernel's clock, with `kernel.bpf_stats_enabled`";
    }
}

self_counters! {
    /// Counters of the agent.
    AGENT of AgentHealth {
        Gauge "agent_interval_ns" "ns" = |it| it.interval_nanos, "Length of a window now";
        Counter "agent_windows" "" = |it| it.windows, "Windows pulled and published";
        Counter "agent_pull_ns" "ns" = |it| it.pull_nanos,
            "Time spent on windows: pulling, naming, computing, writing";
        Gauge "agent_last_pull_ns" "ns" = |it| it.last_pull_nanos, "The same of the last window";
        Counter "agent_failures" "" = |it| it.failures,
            "Times counting could not start or continue; it is retried";
        Counter "agent_sessions" "" = |it| it.sessions, "Times counting began";
        Gauge "agent_off" "" = |it| it.off, "1 while a file switches counting off";
        Counter "agent_reloads" "" = |it| it.reloads, "Reloads of the configuration";
        Counter "agent_refused_reloads" "" = |it| it.refused_reloads,
            "Refused reloads: the earlier settings stay";
        Gauge "agent_series" "" = |it| it.series, "Series of the last window";
        Gauge "agent_folded_containers" "" = |it| it.folded,
            "Rows of the last window in the row `other`, by `series.max`";
        Gauge "agent_left_out_processes" "" = |it| it.left_out,
            "Processes of `count.top_processes` without series in the last window, by `series.max`";
        Gauge "agent_overhead_ppm" "ppm" = |it| it.overhead_ppm,
            "Share of a CPU of the programs (busiest CPU) and this process, with `max_overhead`";
        Gauge "agent_overhead_budget_ppm" "ppm" = |it| it.overhead_budget_ppm, "`max_overhead`";
        Gauge "agent_overhead_level" "" = |it| it.overhead_level,
            "What is given up to keep to it: 0 is nothing";
        Gauge "agent_overhead_exceeded" "" = |it| it.overhead_exceeded,
            "1 while it is exceeded with nothing left to give up";
        Counter "agent_overhead_changes" "" = |it| it.overhead_changes, "Changes of that level";
        Counter "agent_scrapes" "" = |it| it.scrapes, "Answers with metrics";
        Counter "agent_scrape_ns" "ns" = |it| it.scrape_nanos, "Time until these were ready";
        Counter "agent_connections" "" = |it| it.connections, "Accepted connections";
        Counter "agent_refused_requests" "" = |it| it.refused_requests,
            "Requests answered by a client error, or refused for too many at once";
        Counter "agent_closed_connections" "" = |it| it.closed_connections,
            "Connections closed to make room, or since the client did not take its answer";
        Counter "agent_json_lines" "" = |it| it.json_lines, "Lines of JSON written";
        Counter "agent_lost_json_lines" "" = |it| it.lost_json_lines,
            "Lines of JSON that could not be written";
        Counter "agent_failed_saves" "" = |it| it.failed_saves,
            "Windows whose totals could not be saved for a restart";
        Counter "agent_pushes" "" = |it| it.pushes, "Requests that the collector took";
        Counter "agent_failed_pushes" "" = |it| it.failed_pushes,
            "Requests to the collector that failed";
        Counter "agent_rejected_points" "" = |it| it.rejected_points,
            "Data points that the collector refused";
        Counter "agent_lost_pushes" "" = |it| it.lost_pushes,
            "Windows that the collector did not take whole: only their gauges are lost";
        Counter "agent_cpu_ns" "ns" = |it| it.cpu_nanos, "CPU time of this process";
        Gauge "agent_resident_bytes" "B" = |it| it.resident, "Its resident memory";
        Gauge "agent_open_descriptors" "" = |it| it.descriptors, "Its open file descriptors";
    }
}

self_counters! {
    /// Counters of sampled events, over all events.
    SAMPLED of Vec<EventWindow> {
        Counter "samples" "" = |it| sum(it, |it| it.sum.samples), "Samples taken";
        Counter "samples_missed" "" = |it| sum(it, |it| it.missed),
            "Samples due by the events' counts, and not shown to the program";
        Counter "samples_left_out" "" = |it| sum(it, |it| it.sum.others),
            "Samples of memory events that are no access, or too short";
        Counter "samples_overflowed" "" = |it| sum(it, |it| it.sum.overflow.samples),
            "Samples in `system (overflow)` for want of a row";
        Counter "samples_refused_full" "" = |it| sum(it, |it| it.sum.full),
            "Rows of samples not created: the map was full";
        Counter "samples_refused" "" = |it| sum(it, |it| it.sum.refused),
            "Rows of samples not created: no memory or lock at hand";
        Counter "samples_unplaced" "" = |it| sum(it, |it| it.sum.unplaced),
            "Samples whose instruction is not in the kernel's table";
        Counter "samples_unpaged" "" = |it| sum(it, |it| it.sum.unpaged),
            "Samples whose data page is not in it";
        Counter "samples_pushed_out" "" = |it| sum(it, |it| it.pushed_out),
            "Samples whose address gave way to others since the start";
        Gauge "ns_per_sample" "ns" = |it| sum(it, |it| it.sum.nanos)
            .and_then(|nanos| nanos.checked_div(sum(it, |it| it.sum.measured)?)),
            "Mean cost of a sample to the program, by its own clock";
        Gauge "ns_per_sample_of_kernel" "ns" = |it| it.first().and_then(|it| it.health.bpf_stats)
            .and_then(|nanos| nanos.checked_div(sum(it, |it| it.sum.samples)?)),
            "The same by the kernel's clock, with `kernel.bpf_stats_enabled`";
    }
}

self_counters! {
    /// Counters of function names.
    FUNCTIONS of NameCounts {
        Counter "functions_lost_records" "" = |it| it.lost,
            "Lost records about processes: the kernel had no room";
        Counter "functions_read_processes" "" = |it| it.read,
            "Processes whose mappings were read from procfs";
        Counter "functions_refused" "" = |it| it.refused,
            "Programs and mapped files that pmuscope has no right to read";
        Counter "functions_unreadable" "" = |it| it.unreadable,
            "Mappings whose file could not be read";
        Counter "functions_dropped_processes" "" = |it| it.dropped_processes,
            "Processes forgotten since there were too many";
        Counter "functions_dropped_mappings" "" = |it| it.dropped_mappings,
            "Mappings forgotten since their process had too many";
        Counter "functions_dropped_code" "" = |it| it.dropped_code,
            "Functions of perf map files not kept since there were too many";
    }
}

/// The sum of a counter over all sampled events.
fn sum(events: &[EventWindow], counter: fn(&SampledEventHealth) -> u64) -> Option<u64> {
    Some(events.iter().map(|event| counter(&event.health)).sum())
}

self_counters! {
    /// Counters of the requests to container runtimes.
    NAMING of ResolverHealth {
        Counter "names_answers" "" = |it| it.answers, "Answers of container runtimes";
        Counter "names_errors" "" = |it| it.errors,
            "Requests that a runtime refused, or whose answer could not be read";
        Counter "names_timeouts" "" = |it| it.timeouts,
            "Requests without an answer in time";
        Gauge "names_known" "" = |it| it.known, "Containers with a known name";
        Gauge "names_waiting" "" = |it| it.waiting,
            "Containers without a name yet: shown by id";
        Counter "names_refused" "" = |it| it.refused,
            "Containers and pods in answers with no name, or several";
        Counter "names_cut" "" = |it| it.cut,
            "Names (256 bytes), images and labels (1,024 bytes) cut since they were too long";
        Counter "names_not_asked" "" = |it| it.not_asked,
            "Containers and pods beyond 65,536, not asked for";
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names() -> impl Iterator<Item = &'static str> {
        let names = COUNTING
            .iter()
            .map(|counter| counter.name)
            .chain(SAMPLING.iter().map(|counter| counter.name))
            .chain(SAMPLED.iter().map(|counter| counter.name))
            .chain(FUNCTIONS.iter().map(|counter| counter.name))
            .chain(AGENT.iter().map(|counter| counter.name));
        names.chain(NAMING.iter().map(|counter| counter.name))
    }

    #[test]
    fn names_are_unique() {
        let unique: BTreeSet<_> = names().collect();
        assert_eq!(unique.len(), names().count());
    }
}
