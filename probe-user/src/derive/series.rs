//! Series: a value with its subject, metric and attributes.

use std::sync::Arc;

use probe_common::spe::Class;
use serde::{Deserialize, Serialize};

use super::{CounterValue, Estimate, Reason, Value, ValueMethod};
use crate::{
    catalogue::MetricPlace,
    join::{Entity, WaitedFor},
    window::MemLevel,
};

/// A value of a metric for a subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Index into [`Report::subjects`](super::Report::subjects).
    pub subject: u32,
    /// Index into [`Report::metrics`](super::Report::metrics).
    pub metric: u32,
    /// Index into [`Report::attributes`](super::Report::attributes).
    pub attributes: u32,
    /// The value, or why there is none.
    pub value: Result<Value, Reason>,
    /// The total of a counter, including earlier windows: index into
    /// [`Report::totals`](super::Report::totals).
    pub total: Option<u32>,
}

/// The subject of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Subject {
    /// A row of the view.
    Entity(Entity),
    /// The whole machine: all rows, including hidden rows.
    Machine,
    /// A socket.
    Socket(u32),
    /// What an uncore metric measures: a socket, a device or a part of a device, with the names of
    /// its PCI devices.
    Place(MetricPlace, Vec<String>),
    /// Owner of a share: devices.
    Io,
    /// Owner of a share: unattributed traffic.
    Unattributed,
    /// Owner of a share: unknown, since no shares could be computed.
    Unknown,
    /// This program.
    Pmuscope,
}

/// The description of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricInfo {
    /// Its name, unique among the metrics of one kind of subject.
    pub name: String,
    /// Help text of one line.
    pub help: String,
    /// Unit of its values; empty for a number of occurrences.
    pub unit: String,
    /// Type of the metric.
    pub kind: MetricKind,
    /// What a counter counts.
    pub counting: CounterSource,
}

impl MetricInfo {
    /// A gauge, such as a rate.
    pub(crate) fn gauge(
        name: impl Into<String>,
        help: impl Into<String>,
        unit: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            help: help.into(),
            unit: unit.into(),
            kind: MetricKind::Gauge,
            counting: CounterSource::All,
        }
    }
}

/// What a counter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum CounterSource {
    /// Every occurrence; also the value for metrics other than counters.
    #[default]
    All,
    /// An event, whose name may be the user's. The factor converts its raw count to its unit.
    Event(f64),
    /// Samples. Each represents several occurrences.
    Samples,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A number of occurrences, which only grows.
    Counter,
    /// An independent value in each window.
    Gauge,
    /// A distribution of occurrences.
    Histogram,
    /// Constant text.
    Info,
    /// One of a few states.
    State,
}

/// What distinguishes series of one subject and metric, and how their values were obtained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attributes {
    /// Socket of a share.
    pub socket: Option<u32>,
    /// Device of a share, with the names of its PCI devices; None for a whole socket.
    pub device: Option<String>,
    /// Counter group of an event; its counters share their time on the PMU. Groups of uncore events
    /// are numbered after those of cores.
    pub group: Option<u32>,
    /// How the values were obtained.
    pub method: ValueMethod,
    /// The sampler of an access: `arm_spe`, or the names of the events.
    pub sampler: Option<Arc<str>>,
    /// Operation of a sampled access.
    pub operation: Option<Class>,
    /// Memory level that served a sampled access; None for all levels together.
    pub source: Option<MemLevel>,
    /// What ran while the subject waited for a CPU.
    pub behind: Option<WaitedFor>,
}

impl MetricInfo {
    /// Whether it is the count of an event, whose name may be the user's.
    #[must_use]
    pub fn is_event(&self) -> bool {
        matches!(self.counting, CounterSource::Event(_))
    }
}

impl Series {
    /// The count in the window, if the metric is a counter with a value.
    #[must_use]
    pub fn counter(&self) -> Option<&CounterValue> {
        match &self.value {
            Ok(Value::Counter(counter)) => Some(counter),
            _ => None,
        }
    }

    /// The value in the window as a number with its error, if known.
    #[must_use]
    pub fn estimate(&self) -> Option<&Estimate> {
        self.value.as_ref().ok()?.estimate()
    }
}
