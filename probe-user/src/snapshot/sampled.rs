//! Samples: by owner, by address, and the accounting of events.

use std::collections::HashMap;

use probe_common::{
    CgroupId,
    sample::{AddressKey, SampleCpu},
    spe::{SpeAccess, SpeKey},
};
use serde::{Deserialize, Serialize};

use super::{CodeLocation, GrowingRow, NameCounts, SampleCounts, SpeReading, pairs};
use crate::event::AccessScaling;

/// Owner and origin of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SampledKey {
    /// Owner of the samples.
    pub cgroup: CgroupId,
    /// Process id; 0 unless counting by process.
    pub tgid: u32,
    /// Sampler, and kind of access.
    pub origin: SampleOrigin,
}

/// The sampler of a row, and the kind of access as it reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SampleOrigin {
    /// Arm's SPE.
    Spe {
        /// CPU number.
        cpu: u16,
        /// Class of operation, and data source as that CPU numbers it.
        access: SpeAccess,
    },
    /// Overflows of an event, on all CPUs.
    Event {
        /// Index into [`SampleReading::events`].
        event: u8,
        /// Where the data came from, as a [`probe_common::sample::DataSource`].
        source: u8,
    },
}

/// A sampled address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SampledAddress {
    /// Owner of the samples.
    pub cgroup: CgroupId,
    /// Address of an instruction, or of the first byte of a data page.
    pub address: u64,
    /// Process of the address; 0 for a kernel address, unless counting by process.
    pub tgid: u32,
    /// Index into [`SampleReading::events`].
    pub event: u8,
    /// Whether `address` is a data page; else it is an instruction.
    pub page: bool,
    /// For an instruction: distinguishes the code from earlier code at the same address, such as
    /// the code of an earlier program of the process.
    #[serde(default)]
    pub image: u64,
}

/// Identity of code: process (0: the kernel), address, and [`SampledAddress::image`].
pub type CodeKey = (u32, u64, u64);

/// Samples at an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddressCounts {
    /// Number of samples.
    pub samples: u64,
    /// Number of events that the samples stand for, scaled if the event was multiplexed.
    #[serde(default)]
    pub events: f64,
    /// For a data page: number of samples with a latency.
    #[serde(default)]
    pub timed: u64,
    /// Sum of the latencies, in cycles.
    #[serde(default)]
    pub cycles: u64,
    /// Generation: number of the reading that first found the address, or found it again after it
    /// was evicted.
    pub made: u64,
}

/// All samples since the session began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampleReading {
    /// Counts by owner and origin. Rows of ended owners are freed: rows of events at once, rows of
    /// SPE one pull later.
    #[serde(with = "pairs")]
    pub rows: HashMap<SampledKey, SampleCounts>,
    /// Rows freed since the last snapshot, with their last values. A key may occur more than once,
    /// and in `rows` too: [`SampleCounts::made`] distinguishes the rows.
    pub freed: Vec<(SampledKey, SampleCounts)>,
    /// SPE's pages, cache lines and accounting; None without SPE.
    pub spe: Option<SpeReading>,
    /// The sampled events, with the accounting of their samples.
    pub events: Vec<SampledEventHealth>,
    /// Samples of events by address; empty if none are kept.
    #[serde(with = "pairs")]
    pub addresses: HashMap<SampledAddress, AddressCounts>,
    /// Locations of the instructions among the addresses, by [`SampledAddress::code_key`].
    #[serde(with = "pairs")]
    pub places: HashMap<CodeKey, CodeLocation>,
    /// Statistics of symbolization; None if no addresses are kept.
    #[serde(default)]
    pub names: Option<NameCounts>,
}

/// A sampled event, with the accounting of its samples on all CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledEventHealth {
    /// The event as the user wrote it.
    pub name: String,
    /// Whether it counts nanoseconds.
    pub clock: bool,
    /// Whether it counts at the same privilege levels at which it samples: a clock that samples
    /// only one level counts all levels.
    #[serde(default)]
    pub counts_as_it_samples: bool,
    /// Whether samples may skid: lie some instructions after their cause.
    pub skids: bool,
    /// What its samples stand for; None if they are not memory accesses.
    #[serde(default)]
    pub accesses: Option<AccessScaling>,
    /// Sampling period in events; None if it samples at a frequency.
    pub period: Option<u64>,
    /// Sampling frequency in samples per second and CPU; None if it samples with a period.
    pub frequency: Option<u64>,
    /// Count of the event itself, on all CPUs; not scaled.
    pub counted: u64,
    /// Nanoseconds for which it was enabled, on all CPUs.
    #[serde(default)]
    pub enabled: u64,
    /// Nanoseconds of `enabled` for which it was on the PMU.
    #[serde(default)]
    pub running: u64,
    /// With a fixed period: samples that were due by the event's count but did not run the program,
    /// because the kernel suppressed them or the CPU was in a bpf(2) call. The next sample stands
    /// for them too.
    pub missed: u64,
    /// How often a reading found the sample rate of a CPU near
    /// `kernel.perf_event_max_sample_rate`. The kernel throttles a counter that reaches this limit;
    /// neither its count nor its samples show that.
    #[serde(default)]
    pub limited: u64,
    /// The BPF programs' sample counters, summed over CPUs.
    pub sum: SampleCpu,
    /// Samples at addresses that were evicted from the table in user space.
    pub pushed_out: u64,
    /// Nanoseconds in the program as measured by the kernel, for all events; None if
    /// `kernel.bpf_stats_enabled` is or was off.
    pub bpf_stats: Option<u64>,
}

impl From<SpeKey> for SampledKey {
    fn from(key: SpeKey) -> Self {
        Self {
            cgroup: key.cgroup,
            tgid: key.tgid,
            origin: SampleOrigin::Spe {
                cpu: key.cpu,
                access: key.access,
            },
        }
    }
}

impl SampledEventHealth {
    /// Whether it is a clock that samples at all privilege levels at which it counts.
    pub(crate) fn is_whole_clock(&self) -> bool {
        self.clock && self.counts_as_it_samples
    }
}

impl SampledAddress {
    /// The key of its code in [`SampleReading::places`].
    #[must_use]
    pub fn code_key(&self) -> CodeKey {
        match AddressKey::is_kernel(self.address) {
            true => (0, self.address, self.image),
            false => (self.tgid, self.address, self.image),
        }
    }
}

impl GrowingRow for AddressCounts {
    fn generation(&self) -> u64 {
        self.made
    }

    fn growth(&self, earlier: &Self) -> Self {
        Self {
            samples: self.samples.saturating_sub(earlier.samples),
            events: (self.events - earlier.events).max(0.0),
            timed: self.timed.saturating_sub(earlier.timed),
            cycles: self.cycles.saturating_sub(earlier.cycles),
            made: 0,
        }
    }
}

impl SampledEventHealth {
    /// Nanoseconds that the program takes for a sample, by its own measurement.
    #[must_use]
    pub fn per_sample(&self) -> Option<u64> {
        self.sum.nanos.checked_div(self.sum.measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_created_again_count_as_a_whole() {
        let row = |samples, made| AddressCounts {
            samples,
            events: 20.0 * samples as f64,
            timed: samples,
            cycles: 30 * samples,
            made,
        };
        assert_eq!(row(9, 1).since(Some(&row(4, 1))), row(5, 0));
        assert_eq!(row(9, 2).since(Some(&row(4, 1))), row(9, 0));
        assert_eq!(row(9, 2).since(None), row(9, 0));
    }
}
