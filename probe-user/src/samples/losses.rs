//! Counts of samples and losses, each with its names.

use perf_event_open_sys::bindings;
use probe_common::spe::{BadCounts, BadKind};

use super::regions;

/// Defines a structure of counters from a table.
///
/// A row has the field, its name in files and, if it counts a loss, its name for users. If a field
/// has several counts, the method after `by` adds them up. Fields after `and` are not in the table.
macro_rules! counters {
    ($(#[$meta:meta])* pub struct $type:ident {
        $($(#[$doc:meta])* pub $field:ident: $count:ty
            = $($name:literal)? $(loss $loss:literal $(by $total:ident)?)?;)*
    } $(and { $($(#[$other_doc:meta])* pub $other:ident: $other_type:ty,)* })?) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type {
            $($(#[$doc])* pub $field: $count,)*
            $($($(#[$other_doc])* pub $other: $other_type,)*)?
        }

        impl std::ops::AddAssign for $type {
            /// Adds the counters of the table.
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }

        impl $type {
            /// Counts with their names in files, in the order of the table.
            pub(in crate::samples) fn file_counts(&self) -> Vec<(&'static str, u64)> {
                vec![$($(($name, self.$field),)?)*]
            }

            /// Counts of losses with their names for users, in the order of the table.
            pub(in crate::samples) fn loss_counts(&self) -> Vec<(&'static str, u64)> {
                vec![$($(($loss, self.$field$(.$total())?),)?)*]
            }
        }
    };
}
pub(super) use counters;

counters! {
    /// Counts of a whole recording.
    pub struct RecordCounts {
        /// Samples passed to the sink.
        pub samples: u64 = "samples";
        /// Bytes taken from AUX areas, padding included.
        pub aux_bytes: u64 = "aux_bytes";
        /// `PERF_RECORD_AUX` records: each announces AUX bytes.
        pub aux_records: u64 = "aux_buffers";
        /// AUX records with `PERF_AUX_FLAG_TRUNCATED`: the area was full and sampling stopped, or
        /// the core lost data.
        pub truncated: u64 = "aux_buffers_truncated" loss "truncated buffers";
        /// AUX records with `PERF_AUX_FLAG_PARTIAL`: the core lost data, and the last record may be
        /// damaged.
        pub partial: u64 = "aux_buffers_partial" loss "partial buffers";
        /// AUX records with `PERF_AUX_FLAG_COLLISION`: a sample was dropped because the previous
        /// one was still in flight. The hardware does not report how many.
        pub collided: u64 = "aux_buffers_with_collision" loss "buffers with collisions";
        /// AUX records with `PERF_AUX_FLAG_OVERWRITE`: older bytes were overwritten.
        pub overwritten: u64 = "aux_buffers_overwritten" loss "overwritten buffers";
        /// Ring records (such as AUX, COMM, FORK, EXIT) that did not fit the ring. A lost AUX
        /// record does not lose its AUX bytes. Where events sample a command or a process, a lost
        /// FORK also loses the samples of the new process.
        pub lost_ring_records: u64 = "lost_ring_records" loss "lost ring records";
        /// Perf-event samples (not SPE) that did not fit their ring.
        pub lost_samples: u64 = "lost_samples" loss "lost samples";
        /// Perf-event samples (not SPE) that the core dropped.
        pub dropped_samples: u64 = "dropped_samples" loss "samples that the core dropped";
        /// How often the kernel stopped an event until its next tick, because of too many samples.
        pub throttled: u64 = "throttled" loss "times that the kernel throttled an event";
        /// Perf-event samples (not SPE) that are not accesses, or below the minimum latency.
        pub left_out: u64 = "samples_left_out";
        /// Perf-event samples (not SPE) without an owner, because the task had exited.
        pub ended_task_samples: u64 = "samples_of_ended_tasks"
            loss "samples of tasks that had ended";
        /// Perf-event samples (not SPE) in cgroups that were removed before they were looked up.
        pub unknown_cgroup_samples: u64 = "samples_of_unknown_cgroups"
            loss "samples in cgroups that were gone before they were looked for";
        /// Ring bytes that are not records.
        pub damaged_ring_bytes: u64 = "damaged_ring_bytes" loss "damaged ring bytes";
        /// AUX bytes without a `PERF_RECORD_AUX`: padding, or the record was lost.
        pub unannounced_bytes: u64 = "unannounced_aux_bytes";
        /// Bad SPE records, by kind.
        pub bad: BadCounts = loss "bad records" by total;
        /// Loads and stores with an address or time of zero, which do not count as accesses: see
        /// [`probe_common::spe::Class::is_invalid`].
        pub invalid: u64 = "invalid_samples" loss "invalid samples (address or time zero)";
        /// Samples without a thread id, attributed to the task named by the `PERF_RECORD_AUX` that
        /// covers them.
        pub thread_by_buffer: u64 = "samples_with_thread_by_buffer"
            loss "samples with their thread taken from the buffer";
        /// Samples without any known thread.
        pub without_thread: u64 = "samples_without_thread" loss "samples without a thread";
        /// Samples with a thread id, but of an unknown process.
        pub without_process: u64 = "samples_without_process" loss "samples without a process";
        /// Samples without a timestamp.
        pub without_time: u64 = "samples_without_time" loss "samples without a time";
        /// How often sampling was restarted after the kernel stopped it.
        pub restarts: u64 = "restarts";
        /// How often a CPU with a buffer went offline: samples still in its core are lost.
        pub cpu_offline_events: u64 = "cpus_left" loss "times that a CPU went offline";
        /// CPUs that came online, but for which no buffer could be opened.
        pub cpus_refused: u64 = "cpus_refused" loss "CPUs that came online and are not recorded";
        /// Upper bound of the time in ns for which CPUs that came online had no buffer.
        pub unsampled_cpu_ns: u64 = "unsampled_cpu_ns"
            loss "ns not sampled, at most, on CPUs that came online";
        /// Threads that exited before a buffer was opened for them (`--per-thread`).
        pub missed_threads: u64 = "missed_threads" loss "missed threads";
        /// CPU time in ns of threads before a buffer was opened for them (`--per-thread`).
        pub unsampled_ns: u64 = "unsampled_ns" loss "ns not sampled in new threads";
        /// Mappings beyond the limit of their process or of all processes: their addresses get no
        /// name.
        pub mappings_left_out: u64 = "mappings_left_out" loss "mappings left out";
    } and {
        /// Counts of markers (`--regions`). Set once per round by the recorder, so `+=` does not
        /// add them.
        pub regions: Option<regions::MarkerCounts>,
    }
}

impl RecordCounts {
    /// Counts the flags of a record about AUX bytes.
    pub(super) fn add_flags(&mut self, flags: u64) {
        let count = |flag: u32| u64::from(flags & u64::from(flag) != 0);
        self.aux_records += 1;
        self.truncated += count(bindings::PERF_AUX_FLAG_TRUNCATED);
        self.partial += count(bindings::PERF_AUX_FLAG_PARTIAL);
        self.collided += count(bindings::PERF_AUX_FLAG_COLLISION);
        self.overwritten += count(bindings::PERF_AUX_FLAG_OVERWRITE);
    }

    /// Number of samples without the invalid ones.
    #[must_use]
    pub const fn valid(&self) -> u64 {
        self.samples - self.invalid
    }

    /// Every count with its name in files, in a fixed order.
    #[must_use]
    pub fn named(&self) -> Vec<(String, u64)> {
        let of_regions = self.regions.iter();
        let bad =
            BadKind::ALL.map(|kind| (format!("bad_records_{}", kind.name()), self.bad.get(kind)));
        self.file_counts()
            .into_iter()
            .chain(of_regions.flat_map(regions::MarkerCounts::file_counts))
            .map(|(name, count)| (name.to_owned(), count))
            .chain(bad)
            .collect()
    }

    /// The nonzero losses for users: counts with names, separated by commas.
    #[must_use]
    pub fn losses(&self) -> String {
        let of_regions = self.regions.iter();
        let texts: Vec<String> = self
            .loss_counts()
            .into_iter()
            .chain(of_regions.flat_map(regions::MarkerCounts::loss_counts))
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        texts.join(", ")
    }
}
