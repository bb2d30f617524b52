//! Report: the one model of everything that is shown of a window. Every output format is a function
//! of it.

use std::{fmt, time::Duration};

use probe_common::spe::Class;

use super::{Advice, Finding};
use crate::{
    catalogue::Place,
    formula::NoValue,
    join::{
        Entity,
        share::{Method, NoShare},
    },
    window::Served,
};

/// Everything that is shown of a window. All times are of the kernel's `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// When the session began: where every total starts.
    pub began: Duration,
    /// When the window began.
    pub start: Duration,
    /// When the window ended.
    pub end: Duration,
    /// Whom series are about.
    pub subjects: Vec<Subject>,
    /// What series say.
    pub metrics: Vec<Metric>,
    /// What tells series of one subject and metric apart. The first has nothing.
    pub attributes: Vec<Attributes>,
    /// The values: those of one subject together, subjects in the order in which they are shown.
    pub series: Vec<Series>,
    /// Lists that are no series: too many, and new ones in every window.
    pub tables: Vec<Table>,
    /// What the values say in words.
    pub findings: Vec<Finding>,
    /// What to try where they are not as one would wish.
    pub advice: &'static [Advice],
}

/// Whom a value is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A row of the view.
    Entity(Entity),
    /// The whole machine: all rows, also those that are not shown.
    Machine,
    /// A socket.
    Socket(u32),
    /// What a PMU counts, where a metric says that: a socket, a device or a part of one, with the
    /// names of the PCI devices there.
    Place(Place, Vec<String>),
    /// Of a share: devices.
    Io,
    /// Of a share: nobody that can be told.
    Unattributed,
    /// Of a share: nothing is known.
    Unknown,
    /// This program.
    Pmuscope,
}

/// What a value says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name, unique among those of its kind of subject.
    pub name: String,
    /// One line.
    pub help: String,
    /// Unit of its values; empty for a number of occurrences.
    pub unit: String,
    /// What it is.
    pub kind: Kind,
    /// An event by the user's own name, which may be any text.
    pub event: bool,
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

/// What tells series of one subject and metric apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Of a share: the socket.
    pub socket: Option<u32>,
    /// Of a share: the device, with the names of its PCI devices, where that is not the whole
    /// socket.
    pub device: Option<String>,
    /// Of a share: how it is known.
    pub method: Option<Method>,
    /// Of a sampled access: what it did.
    pub operation: Option<Class>,
    /// Of a sampled access: where it was served; None of all places together.
    pub source: Option<Served>,
}

/// A value of a metric for a subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Index into [`Report::subjects`].
    pub subject: u32,
    /// Index into [`Report::metrics`].
    pub metric: u32,
    /// Index into [`Report::attributes`].
    pub attributes: u32,
    /// The value, or why there is none.
    pub value: Result<Value, Reason>,
    /// Of a counter: the estimate since the session began, where there is one.
    pub total: Option<f64>,
}

/// The value of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of the window.
    Gauge(Estimate),
    /// What was counted in the window.
    Counter(Counter),
    /// Since the session began.
    Histogram(Box<Histogram>),
    /// Names and texts.
    Info(Vec<(&'static str, String)>),
    /// The state, and all that there are.
    State(&'static str, &'static [&'static str]),
}

/// A number, and how far it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// In the metric's unit.
    pub value: f64,
    /// The smallest share of time for which one of its events was on the PMU: 1 where nothing was
    /// scaled.
    pub live: f64,
    /// The ends of its 95% interval, where it is an estimate from samples.
    pub interval: Option<(f64, f64)>,
    /// Standard error of the value, as far as it is an estimate of what counters would have counted
    /// while they were not live; None where it is not known.
    pub error: Option<f64>,
}

/// What was counted in a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counter {
    /// As counted: events, or samples.
    pub raw: u64,
    /// Estimate for the whole time, where the counter was not always on the PMU: the sum of what is
    /// estimated for each owner on each CPU; times the event's own scale. Of samples what they
    /// stand for.
    pub estimate: Estimate,
}

/// How occurrences are distributed.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
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
    /// Its counts say nothing.
    NoValue(NoValue),
    /// Nobody can be told.
    NoShare(NoShare),
    /// It could not be planned on this machine.
    NotPlanned(String),
    /// Nothing of the kind was measured.
    NotMeasured,
}

/// A list with columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// What its rows are.
    pub name: &'static str,
    /// Names of the columns.
    pub columns: Vec<&'static str>,
    /// A cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell of a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell {
    /// A number that was counted, or an identifier.
    Number(u64),
    /// An address in memory.
    Address(u64),
    /// A value; None where it could not be had.
    Estimate(Option<Estimate>),
}

/// Which part of a report a series belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Rows of the view.
    Rows,
    /// Events of sockets.
    Sockets,
    /// The whole machine.
    Total,
    /// Metrics that cannot be counted here.
    Missing,
    /// Metrics of sockets and devices.
    Places,
    /// Whose those are.
    Shares,
    /// This program's account of itself.
    Own,
}

/// Series of one subject that stand together.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The part of the report.
    pub part: Part,
    /// Whom they are about.
    pub subject: &'a Subject,
    /// One at least.
    pub series: &'a [Series],
}

impl Estimate {
    /// A value that is none but of what was measured.
    #[must_use]
    pub fn exact(value: f64) -> Self {
        Self {
            value,
            live: 1.0,
            interval: None,
            error: None,
        }
    }

    /// [`Self::error`] as a part of the value; None where it is not known, or of nothing.
    #[must_use]
    pub fn rel_error(&self) -> Option<f64> {
        let error = self.error?;
        (self.value != 0.0).then(|| error / self.value.abs())
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

impl From<NoValue> for Reason {
    fn from(reason: NoValue) -> Self {
        Self::NoValue(reason)
    }
}

impl Series {
    /// What was counted, where it is a counter with a value.
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

impl Report {
    /// One without series.
    pub(super) fn empty(began: Duration, start: Duration, length: Duration) -> Self {
        Self {
            began,
            start,
            end: start + length,
            attributes: vec![Attributes::default()],
            ..Self::default()
        }
    }

    /// Length of the window.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.end.saturating_sub(self.start)
    }

    /// Time since the session began, at the window's end.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.end.saturating_sub(self.began)
    }

    /// What a series says.
    #[must_use]
    pub fn metric(&self, series: &Series) -> &Metric {
        &self.metrics[series.metric as usize]
    }

    /// What tells a series apart.
    #[must_use]
    pub fn attributes(&self, series: &Series) -> &Attributes {
        &self.attributes[series.attributes as usize]
    }

    /// The series, those of one subject together, in their order.
    pub fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        let together =
            |a: &Series, b: &Series| a.subject == b.subject && self.part(a) == self.part(b);
        self.series.chunk_by(together).map(|series| Group {
            part: self.part(&series[0]),
            subject: &self.subjects[series[0].subject as usize],
            series,
        })
    }

    /// The series of a metric about a subject.
    pub fn of<'a>(
        &'a self,
        subject: &'a Subject,
        metric: &'a str,
    ) -> impl Iterator<Item = &'a Series> {
        self.series.iter().filter(move |series| {
            self.subjects[series.subject as usize] == *subject && self.metric(series).name == metric
        })
    }

    fn part(&self, series: &Series) -> Part {
        match &self.subjects[series.subject as usize] {
            Subject::Io | Subject::Unattributed | Subject::Unknown => Part::Shares,
            Subject::Entity(_) if self.attributes(series).socket.is_some() => Part::Shares,
            Subject::Entity(_) => Part::Rows,
            Subject::Socket(_) => Part::Sockets,
            Subject::Machine if matches!(series.value, Err(Reason::NotPlanned(_))) => Part::Missing,
            Subject::Machine => Part::Total,
            Subject::Place(..) => Part::Places,
            Subject::Pmuscope => Part::Own,
        }
    }

    /// Adds a subject: its index.
    pub(crate) fn subject(&mut self, subject: Subject) -> u32 {
        self.subjects.push(subject);
        index(self.subjects.len() - 1)
    }

    /// Adds a metric, once: its index.
    pub(crate) fn add_metric(&mut self, metric: Metric) -> u32 {
        let known = self.metrics.iter().position(|known| *known == metric);
        index(known.unwrap_or_else(|| {
            self.metrics.push(metric);
            self.metrics.len() - 1
        }))
    }

    /// Adds attributes, once: their index.
    pub(crate) fn add_attributes(&mut self, attributes: Attributes) -> u32 {
        let mut all = self.attributes.iter();
        let known = all.position(|known| *known == attributes);
        index(known.unwrap_or_else(|| {
            self.attributes.push(attributes);
            self.attributes.len() - 1
        }))
    }

    /// Adds a series.
    pub(crate) fn push(
        &mut self,
        [subject, metric, attributes]: [u32; 3],
        value: Result<Value, Reason>,
        total: Option<f64>,
    ) {
        self.series.push(Series {
            subject,
            metric,
            attributes,
            value,
            total,
        });
    }
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("fewer than 2^32 subjects and metrics")
}
