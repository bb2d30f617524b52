//! Lines: the values of one subject and metric over the windows of a recording.

use std::{collections::BTreeMap, iter::repeat_n, ops::Range};

use crate::derive::{
    Attributes, Estimate, LabelReach, MetricInfo, MetricKind, Reason, Report, ReportSection,
    Subject, Value, ValueMethod, mem_level_name,
};

/// Counters of the time that tasks ran, in nanoseconds.
const CPU_CLOCKS: [&str; 2] = ["task-clock", "cpu-clock"];
/// Counters of the time that threads waited for a CPU, in nanoseconds.
const WAIT_CLOCKS: [&str; 2] = ["cpu-wait", "cpu_wait_behind"];

/// An unknown interval.
const NO_INTERVAL: (f64, f64) = (f64::NAN, f64::NAN);

/// The subject of lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineSubject {
    /// The part of the report: `row`, `process`, `socket`, `total`, `place`, `share`.
    pub part: &'static str,
    /// Name of the subject, for people: the shortest that distinguishes it from the other subjects
    /// of the run.
    pub label: String,
    /// Labels of the subject, for programs: `kind` and `name`, and names from its runtime.
    pub labels: BTreeMap<&'static str, String>,
}

impl LineSubject {
    pub(super) fn new(report: &Report, part: ReportSection, subject: &Subject) -> Self {
        let labels = subject.labels(&report.described);
        Self {
            part: part.name(),
            label: String::new(),
            labels: labels.texts(LabelReach::Reports).collect(),
        }
    }

    /// Whether the subject is the whole machine or the rest of it, and not a row that the user
    /// asked for.
    #[must_use]
    pub fn is_rest(&self) -> bool {
        let rest = ["total", "system", "idle", "system+idle", "overflow"];
        rest.contains(&self.get("kind").unwrap_or_default())
    }

    /// Whether a share of this subject belongs to no container or other row. Such shares are always
    /// kept, since shares must add up to what was measured.
    pub(super) fn is_undivided(&self) -> bool {
        let others = ["io", "unattributed", "unknown"];
        self.is_rest() || others.contains(&self.get("kind").unwrap_or_default())
    }

    /// The value of a label, if the subject has it.
    #[must_use]
    pub fn get(&self, label: &str) -> Option<&str> {
        self.labels.get(label).map(String::as_str)
    }

    /// Name of the subject, for programs.
    #[must_use]
    pub fn name(&self) -> &str {
        self.get("name").unwrap_or_default()
    }
}

/// The metric of lines.
#[derive(Clone, Debug, PartialEq)]
pub struct LineMetric {
    /// The metric's name.
    pub name: String,
    /// The metric's help text, one line.
    pub help: String,
    /// Unit of the values.
    pub unit: String,
    /// Whether it is a counter, which is shown per second.
    pub is_counter: bool,
    /// Whether tables show other metrics in its place ([`Report::is_replaced_by_rates`]).
    pub replaced_by_rates: bool,
}

impl LineMetric {
    pub(super) fn new(report: &Report, metric: &MetricInfo) -> Self {
        Self {
            name: metric.name.clone(),
            help: metric.help.clone(),
            unit: metric.unit.clone(),
            is_counter: metric.kind == MetricKind::Counter,
            replaced_by_rates: report.is_replaced_by_rates(metric),
        }
    }

    /// Unit of the metric's values over time: per second for counters; CPUs or threads for clocks.
    #[must_use]
    pub fn shown_unit(&self) -> String {
        match (self.is_counter, self.unit.as_str()) {
            (false, unit) => unit.to_owned(),
            (true, "") => "1/s".to_owned(),
            (true, "ns") if CPU_CLOCKS.contains(&&*self.name) => "CPU".to_owned(),
            (true, "ns") if WAIT_CLOCKS.contains(&&*self.name) => "thread".to_owned(),
            (true, "ns") => "s/s".to_owned(),
            (true, unit) => format!("{unit}/s"),
        }
    }

    /// Factor that turns the value of a window of this length into the value shown over time.
    #[must_use]
    pub fn shown_factor(&self, seconds: f64) -> f64 {
        match (self.is_counter, self.unit.as_str()) {
            (false, _) => 1.0,
            (true, "ns") => 1e-9 / seconds,
            (true, _) => 1.0 / seconds,
        }
    }
}

/// The values of one subject and metric.
#[derive(Clone, Debug, PartialEq)]
pub struct RunLine {
    /// Index into [`Run::subjects`](super::Run::subjects).
    pub subject: usize,
    /// Index into [`Run::metrics`](super::Run::metrics).
    pub metric: usize,
    /// Distinguishes lines of one subject and metric: operation and source, or the socket of a
    /// share.
    pub qualifier: String,
    /// Index of the first window with a value. Earlier windows take no memory.
    pub first: usize,
    /// Values by window, from `first` to the last window with one, counters not per second; NaN
    /// without a value. Counters, rates and shares are 0 while the owner did not run.
    pub values: Vec<f64>,
    /// 95% intervals of these values, NaN without one. May be shorter than `values`.
    pub intervals: Vec<(f64, f64)>,
    /// Reason of the last window without a value.
    pub reason: Option<String>,
}

/// Summary of a line's windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineSummary {
    /// Number of windows with a value.
    pub windows: usize,
    /// Mean, weighted by window length; events per second for counters.
    pub mean: f64,
    /// Minimum of the windows, without a partial one at the end.
    pub min: f64,
    /// Maximum of the windows, without a partial one at the end.
    pub max: f64,
    /// For counters, the total of all windows.
    pub total: Option<f64>,
}

impl RunLine {
    pub(super) fn new(subject: usize, metric: usize, qualifier: String, first: usize) -> Self {
        Self {
            subject,
            metric,
            qualifier,
            first,
            values: Vec::new(),
            intervals: Vec::new(),
            reason: None,
        }
    }

    /// Adds the value of a window later than the last one.
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
            self.intervals.resize(before, NO_INTERVAL);
            self.intervals.push(interval);
        }
    }

    /// Sets the value to 0 in those of these windows that have none. The earliest window comes
    /// first.
    pub(super) fn fill(&mut self, windows: impl Iterator<Item = usize>) {
        for window in windows {
            if window < self.first {
                let before = self.first - window;
                self.values.splice(0..0, repeat_n(f64::NAN, before));
                if !self.intervals.is_empty() {
                    self.intervals.splice(0..0, repeat_n(NO_INTERVAL, before));
                }
                self.first = window;
            }
            let at = window - self.first;
            if at >= self.values.len() {
                self.values.resize(at + 1, f64::NAN);
            }
            if self.values[at].is_nan() {
                self.values[at] = 0.0;
            }
        }
    }

    /// The value of a window; NaN without one.
    #[must_use]
    pub fn value(&self, window: usize) -> f64 {
        let at = window.checked_sub(self.first);
        let value = at.and_then(|at| self.values.get(at));
        value.copied().unwrap_or(f64::NAN)
    }

    /// The 95% interval of a window's value; NaN without one.
    #[must_use]
    pub fn interval(&self, window: usize) -> (f64, f64) {
        let at = window.checked_sub(self.first);
        let interval = at.and_then(|at| self.intervals.get(at));
        interval.copied().unwrap_or(NO_INTERVAL)
    }

    /// Indices of the windows from its first value to its last one.
    #[must_use]
    pub fn windows(&self) -> Range<usize> {
        self.first..self.first + self.values.len()
    }

    /// The windows from its first value to its last one, each with the value shown over time: per
    /// second for counters.
    pub fn shown<'a>(
        &'a self,
        metric: &'a LineMetric,
        windows: &'a [(f64, f64)],
    ) -> impl Iterator<Item = (usize, f64)> + use<'a> {
        let values = (self.first..).zip(&self.values);
        values.map(move |(at, value)| {
            let (start, end) = windows[at];
            (at, value * metric.shown_factor(end - start))
        })
    }

    /// [`Self::shown`] for plots: NaN in a partial window at the end, whose rate may be a false
    /// peak.
    pub(super) fn drawn<'a>(
        &'a self,
        metric: &'a LineMetric,
        windows: &'a [(f64, f64)],
    ) -> impl Iterator<Item = (usize, f64)> + use<'a> {
        let shown = self.shown(metric, windows);
        shown.map(|(at, value)| match is_partial(windows, at) {
            true => (at, f64::NAN),
            false => (at, value),
        })
    }

    /// Summary of its windows; None without values.
    #[must_use]
    pub fn summary(&self, metric: &LineMetric, windows: &[(f64, f64)]) -> Option<LineSummary> {
        let shown = self.shown(metric, windows);
        let known: Vec<(usize, f64, f64)> = shown
            .filter(|(_, value)| value.is_finite())
            .map(|(at, value)| (at, value, windows[at].1 - windows[at].0))
            .collect();
        let seconds: f64 = known.iter().map(|(_, _, seconds)| seconds).sum();
        if known.is_empty() || seconds <= 0.0 {
            return None;
        }
        // A line may have a value only in the partial window.
        let whole = match known.as_slice() {
            [whole @ .., (last, ..)] if !whole.is_empty() && is_partial(windows, *last) => whole,
            all => all,
        };
        let values = || whole.iter().map(|(_, value, _)| *value);
        let value_of = |(at, ..): &(usize, f64, f64)| self.value(*at);
        Some(LineSummary {
            windows: known.len(),
            mean: known
                .iter()
                .map(|(_, value, seconds)| value * seconds)
                .sum::<f64>()
                / seconds,
            min: values().fold(f64::INFINITY, f64::min),
            max: values().fold(f64::NEG_INFINITY, f64::max),
            total: metric.is_counter.then(|| known.iter().map(value_of).sum()),
        })
    }
}

/// Whether a window is the last one, cut short by the end of the run.
pub(super) fn is_partial(windows: &[(f64, f64)], at: usize) -> bool {
    let length = |at: usize| windows[at].1 - windows[at].0;
    at > 0 && at + 1 == windows.len() && length(at) < 0.5 * length(at - 1)
}

/// The text that distinguishes series of one subject and metric.
pub(super) fn distinguishing_text(attributes: &Attributes) -> String {
    let mut words = Vec::new();
    words.extend(attributes.operation.map(|it| it.name().to_owned()));
    words.extend(attributes.source.map(mem_level_name));
    words.extend(attributes.socket.map(|socket| format!("socket {socket}")));
    words.extend(attributes.device.clone());
    if let ValueMethod::Apportioned(by) = &attributes.method {
        words.push(format!("by {by}"));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests;
