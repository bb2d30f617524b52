//! Values of series: numbers with their error and method.

use libm::hypot;
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};

use super::statistics::Z;
use crate::{
    calibration::PartError,
    formula::NoValue,
    join::share::{self, Validation},
    window::RunningTime,
};

/// The value of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number of the window.
    Gauge(Estimate),
    /// Occurrences in the window. [`Report::total`](super::Report::total) includes those before it.
    Counter(CounterValue),
    /// A distribution since the session began.
    Histogram(Box<Histogram>),
    /// Texts by name.
    Info(Vec<(&'static str, String)>),
    /// The current state and all possible states.
    State(&'static str, &'static [&'static str]),
}

/// A number with its error. Its method is an attribute of the series
/// ([`Attributes::method`](super::Attributes::method)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// In the unit of the metric.
    pub value: f64,
    /// The smallest running ratio (`time_running / time_enabled`) of its events: 1 if nothing was
    /// scaled.
    pub running_ratio: f64,
    /// The error.
    pub spread: Spread,
    /// The metric's upper bound, if `value` exceeds it: the metric's events then do not count the
    /// same kind of occurrence, or not at the same time. Outputs show both numbers.
    pub exceeded_bound: Option<f64>,
    /// Whether the metric's definition has a threshold that the value has passed.
    pub over_threshold: bool,
}

/// The error of a value, in the unit of the value. A share by weights without a calibration is
/// [`Self::CountingOnly`] or [`Self::None`], so it never has an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Spread {
    /// No error is given: the value is exact, or its error is unknown.
    #[default]
    None,
    /// The 95% interval of an estimate from samples.
    Sampled(f64, f64),
    /// Standard error of an estimate for multiplexed counters. An interval follows from it.
    Error(f64),
    /// The part of a share's standard error that comes from counting. No interval follows from it:
    /// it excludes the error of the weights, which may dominate.
    CountingOnly(f64),
    /// The error that a calibration gives for a share, as parts by cause. All parts together make a
    /// 95% interval.
    Calibrated(PartError),
}

/// How a value was obtained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ValueMethod {
    /// Counted; if multiplexed, for a part of the time ([`Estimate::running_ratio`]).
    #[default]
    Counted,
    /// Estimated from samples.
    Sampled,
    /// A share of a common count, which this method splits among its owners.
    Apportioned(share::Method),
}

/// A count with its estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CounterValue {
    /// `CLOCK_MONOTONIC` at which its counting began: the start of the window; for a total, the
    /// start of its first window.
    pub start: Duration,
    /// The raw count of events or samples.
    pub raw: u64,
    /// Estimate for the whole time if the counter was multiplexed: the sum of the estimates of each
    /// owner on each CPU, times the scale of the event. For samples: the number of events that they
    /// represent.
    pub estimate: Estimate,
    /// Enabled and running time; None for software sources.
    pub time: Option<RunningTime>,
}

/// A distribution of occurrences.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// `CLOCK_MONOTONIC` at its start.
    pub start: Duration,
    /// The upper bound of each bucket but the last, which has none.
    pub bounds: Vec<f64>,
    /// Occurrences by bucket. There is one more bucket than `bounds`.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: f64,
    /// The same occurrences by powers of two, if they are counted in such buckets.
    pub powers: Option<PowerBuckets>,
}

/// Occurrences by powers of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerBuckets {
    /// The first bucket ends at two to this power, and has all smaller values.
    pub first: i32,
    /// Occurrences by bucket. Each further bucket ends at twice the end of the previous one; the
    /// last has all larger values.
    pub counts: Vec<u64>,
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// No value follows from the counts.
    NoValue(NoValue),
    /// No share could be computed.
    NoShare(share::NoShare),
    /// The metric could not be planned on this machine.
    NotPlanned(String),
    /// Nothing was measured.
    NotMeasured,
}

impl Estimate {
    /// An exact value.
    #[must_use]
    pub fn exact(value: f64) -> Self {
        Self {
            value,
            running_ratio: 1.0,
            spread: Spread::None,
            exceeded_bound: None,
            over_threshold: false,
        }
    }

    /// The standard error, if known; for a share only the part that comes from counting.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        match self.spread {
            Spread::Error(error) | Spread::CountingOnly(error) => Some(error),
            Spread::None | Spread::Sampled(..) | Spread::Calibrated(_) => None,
        }
    }

    /// The 95% interval of an estimate from samples or a calibration.
    #[must_use]
    pub fn estimated_interval(&self) -> Option<(f64, f64)> {
        match self.spread {
            Spread::Sampled(low, high) => Some((low, high)),
            // A share is not below 0.
            Spread::Calibrated(error) => Some((
                (self.value - error.all()).max(0.0),
                self.value + error.all(),
            )),
            Spread::None | Spread::Error(_) | Spread::CountingOnly(_) => None,
        }
    }

    /// The 95% interval, including one that follows from a standard error. None if the value is
    /// exact, or if its total error is unknown (also where the counting part is known).
    #[must_use]
    pub fn interval(&self) -> Option<(f64, f64)> {
        match self.spread {
            Spread::Sampled(..) | Spread::Calibrated(_) => self.estimated_interval(),
            Spread::Error(error) if error > 0.0 => {
                Some((self.value - Z * error, self.value + Z * error))
            }
            Spread::None | Spread::Error(_) | Spread::CountingOnly(_) => None,
        }
    }

    /// [`Self::error()`] relative to the value. None if the error is unknown or the value is 0.
    #[must_use]
    pub fn counting_error(&self) -> Option<f64> {
        let error = self.error()?;
        (self.value != 0.0).then(|| error / self.value.abs())
    }
}

impl Spread {
    /// The error of the sum of two values with independent errors. It is unknown unless both values
    /// have a standard error. If one of these comes from counting only, so does the sum's.
    #[must_use]
    pub fn combine(self, other: Self) -> Self {
        match (self, other) {
            (Self::Error(a), Self::Error(b)) => Self::Error(hypot(a, b)),
            (Self::Error(a) | Self::CountingOnly(a), Self::Error(b) | Self::CountingOnly(b)) => {
                Self::CountingOnly(hypot(a, b))
            }
            _ => Self::None,
        }
    }
}

impl Value {
    /// The number in the window, if the value is a number.
    #[must_use]
    pub fn estimate(&self) -> Option<&Estimate> {
        match self {
            Self::Gauge(estimate) => Some(estimate),
            Self::Counter(counter) => Some(&counter.estimate),
            Self::Histogram(_) | Self::Info(_) | Self::State(..) => None,
        }
    }
}

impl ValueMethod {
    /// Whether the value is a share of a common count.
    #[must_use]
    pub fn is_share(&self) -> bool {
        matches!(self, Self::Apportioned(_))
    }

    /// What the weight of a share counts in addition to the shared traffic, if anything.
    #[must_use]
    pub fn counts_also(&self) -> Option<&str> {
        match self {
            Self::Apportioned(by) => by.counts_also(),
            Self::Counted | Self::Sampled => None,
        }
    }

    /// What validates the weights of a share; `None` for other values and for shares without
    /// weights.
    #[must_use]
    pub fn validation(&self) -> Option<Validation> {
        match self {
            Self::Apportioned(by) => by.validation(),
            Self::Counted | Self::Sampled => None,
        }
    }
}

/// The text of the label `method`.
impl fmt::Display for ValueMethod {
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
    /// The reason as one of a few words, without numbers and names, for labels.
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
