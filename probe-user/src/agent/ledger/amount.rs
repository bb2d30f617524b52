//! Amounts: what a counter counted, and what is estimated of it.

use std::{mem, time::Duration};

use serde::{Deserialize, Serialize};

use crate::derive::{Counter, Estimate, LiveTime, Spread};

/// What a counter of a session says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Amount {
    /// When it began.
    start: Duration,
    pub(super) count: Count,
    pub(super) sum: Sum,
}

/// As counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Count {
    raw: u64,
    /// Nanoseconds enabled, running.
    time: (u64, u64),
}

/// What is estimated for all of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sum {
    /// When the first of its counters began. A receiver takes another start for a counter that
    /// began again, and adds its value to the one before.
    start: Option<Duration>,
    estimate: f64,
    variance: f64,
}

impl Amount {
    pub(super) fn of(counter: &Counter) -> Self {
        let time = counter.time.unwrap_or_default();
        Self {
            start: counter.start,
            count: Count {
                raw: counter.raw,
                time: (time.enabled, time.running),
            },
            sum: Sum {
                start: Some(counter.start),
                estimate: counter.estimate.value,
                variance: counter.estimate.error().unwrap_or(0.0).powi(2),
            },
        }
    }

    /// Takes in what the counter says now. Returns what it gained: all, where it began again. A
    /// counter that steps back a little has gained nothing until it is where it was.
    pub(super) fn advance(&mut self, now: Self) -> Self {
        if self.start != now.start || self.count.began_again(&now.count) {
            *self = now;
            return now;
        }
        let before = mem::replace(self, self.most(&now));
        let (now, then) = (self.count, before.count);
        Self {
            start: self.start,
            count: Count {
                raw: now.raw - then.raw,
                time: (now.time.0 - then.time.0, now.time.1 - then.time.1),
            },
            sum: Sum {
                start: self.sum.start,
                estimate: self.sum.estimate - before.sum.estimate,
                variance: self.sum.variance - before.sum.variance,
            },
        }
    }

    /// The larger one of each value.
    fn most(&self, other: &Self) -> Self {
        let [a, b] = [self, other].map(|it| (it.count.raw, it.count.time, it.sum));
        Self {
            start: self.start,
            count: Count {
                raw: a.0.max(b.0),
                time: (a.1.0.max(b.1.0), a.1.1.max(b.1.1)),
            },
            sum: Sum {
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

impl Count {
    /// Whether a counter of this began again: it has lost half or more, or its time has.
    fn began_again(&self, now: &Self) -> bool {
        let lost = |then: u64, now: u64| now < then.div_ceil(2);
        lost(self.raw, now.raw) || lost(self.time.0, now.time.0)
    }

    pub(super) fn add(&mut self, gain: &Self) {
        self.raw = self.raw.saturating_add(gain.raw);
        self.time.0 = self.time.0.saturating_add(gain.time.0);
        self.time.1 = self.time.1.saturating_add(gain.time.1);
    }

    /// A counter of this, with this estimate.
    pub(super) fn counter(&self, sum: &Sum) -> Counter {
        let mut counter = Counter {
            start: Duration::ZERO,
            raw: 0,
            estimate: Estimate {
                spread: match sum.variance > 0.0 {
                    true => Spread::Error(0.0),
                    false => Spread::Unknown,
                },
                ..Estimate::exact(0.0)
            },
            time: (self.time.0 > 0).then(LiveTime::default),
        };
        put(self, sum, &mut counter);
        counter
    }
}

impl Sum {
    pub(super) fn add(&mut self, gain: &Self) {
        self.start = self.start.into_iter().chain(gain.start).min();
        self.estimate += gain.estimate;
        self.variance += gain.variance;
    }
}

/// Makes these the total of a counter.
pub(super) fn put(count: &Count, sum: &Sum, total: &mut Counter) {
    total.raw = count.raw;
    total.start = sum.start.unwrap_or(total.start);
    let estimate = &mut total.estimate;
    let moved = sum.estimate - estimate.value;
    estimate.value = sum.estimate;
    estimate.spread = match estimate.spread {
        // An interval keeps its distance from the estimate.
        Spread::Sampled(low, high) => Spread::Sampled(low + moved, high + moved),
        Spread::Error(_) => Spread::Error(sum.variance.sqrt()),
        Spread::CountingOnly(_) => Spread::CountingOnly(sum.variance.sqrt()),
        Spread::Unknown => Spread::Unknown,
    };
    if let Some(time) = &mut total.time {
        (time.enabled, time.running) = count.time;
    }
}
