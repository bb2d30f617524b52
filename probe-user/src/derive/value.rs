//! Values of series: numbers, with their error and method.

use libm::hypot;
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};

use super::statistics::Z;
use crate::{formula::NoValue, join::share, window::LiveTime};

/// The value of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of the window.
    Gauge(Estimate),
    /// What was counted in the window; [`Report::total`](super::Report::total) has what was counted
    /// before it too.
    Counter(Counter),
    /// Since the session began.
    Histogram(Box<Histogram>),
    /// Names and texts.
    Info(Vec<(&'static str, String)>),
    /// The state, and all that there are.
    State(&'static str, &'static [&'static str]),
}

/// A number with its error. Its method is an attribute of its series
/// ([`Attributes::method`](super::Attributes::method)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// In the metric's unit.
    pub value: f64,
    /// The smallest share of time for which one of its events was on the PMU: 1 where nothing was
    /// scaled.
    pub live: f64,
    /// How far it may be off.
    pub spread: Spread,
    /// The largest value that it could have if its events counted the same things, where it is
    /// above that: it is shown as it is, and so is this.
    pub above_bound: Option<f64>,
}

/// How far a value may be off, in its unit. It is one of these, so that a share whose weights are
/// not validated cannot have an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Spread {
    /// Not known.
    #[default]
    Unknown,
    /// The ends of the 95% interval of an estimate from samples.
    Sampled(f64, f64),
    /// Standard error of an estimate of what counters would have counted while they were not live.
    /// An interval can be made of it.
    Error(f64),
    /// Standard error of a share as far as counting makes it. How well the weights stand for the
    /// traffic is not in it and may be most of the error, so no interval can be made of it.
    CountingOnly(f64),
}

/// How a value is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Method {
    /// Counted; where the counters took turns, for a part of the time ([`Estimate::live`]).
    #[default]
    Counted,
    /// Estimated from samples.
    Sampled,
    /// A share of what was counted for several: by these weights.
    Apportioned(share::Method),
}

/// What was counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counter {
    /// `CLOCK_MONOTONIC` when it began: with the window, or of a total with its first window.
    pub start: Duration,
    /// As counted: events, or samples.
    pub raw: u64,
    /// Estimate for the whole time, where the counter was not always on the PMU: the sum of what is
    /// estimated for each owner on each CPU; times the event's own scale. Of samples what they
    /// stand for.
    pub estimate: Estimate,
    /// The time in which it was counted; None for what no PMU counts.
    pub time: Option<LiveTime>,
}

/// How occurrences are distributed.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// `CLOCK_MONOTONIC` when it began.
    pub start: Duration,
    /// The largest value of each bucket; the last bucket has none.
    pub bounds: Vec<f64>,
    /// Occurrences by bucket, one more than bounds.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: f64,
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Its counts give no value.
    NoValue(NoValue),
    /// The owner of a share is not known.
    NoShare(share::NoShare),
    /// It could not be planned on this machine.
    NotPlanned(String),
    /// Nothing of the kind was measured.
    NotMeasured,
}

impl Estimate {
    /// An exact value.
    #[must_use]
    pub fn exact(value: f64) -> Self {
        Self {
            value,
            live: 1.0,
            spread: Spread::Unknown,
            above_bound: None,
        }
    }

    /// The standard error, as far as it is known: of a share as far as counting makes it.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        match self.spread {
            Spread::Error(error) | Spread::CountingOnly(error) => Some(error),
            Spread::Unknown | Spread::Sampled(..) => None,
        }
    }

    /// The ends of the 95% interval of an estimate from samples.
    #[must_use]
    pub fn sampled_interval(&self) -> Option<(f64, f64)> {
        match self.spread {
            Spread::Sampled(low, high) => Some((low, high)),
            Spread::Unknown | Spread::Error(_) | Spread::CountingOnly(_) => None,
        }
    }

    /// The ends of the 95% interval of an estimate from samples or by a standard error. None where
    /// the value is exact, or nothing states all of its error.
    #[must_use]
    pub fn interval(&self) -> Option<(f64, f64)> {
        match self.spread {
            Spread::Sampled(low, high) => Some((low, high)),
            Spread::Error(error) if error > 0.0 => {
                Some((self.value - Z * error, self.value + Z * error))
            }
            Spread::Unknown | Spread::Error(_) | Spread::CountingOnly(_) => None,
        }
    }

    /// [`Self::error()`] as a part of the value; None where it is not known, or of nothing.
    #[must_use]
    pub fn counting_error(&self) -> Option<f64> {
        let error = self.error()?;
        (self.value != 0.0).then(|| error / self.value.abs())
    }
}

impl Spread {
    /// That of the sum of two values whose errors are independent. That of a sum with a part of
    /// which it is not known is not known.
    #[must_use]
    pub fn of_sum(self, other: Self) -> Self {
        match (self, other) {
            (Self::Error(a), Self::Error(b)) => Self::Error(hypot(a, b)),
            (Self::Error(a) | Self::CountingOnly(a), Self::Error(b) | Self::CountingOnly(b)) => {
                Self::CountingOnly(hypot(a, b))
            }
            _ => Self::Unknown,
        }
    }
}

impl Value {
    /// The number of the window, where it is one.
    #[must_use]
    pub fn estimate(&self) -> Option<&Estimate> {
        match self {
            Self::Gauge(estimate) => Some(estimate),
            Self::Counter(counter) => Some(&counter.estimate),
            Self::Histogram(_) | Self::Info(_) | Self::State(..) => None,
        }
    }
}

impl Method {
    /// Whether it is a share of what was counted for several.
    #[must_use]
    pub fn is_share(&self) -> bool {
        matches!(self, Self::Apportioned(_))
    }

    /// What the weight of a share counts besides the traffic.
    #[must_use]
    pub fn but(&self) -> Option<&str> {
        match self {
            Self::Apportioned(by) => by.but(),
            Self::Counted | Self::Sampled => None,
        }
    }

    /// Whether it is a share whose weights no known load was compared with on this machine, so that
    /// nothing says how well they stand for the traffic.
    #[must_use]
    pub fn is_not_validated(&self) -> bool {
        matches!(self, Self::Apportioned(by) if by.needs_validation())
    }
}

/// As the label `method` carries it.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counted => f.write_str("counted"),
            Self::Sampled => f.write_str("sampled"),
            Self::Apportioned(by) => by.fmt(f),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoValue(reason) => reason.fmt(f),
            Self::NoShare(reason) => reason.fmt(f),
            Self::NotPlanned(reason) => reason.fmt(f),
            Self::NotMeasured => f.write_str("it was not measured"),
        }
    }
}

impl Reason {
    /// The reason in a word, without its numbers and names: one of a few, for labels.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::NoValue(reason) => reason.word(),
            Self::NoShare(reason) => reason.word(),
            Self::NotPlanned(_) => "not_planned",
            Self::NotMeasured => "not_measured",
        }
    }
}

impl From<NoValue> for Reason {
    fn from(reason: NoValue) -> Self {
        Self::NoValue(reason)
    }
}
