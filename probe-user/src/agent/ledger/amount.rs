//! Amounts: a counter's raw count and its estimate.

use std::{mem, time::Duration};

use serde::{Deserialize, Serialize};

use crate::derive::{CounterValue, Estimate, RunningTime, Spread};

/// The value of a session's counter, or a gain of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Amount {
    /// When the counter began.
    start: Duration,
    pub(super) count: RawCount,
    pub(super) sum: EstimateSum,
}

/// A counter's raw count, and the time in which it was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RawCount {
    raw: u64,
    /// Nanoseconds enabled and nanoseconds running.
    pub(super) time: (u64, u64),
}

/// A counter's estimate for all of the time, scaled up from the time running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct EstimateSum {
    /// When the first of its counters began. The start must not change: a receiver takes a new
    /// start for a reset, and adds the new value to the old one.
    start: Option<Duration>,
    estimate: f64,
    variance: f64,
}

impl Amount {
    pub(super) fn from_counter(counter: &CounterValue) -> Self {
        let time = counter.time.unwrap_or_default();
        Self {
            start: counter.start,
            count: RawCount {
                raw: counter.raw,
                time: (time.enabled, time.running),
            },
            sum: EstimateSum {
                start: Some(counter.start),
                estimate: counter.estimate.value,
                variance: counter.estimate.error().unwrap_or(0.0).powi(2),
            },
        }
    }

    /// Advances to the counter's current value and returns the gain. After a reset the gain is the
    /// whole value. A counter that decreased a little gains nothing until it exceeds its old value.
    pub(super) fn advance(&mut self, now: Self) -> Self {
        if self.start != now.start || self.count.was_reset(&now.count) {
            *self = now;
            return now;
        }
        let before = mem::replace(self, self.max_of_each(&now));
        let (now, then) = (self.count, before.count);
        Self {
            start: self.start,
            count: RawCount {
                raw: now.raw - then.raw,
                time: (now.time.0 - then.time.0, now.time.1 - then.time.1),
            },
            sum: EstimateSum {
                start: self.sum.start,
                estimate: self.sum.estimate - before.sum.estimate,
                variance: self.sum.variance - before.sum.variance,
            },
        }
    }

    /// For each value, the maximum of both amounts.
    fn max_of_each(&self, other: &Self) -> Self {
        let [a, b] = [self, other].map(|it| (it.count.raw, it.count.time, it.sum));
        Self {
            start: self.start,
            count: RawCount {
                raw: a.0.max(b.0),
                time: (a.1.0.max(b.1.0), a.1.1.max(b.1.1)),
            },
            sum: EstimateSum {
                start: b.2.start,
                estimate: a.2.estimate.max(b.2.estimate),
                variance: a.2.variance.max(b.2.variance),
            },
        }
    }

    pub(super) fn add(&mut self, gain: &Self) {
        self.count.add(&gain.count);
        self.sum.add(&gain.sum);
    }
}

impl RawCount {
    /// Whether a counter was reset: its value or its time fell by more than half.
    fn was_reset(&self, now: &Self) -> bool {
        let halved = |then: u64, now: u64| now < then.div_ceil(2);
        halved(self.raw, now.raw) || halved(self.time.0, now.time.0)
    }

    pub(super) fn add(&mut self, gain: &Self) {
        self.raw = self.raw.saturating_add(gain.raw);
        self.time.0 = self.time.0.saturating_add(gain.time.0);
        self.time.1 = self.time.1.saturating_add(gain.time.1);
    }

    /// A counter with this raw count and this estimate.
    pub(super) fn counter(&self, sum: &EstimateSum) -> CounterValue {
        let mut counter = CounterValue {
            start: Duration::ZERO,
            raw: 0,
            estimate: Estimate {
                spread: match sum.variance > 0.0 {
                    true => Spread::Error(0.0),
                    false => Spread::None,
                },
                ..Estimate::exact(0.0)
            },
            time: (self.time.0 > 0).then(RunningTime::default),
        };
        write_total(self, sum, &mut counter);
        counter
    }
}

impl EstimateSum {
    pub(super) fn add(&mut self, gain: &Self) {
        self.start = self.start.or(gain.start);
        self.estimate += gain.estimate;
        self.variance += gain.variance;
    }
}

/// Sets a counter's total to this raw count and estimate.
pub(super) fn write_total(count: &RawCount, sum: &EstimateSum, total: &mut CounterValue) {
    total.raw = count.raw;
    total.start = sum.start.unwrap_or(total.start);
    let estimate = &mut total.estimate;
    let moved = sum.estimate - estimate.value;
    estimate.value = sum.estimate;
    estimate.spread = match estimate.spread {
        // The interval moves with the estimate.
        Spread::Sampled(low, high) => Spread::Sampled(low + moved, high + moved),
        Spread::Error(_) => Spread::Error(sum.variance.sqrt()),
        Spread::CountingOnly(_) => Spread::CountingOnly(sum.variance.sqrt()),
        // Shares are no counters.
        Spread::Calibrated(_) | Spread::None => Spread::None,
    };
    if let Some(time) = &mut total.time {
        (time.enabled, time.running) = count.time;
    }
}
