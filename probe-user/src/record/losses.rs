//! Counts of samples and losses, each with a name.

use perf_event_open_sys::bindings;
use probe_common::spe::{BadCounts, BadKind};

use super::regions;

/// Counts of a whole recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// Samples passed to the sink.
    pub samples: u64,
    /// Loads and stores with an address or time of zero, which are no accesses: see
    /// [`probe_common::spe::Class::is_invalid`].
    pub invalid: u64,
    /// Bytes taken from AUX areas, padding included.
    pub aux_bytes: u64,
    /// `PERF_RECORD_AUX` records: each announces AUX bytes.
    pub aux_buffers: u64,
    /// AUX records with `PERF_AUX_FLAG_TRUNCATED`: the area was full and sampling stopped, or the
    /// core lost data.
    pub truncated: u64,
    /// AUX records with `PERF_AUX_FLAG_PARTIAL`: the core lost data, and the last record may be
    /// damaged.
    pub partial: u64,
    /// AUX records with `PERF_AUX_FLAG_COLLISION`: a sample was dropped because the previous one
    /// was still in flight. The hardware does not report how many.
    pub collided: u64,
    /// AUX records with `PERF_AUX_FLAG_OVERWRITE`: older bytes were overwritten.
    pub overwritten: u64,
    /// Ring records (AUX, COMM, FORK, EXIT) that did not fit. Their AUX bytes are not lost. Where
    /// events sample a command or a process, a lost FORK also loses the samples of that process.
    pub lost_ring_records: u64,
    /// Samples of events that did not fit their ring.
    pub lost_samples: u64,
    /// Samples of events that the core dropped.
    pub dropped_samples: u64,
    /// How often the kernel stopped an event until its next tick, for too many samples.
    pub throttled: u64,
    /// Samples of events that are not accesses, or below the minimum latency.
    pub left_out: u64,
    /// Samples of events without an owner, because the task had exited.
    pub of_ended: u64,
    /// Samples of events in cgroups that were removed before they were looked up.
    pub of_unknown_cgroups: u64,
    /// Ring bytes that are not records.
    pub damaged_ring_bytes: u64,
    /// AUX bytes without a `PERF_RECORD_AUX`: padding, or the record was lost.
    pub unannounced_bytes: u64,
    /// AUX bytes that are not SPE records, by kind.
    pub bad: BadCounts,
    /// Samples without a thread id, attributed to the task of their AUX bytes.
    pub thread_by_buffer: u64,
    /// Samples without any known thread.
    pub without_thread: u64,
    /// Samples with a thread id, but of an unknown process.
    pub without_process: u64,
    /// Samples without a timestamp.
    pub without_time: u64,
    /// How often sampling was restarted after the kernel stopped it.
    pub restarts: u64,
    /// How often a CPU with a buffer went offline: samples still in its core are lost.
    pub cpus_left: u64,
    /// CPUs that came online, but for which no buffer could be opened.
    pub cpus_refused: u64,
    /// Upper bound of the time in ns for which CPUs that came online had no buffer.
    pub unsampled_cpu_ns: u64,
    /// Threads that exited before a buffer was opened for them (`--per-thread`).
    pub missed_threads: u64,
    /// CPU time in ns of threads before a buffer was opened for them (`--per-thread`).
    pub unsampled_ns: u64,
    /// Mappings beyond the limit of their process or of all: their addresses get no name.
    pub mappings_left_out: u64,
    /// Counts of markers (`--regions`).
    pub regions: Option<regions::MarkerCounts>,
}

impl RecordCounts {
    /// Counts the flags of a record about AUX bytes.
    pub(super) fn add_flags(&mut self, flags: u64) {
        let has = |flag: u32| u64::from(flags & u64::from(flag) != 0);
        self.aux_buffers += 1;
        self.truncated += has(bindings::PERF_AUX_FLAG_TRUNCATED);
        self.partial += has(bindings::PERF_AUX_FLAG_PARTIAL);
        self.collided += has(bindings::PERF_AUX_FLAG_COLLISION);
        self.overwritten += has(bindings::PERF_AUX_FLAG_OVERWRITE);
    }

    /// Adds the counts of a decoding thread.
    pub(super) fn add(&mut self, decoded: &Self) {
        for (sum, count) in [
            (&mut self.samples, decoded.samples),
            (&mut self.invalid, decoded.invalid),
            (&mut self.aux_bytes, decoded.aux_bytes),
            (&mut self.unannounced_bytes, decoded.unannounced_bytes),
            (&mut self.thread_by_buffer, decoded.thread_by_buffer),
            (&mut self.without_thread, decoded.without_thread),
            (&mut self.without_process, decoded.without_process),
            (&mut self.without_time, decoded.without_time),
            (&mut self.lost_samples, decoded.lost_samples),
            (&mut self.dropped_samples, decoded.dropped_samples),
            (&mut self.throttled, decoded.throttled),
            (&mut self.left_out, decoded.left_out),
            (&mut self.of_ended, decoded.of_ended),
            (&mut self.of_unknown_cgroups, decoded.of_unknown_cgroups),
            (&mut self.damaged_ring_bytes, decoded.damaged_ring_bytes),
        ] {
            *sum += count;
        }
        for kind in BadKind::ALL {
            self.bad.add_many(kind, decoded.bad.get(kind));
        }
    }

    /// Samples of accesses: all but the invalid ones.
    #[must_use]
    pub const fn valid(&self) -> u64 {
        self.samples - self.invalid
    }

    /// Every count with its name, in a fixed order.
    #[must_use]
    pub fn named(&self) -> Vec<(String, u64)> {
        let plain = [
            ("samples", self.samples),
            ("invalid_samples", self.invalid),
            ("aux_bytes", self.aux_bytes),
            ("aux_buffers", self.aux_buffers),
            ("aux_buffers_truncated", self.truncated),
            ("aux_buffers_partial", self.partial),
            ("aux_buffers_with_collision", self.collided),
            ("aux_buffers_overwritten", self.overwritten),
            ("lost_ring_records", self.lost_ring_records),
            ("lost_samples", self.lost_samples),
            ("dropped_samples", self.dropped_samples),
            ("throttled", self.throttled),
            ("samples_left_out", self.left_out),
            ("samples_of_ended_tasks", self.of_ended),
            ("samples_of_unknown_cgroups", self.of_unknown_cgroups),
            ("damaged_ring_bytes", self.damaged_ring_bytes),
            ("unannounced_aux_bytes", self.unannounced_bytes),
            ("samples_with_thread_by_buffer", self.thread_by_buffer),
            ("samples_without_thread", self.without_thread),
            ("samples_without_process", self.without_process),
            ("samples_without_time", self.without_time),
            ("restarts", self.restarts),
            ("cpus_left", self.cpus_left),
            ("cpus_refused", self.cpus_refused),
            ("unsampled_cpu_ns", self.unsampled_cpu_ns),
            ("missed_threads", self.missed_threads),
            ("unsampled_ns", self.unsampled_ns),
            ("mappings_left_out", self.mappings_left_out),
        ];
        let bad =
            BadKind::ALL.map(|kind| (format!("bad_records_{}", kind.name()), self.bad.get(kind)));
        plain
            .into_iter()
            .chain(self.regions.iter().flat_map(regions::MarkerCounts::named))
            .map(|(name, count)| (name.to_owned(), count))
            .chain(bad)
            .collect()
    }

    /// The nonzero losses for users: counts with names, separated by commas.
    #[must_use]
    pub fn losses(&self) -> String {
        let happened = [
            ("truncated buffers", self.truncated),
            ("partial buffers", self.partial),
            ("buffers with collisions", self.collided),
            ("overwritten buffers", self.overwritten),
            ("lost ring records", self.lost_ring_records),
            ("lost samples", self.lost_samples),
            ("samples that the core dropped", self.dropped_samples),
            ("times that the kernel throttled an event", self.throttled),
            ("samples of tasks that had ended", self.of_ended),
            (
                "samples in cgroups that were gone before they were looked for",
                self.of_unknown_cgroups,
            ),
            ("damaged ring bytes", self.damaged_ring_bytes),
            ("bad records", self.bad.total()),
            ("invalid samples (address or time zero)", self.invalid),
            (
                "samples with their thread taken from the buffer",
                self.thread_by_buffer,
            ),
            ("samples without a thread", self.without_thread),
            ("samples without a process", self.without_process),
            ("samples without a time", self.without_time),
            ("times that a CPU went offline", self.cpus_left),
            (
                "CPUs that came online and are not recorded",
                self.cpus_refused,
            ),
            (
                "ns not sampled, at most, on CPUs that came online",
                self.unsampled_cpu_ns,
            ),
            ("missed threads", self.missed_threads),
            ("ns not sampled in new threads", self.unsampled_ns),
            ("mappings left out", self.mappings_left_out),
        ];
        let of_regions = self.regions.iter().flat_map(regions::MarkerCounts::losses);
        let texts: Vec<String> = happened
            .into_iter()
            .chain(of_regions)
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        texts.join(", ")
    }
}
