//! What sampled events say: samples by owner, by address, and what became of them all.

use std::{collections::HashMap, num::NonZeroU64};

use probe_common::{
    CgroupId,
    sample::{AddressKey, SampleCpu, SampleRow},
};
use serde::{Deserialize, Serialize};

use super::{NameCounts, Place, SpeCounts, pairs};
use crate::event::Accesses;

/// Whose samples, of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SampledKey {
    /// Whom the samples belong to.
    pub cgroup: CgroupId,
    /// Process id; 0 unless counting by process.
    pub tgid: u32,
    /// Index into [`SampledReading::events`].
    pub event: u8,
    /// A [`probe_common::sample::DataSource`].
    pub source: u8,
}

/// An address that was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SampledAddress {
    /// Whom the samples belong to.
    pub cgroup: CgroupId,
    /// Of an instruction; of a data page, the address of its first byte.
    pub address: u64,
    /// Process whose address it is; 0: the kernel's.
    pub tgid: u32,
    /// Index into [`SampledReading::events`].
    pub event: u8,
    /// Whether it is a data page.
    pub page: bool,
    /// Of an instruction: tells the code from what was at its address before, such as that of the
    /// program that its process executed before.
    #[serde(default)]
    pub image: u64,
}

/// Where code is: process (0: the kernel), address, and which of the codes that were there.
pub type CodeKey = (u32, u64, u64);

/// Samples of one row, and what they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampledCounts {
    /// The sum of the samples' periods, as the kernel says.
    pub periods: u64,
    /// The same scaled by what the event counted, with weights as latencies.
    pub counts: SpeCounts,
    /// In a window: nanoseconds that a clock counted of this row, where the event is one too. Never
    /// 0, so that it takes one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<NonZeroU64>,
}

/// Samples at an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddressCounts {
    /// Samples.
    pub samples: u64,
    /// The sum of their periods, as the kernel says.
    pub periods: u64,
    /// The same scaled by what the event counted on the CPU of each.
    #[serde(default)]
    pub events: f64,
    /// Of a data page: those with a latency.
    #[serde(default)]
    pub timed: u64,
    /// The sum of these latencies, in cycles.
    #[serde(default)]
    pub cycles: u64,
    /// Number of the reading that found the address first, or first again after it was pushed out.
    pub made: u64,
}

/// Everything that sampled events say since the session began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampledReading {
    /// The events, with what became of their samples.
    pub events: Vec<SampledHealth>,
    /// By owner. Rows of owners that ended are in one snapshot more, then left out.
    #[serde(with = "pairs")]
    pub rows: HashMap<SampledKey, SampledCounts>,
    /// By address; empty where none are kept.
    #[serde(with = "pairs")]
    pub addresses: HashMap<SampledAddress, AddressCounts>,
    /// What instructions among them are called, by [`SampledAddress::place`].
    #[serde(with = "pairs")]
    pub places: HashMap<CodeKey, Place>,
    /// What naming them could not do; None where none are kept.
    #[serde(default)]
    pub names: Option<NameCounts>,
}

/// What became of the samples of an event, all CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledHealth {
    /// The event as the user wrote it.
    pub name: String,
    /// Whether it counts nanoseconds.
    pub clock: bool,
    /// Whether it counts only what it samples: a clock of one level counts all levels.
    #[serde(default)]
    pub counts_as_it_samples: bool,
    /// Whether samples may be some instructions behind what caused them.
    pub skids: bool,
    /// Whether its samples are memory accesses, and what they stand for.
    #[serde(default)]
    pub accesses: Option<Accesses>,
    /// Events from one sample to the next; None where it follows a frequency.
    pub period: Option<u64>,
    /// Samples per second and CPU that it follows, where it does.
    pub frequency: Option<u64>,
    /// What the event itself counted, on all CPUs; not scaled.
    pub counted: u64,
    /// Nanoseconds for which it was enabled, on all CPUs.
    #[serde(default)]
    pub enabled: u64,
    /// Nanoseconds of these for which it was on the PMU.
    #[serde(default)]
    pub running: u64,
    /// Of a fixed period: samples that were due by that count and that no program was shown. The
    /// kernel held them back, or the CPU was in a bpf(2) call.
    pub missed: u64,
    /// On how many CPUs and in how many readings samples came near
    /// `kernel.perf_event_max_sample_rate`: the kernel stops a counter that reaches it, and neither
    /// count nor samples say so.
    #[serde(default)]
    pub limited: u64,
    /// What the programs say.
    pub sum: SampleCpu,
    /// Addresses that were pushed out of the table in user space, as samples.
    pub pushed_out: u64,
    /// Nanoseconds in the program as the kernel itself measured, of all events; None where
    /// `kernel.bpf_stats_enabled` is or was off.
    pub bpf_stats: Option<u64>,
}

impl SampledHealth {
    /// Whether it is a clock that is sampled wherever it counts.
    pub(crate) fn is_whole_clock(&self) -> bool {
        self.clock && self.counts_as_it_samples
    }
}

impl SampledCounts {
    /// What the samples of a row stand for that were taken after it was as `before`, where each
    /// event that the kernel says counts `factor` times.
    #[expect(clippy::cast_precision_loss, reason = "samples between two readings")]
    pub(crate) fn between(before: &SampleRow, now: &SampleRow, factor: f64) -> Self {
        let samples = now.samples.saturating_sub(before.samples);
        if samples == 0 {
            return Self::default();
        }
        let periods = now.periods.wrapping_sub(before.periods);
        let events = periods as f64 * factor;
        let weight = events / samples as f64;
        let high = now.squares_high.wrapping_sub(before.squares_high);
        let squares = (u128::from(high) << 64)
            .wrapping_add(u128::from(now.squares))
            .wrapping_sub(u128::from(before.squares));
        let gained = |now: u64, before: u64| now.wrapping_sub(before) as f64 * weight;
        let buckets =
            |at: usize| f64::from(now.histogram[at].wrapping_sub(before.histogram[at])) * weight;
        Self {
            periods,
            counts: SpeCounts {
                samples,
                operations: events,
                // Equal samples have the least variance: squares above 2^64 are not held.
                variance: (squares as f64 * factor * factor).max(events * weight),
                walks: gained(now.walks, before.walks),
                cycles: gained(now.weight.cycles, before.weight.cycles),
                squares: gained(now.weight.squares, before.weight.squares),
                histogram: std::array::from_fn(buckets),
                ..SpeCounts::default()
            },
            counted: None,
        }
    }

    /// What was added since an earlier time. A row that was made again counts as a whole.
    pub(crate) fn since(&self, earlier: Option<&Self>) -> Self {
        let same = earlier.filter(|earlier| earlier.counts.made == self.counts.made);
        let before = same.copied().unwrap_or_default();
        Self {
            periods: self.periods.saturating_sub(before.periods),
            counts: self.counts.since(&before.counts),
            counted: None,
        }
    }

    /// Adds those of another row; when the row was made stays.
    pub(crate) fn add(&mut self, other: &Self) {
        self.periods = self.periods.wrapping_add(other.periods);
        self.counts.add(&other.counts);
        let counted = [self.counted, other.counted].into_iter().flatten();
        self.counted = counted.reduce(|a, b| a.saturating_add(b.get()));
    }
}

impl SampledAddress {
    /// Its key in [`SampledReading::places`].
    #[must_use]
    pub fn place(&self) -> CodeKey {
        match AddressKey::is_kernel(self.address) {
            true => (0, self.address, self.image),
            false => (self.tgid, self.address, self.image),
        }
    }
}

impl AddressCounts {
    /// As of rows.
    pub(crate) fn since(&self, earlier: Option<&Self>) -> Self {
        let same = earlier.filter(|earlier| earlier.made == self.made);
        let before = same.copied().unwrap_or_default();
        Self {
            samples: self.samples.saturating_sub(before.samples),
            periods: self.periods.saturating_sub(before.periods),
            events: (self.events - before.events).max(0.0),
            timed: self.timed.saturating_sub(before.timed),
            cycles: self.cycles.saturating_sub(before.cycles),
            made: 0,
        }
    }
}

impl SampledHealth {
    /// What the program takes for each sample, in ns, by its own clock.
    #[must_use]
    pub fn per_sample(&self) -> Option<u64> {
        self.sum.nanos.checked_div(self.sum.measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stand_for_their_periods_times_the_factor() {
        let mut before = SampleRow::ZERO;
        before.add(1000);
        let mut now = before;
        now.add(1000);
        now.add(3000);
        now.weight.add(20);
        now.histogram[9] += 1;
        let gained = SampledCounts::between(&before, &now, 2.0);
        let counts = gained.counts;
        assert_eq!((gained.periods, counts.samples), (4000, 2));
        assert_eq!((counts.operations, counts.variance), (8000.0, 4e7));
        // Two samples stand for 8000: each latency for 4000.
        assert_eq!((counts.cycles, counts.histogram[9]), (80_000.0, 4000.0));
        assert_eq!(
            SampledCounts::between(&now, &now, 2.0),
            SampledCounts::default()
        );
    }

    #[test]
    fn rows_made_anew_count_as_a_whole() {
        let row = |samples, made| AddressCounts {
            samples,
            periods: 10 * samples,
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
