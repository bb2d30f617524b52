//! Lines: the values of one subject and metric over the windows of a recording.

use std::ops::Range;

use crate::{
    derive::{
        Attributes, Estimate, Kind, Method, Metric, Part, Reason, Report, Subject, Value,
        served_name,
    },
    emit::label::{Called, label, short},
};

/// An interval that is not known.
const NOWHERE: (f64, f64) = (f64::NAN, f64::NAN);

/// Whom values are about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Holder {
    /// The part of the report: `row`, `socket`, `total`, `place`, `share`.
    pub part: &'static str,
    /// Kind and name, as programs read them.
    pub kind: &'static str,
    /// See `kind`.
    pub name: String,
    /// The name for people.
    pub label: String,
    /// As the runtime calls it.
    pub namespace: Option<String>,
    /// The pod's name.
    pub pod: Option<String>,
    /// The container's name.
    pub container: Option<String>,
}

impl Holder {
    pub(super) fn of(report: &Report, part: Part, subject: &Subject) -> Self {
        let (kind, name) = label(subject);
        let called = Called::of(report, subject);
        let name_of = |what: &str| {
            let mut names = called.names();
            let found = names.find(|(of, _)| *of == what);
            found.map(|(_, name)| name.to_owned())
        };
        let names: Vec<&str> = called.names().map(|(_, name)| name).collect();
        Self {
            part: part.name(),
            kind,
            label: match names.is_empty() {
                true => short(subject),
                false => names.join("/"),
            },
            name: name.into_owned(),
            namespace: name_of("namespace"),
            pod: name_of("pod"),
            container: name_of("container"),
        }
    }
}

/// What values say.
#[derive(Clone, Debug, PartialEq)]
pub struct LineMetric {
    /// Its name.
    pub name: String,
    /// One line.
    pub help: String,
    /// Unit of the values.
    pub unit: String,
    /// Whether its values are of a counter, and are shown by the second.
    pub is_counter: bool,
}

impl LineMetric {
    pub(super) fn of(metric: &Metric) -> Self {
        Self {
            name: metric.name.clone(),
            help: metric.help.clone(),
            unit: metric.unit.clone(),
            is_counter: metric.kind == Kind::Counter,
        }
    }

    /// The unit in which it is shown over time: counters by the second.
    #[must_use]
    pub fn shown_unit(&self) -> String {
        match (self.is_counter, self.unit.as_str()) {
            (false, unit) => unit.to_owned(),
            (true, "") => "1/s".to_owned(),
            (true, unit) => format!("{unit}/s"),
        }
    }
}

/// The values of one subject and metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Index into [`Profile::holders`](super::Profile::holders).
    pub holder: usize,
    /// Index into [`Profile::metrics`](super::Profile::metrics).
    pub metric: usize,
    /// What tells it from others of both: operation and source, or the socket of a share.
    pub of: String,
    /// The window of the first value. An owner that lived for one of many windows takes the memory
    /// of one.
    pub first: usize,
    /// By window from that one to its last, as a live run shows them; NaN where there is none. What
    /// is counted by time is 0 where the owner did not run.
    pub values: Vec<f64>,
    /// The 95% intervals of these values, where there are any: both ends, else NaN. May be shorter.
    pub intervals: Vec<(f64, f64)>,
    /// Why the last window without a value has none.
    pub reason: Option<String>,
}

/// What the windows of a line say together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Windows that have a value.
    pub windows: usize,
    /// Mean of the windows by their lengths; of a counter events by the second.
    pub mean: f64,
    /// The least of a window.
    pub min: f64,
    /// The most of a window.
    pub max: f64,
    /// Of a counter: what was counted in all windows.
    pub total: Option<f64>,
}

impl Line {
    pub(super) fn new(holder: usize, metric: usize, of: String, first: usize) -> Self {
        Self {
            holder,
            metric,
            of,
            first,
            values: Vec::new(),
            intervals: Vec::new(),
            reason: None,
        }
    }

    /// Adds the value of a window, which follows those that it has.
    pub(super) fn push(&mut self, window: usize, value: Result<&Value, &Reason>) {
        let estimate = match value {
            Ok(value) => match value.estimate() {
                Some(estimate) => Some(estimate),
                None => return,
            },
            Err(reason) => {
                self.reason = Some(reason.to_string());
                None
            }
        };
        let before = window.saturating_sub(self.first);
        self.values.resize(before, f64::NAN);
        self.values
            .push(estimate.map_or(f64::NAN, |estimate| estimate.value));
        if let Some(interval) = estimate.and_then(Estimate::interval) {
            self.intervals.resize(before, NOWHERE);
            self.intervals.push(interval);
        }
    }

    /// The value of a window; NaN where there is none.
    #[must_use]
    pub fn value(&self, window: usize) -> f64 {
        let at = window.checked_sub(self.first);
        let value = at.and_then(|at| self.values.get(at));
        value.copied().unwrap_or(f64::NAN)
    }

    /// The 95% interval of a window's value; NaN where there is none.
    #[must_use]
    pub fn interval(&self, window: usize) -> (f64, f64) {
        let at = window.checked_sub(self.first);
        let interval = at.and_then(|at| self.intervals.get(at));
        interval.copied().unwrap_or(NOWHERE)
    }

    /// The windows from its first value to its last one.
    #[must_use]
    pub fn windows(&self) -> Range<usize> {
        self.first..self.first + self.values.len()
    }

    /// The windows from its first value to its last one, each with the value as it is shown over
    /// time: those of counters by the second.
    pub fn shown<'a>(
        &'a self,
        metric: &LineMetric,
        windows: &'a [(f64, f64)],
    ) -> impl Iterator<Item = (usize, f64)> + use<'a> {
        let by_second = metric.is_counter;
        let values = (self.first..).zip(&self.values);
        values.map(move |(at, value)| {
            let (start, end) = windows[at];
            match by_second {
                true => (at, value / (end - start)),
                false => (at, *value),
            }
        })
    }

    /// What its windows say together; None where none has a value.
    #[must_use]
    pub fn summary(&self, metric: &LineMetric, windows: &[(f64, f64)]) -> Option<Summary> {
        let shown = self.shown(metric, windows);
        let known = shown.filter(|(_, value)| value.is_finite());
        let known: Vec<(f64, f64)> = known
            .map(|(at, value)| (value, windows[at].1 - windows[at].0))
            .collect();
        let seconds: f64 = known.iter().map(|(_, seconds)| seconds).sum();
        if known.is_empty() || seconds <= 0.0 {
            return None;
        }
        let sum: f64 = known.iter().map(|(value, seconds)| value * seconds).sum();
        let values = || known.iter().map(|(value, _)| *value);
        Some(Summary {
            windows: known.len(),
            mean: sum / seconds,
            min: values().fold(f64::INFINITY, f64::min),
            max: values().fold(f64::NEG_INFINITY, f64::max),
            total: metric.is_counter.then_some(sum),
        })
    }
}

/// What tells series of one subject and metric apart, in words.
pub(super) fn told_apart(attributes: &Attributes) -> String {
    let mut words = Vec::new();
    words.extend(attributes.operation.map(|it| it.name().to_owned()));
    words.extend(attributes.source.map(served_name));
    words.extend(attributes.socket.map(|socket| format!("socket {socket}")));
    words.extend(attributes.device.clone());
    if let Method::Apportioned(by) = &attributes.method {
        words.push(format!("by {by}"));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests;
