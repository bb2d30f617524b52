//! Series: the subject of a value, its metric, and the attributes that tell it from others.

use probe_common::spe::Class;
use serde::{Deserialize, Serialize};

use super::{Counter, Estimate, Method, Reason, Value};
use crate::{catalogue::Place, join::Entity, window::Served};

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
    /// Of a counter that counted before the window too: index into
    /// [`Report::totals`](super::Report::totals).
    pub total: Option<u32>,
}

/// The subject of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Subject {
    /// A row of the view.
    Entity(Entity),
    /// The whole machine: all rows, also those that are not shown.
    Machine,
    /// A socket.
    Socket(u32),
    /// The place that a metric of a PMU is about: a socket, a device or a part of one, with the
    /// names of the PCI devices there.
    Place(Place, Vec<String>),
    /// The owner of a share: devices.
    Io,
    /// The owner of a share: none that is known.
    Unattributed,
    /// The owner of a share where there are no shares.
    Unknown,
    /// This program.
    Pmuscope,
}

/// What a value says.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name, unique among those of its kind of subject.
    pub name: String,
    /// One line.
    pub help: String,
    /// Unit of its values; empty for a number of occurrences.
    pub unit: String,
    /// What it is.
    pub kind: Kind,
    /// Of a counter: what it counts.
    pub counting: Counting,
}

impl Metric {
    /// A value of its own, such as a rate.
    pub(crate) fn gauge(
        name: impl Into<String>,
        help: impl Into<String>,
        unit: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            help: help.into(),
            unit: unit.into(),
            kind: Kind::Gauge,
            counting: Counting::All,
        }
    }
}

/// What a counter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Counting {
    /// Every occurrence; also the value of metrics that are no counters.
    #[default]
    All,
    /// An event by the user's own name, which may be any text, with what one count stands for in
    /// its unit.
    Event(f64),
    /// Samples, each of which stands for several occurrences.
    Samples,
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Occurrences: it only grows.
    Counter,
    /// A value of its own in every window.
    Gauge,
    /// How occurrences are distributed.
    Histogram,
    /// Text that does not change.
    Info,
    /// One of a few states.
    State,
}

/// What tells series of one subject and metric apart, and the method of their values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attributes {
    /// Of a share: the socket.
    pub socket: Option<u32>,
    /// Of a share: the device, with the names of its PCI devices, where that is not the whole
    /// socket.
    pub device: Option<String>,
    /// Of an event: its counter group, whose counters share their time on the PMU. Those of uncore
    /// events have the numbers after those of cores.
    pub group: Option<u32>,
    /// How the values are known.
    pub method: Method,
    /// Of a sampled access: what it did.
    pub operation: Option<Class>,
    /// Of a sampled access: where it was served; None of all places together.
    pub source: Option<Served>,
}

impl Metric {
    /// Whether it is an event by the user's own name.
    #[must_use]
    pub fn is_event(&self) -> bool {
        matches!(self.counting, Counting::Event(_))
    }
}

impl Series {
    /// What was counted in the window, where it is a counter with a value.
    #[must_use]
    pub fn counter(&self) -> Option<&Counter> {
        match &self.value {
            Ok(Value::Counter(counter)) => Some(counter),
            _ => None,
        }
    }

    /// The number of the window, where there is one.
    #[must_use]
    pub fn estimate(&self) -> Option<&Estimate> {
        self.value.as_ref().ok()?.estimate()
    }
}
