//! Profile: a whole recording at once: the values of each subject and metric over its windows, with
//! what is said of them. The page, single views and the comparison of recordings are made of it.

mod calibration;
mod compare;
mod compared_text;
mod line;
mod page;
mod roofline;
mod samples;
mod single;
mod svg;
mod text;
mod verb_json;
mod view;

use std::collections::{HashMap, HashSet};

pub use self::page::page;
pub use self::{
    calibration::Calibration,
    compare::{Compared, Comparison, Side, compare},
    compared_text::{html as comparison_html, json as comparison_json, table as comparison_table},
    line::{Holder, Line, LineMetric, Summary},
    roofline::{Peaks, PeaksError},
    samples::{POINTS, Scatter},
    single::Single,
    svg::svg,
    text::{csv, json},
    verb_json::{VerbJsonError, calibrated},
    view::Selection,
};
use crate::{
    derive::{About, Estimate, Kind, Part, Reason, Report, Series, Spread, Subject, Value},
    formula::NoValue,
    record::Calibrated,
    recording::{ReadError, Replay},
    sys::clock::nanos,
};

/// Rows of a view beyond these are left out: those with the least of the first metric.
const MOST: usize = 500;

/// A recording at once.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Its file.
    pub file: String,
    /// What is known of it: names and values.
    pub about: Vec<(String, String)>,
    /// Beginning and end of each window, in seconds since the recording began.
    pub windows: Vec<(f64, f64)>,
    /// Unix time in seconds at which it began.
    pub began: f64,
    /// Whom values are about.
    pub holders: Vec<Holder>,
    /// What they say.
    pub metrics: Vec<LineMetric>,
    /// The values.
    pub lines: Vec<Line>,
    /// Distributions since the recording began, as of its end.
    pub histograms: Vec<Distribution>,
    /// What is said of values at the end of the recording: of whom, and a sentence.
    pub findings: Vec<(String, String)>,
    /// Metrics without a value, and why.
    pub missing: Vec<(String, String)>,
    /// Warnings, each once.
    pub warnings: Vec<String>,
    /// Rows that were left out, since there are too many.
    pub left_out: usize,
    /// When the first window began, in ns of `CLOCK_MONOTONIC`; None without windows.
    pub origin: Option<u64>,
    /// The platform of the machine, as the catalogue calls it, where it is known.
    pub platform: Option<String>,
    /// Samples of accesses, of `mem record`.
    pub samples: Option<Scatter>,
    /// The peaks of the machine, of `roofline`.
    pub peaks: Option<Peaks>,
    /// The accuracy and the cost of sampling there, of `mem calibrate`.
    pub calibrated: Option<Calibrated>,
}

/// A histogram of a subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Index into [`Profile::holders`].
    pub holder: usize,
    /// Index into [`Profile::metrics`].
    pub metric: usize,
    /// What tells it from others of both, such as the operation; may be empty.
    pub of: String,
    /// The largest value of each bucket; the last has none.
    pub bounds: Vec<f64>,
    /// Occurrences by bucket, one more than bounds.
    pub counts: Vec<u64>,
}

/// Where things are in a profile that is being made.
#[derive(Default)]
struct Known {
    holders: HashMap<(Part, Subject), usize>,
    metrics: HashMap<(String, String), usize>,
    /// By holder, metric, what tells them apart, and the counter group.
    lines: HashMap<(usize, usize, String, Option<u32>), usize>,
    /// Lines by what is shown of them.
    told_apart: HashSet<(usize, usize, String)>,
    /// Metrics that are 0 for an owner that did not run.
    by_time: HashSet<String>,
}

/// Of an owner that did not run.
const NOTHING: Value = Value::Gauge(Estimate {
    value: 0.0,
    live: 1.0,
    spread: Spread::Unknown,
    above_bound: None,
});

impl Known {
    /// The value of a window. An owner that did not run has counted nothing in that time, which a
    /// mean over time must not leave out; a ratio of its counts is not known then.
    fn value<'a>(&self, report: &Report, series: &'a Series) -> Result<&'a Value, &'a Reason> {
        let metric = report.metric(series);
        let counted = metric.kind == Kind::Counter || self.by_time.contains(&metric.name);
        match &series.value {
            Err(Reason::NoValue(NoValue::DidNotRun)) if counted => Ok(&NOTHING),
            value => value.as_ref(),
        }
    }
}

impl Profile {
    /// Reads a replay to its end.
    ///
    /// # Errors
    ///
    /// Where it is damaged.
    pub fn read(
        file: &str,
        about: Vec<(String, String)>,
        mut replay: Replay,
    ) -> Result<Self, ReadError> {
        let mut profile = Self {
            file: file.to_owned(),
            about,
            platform: replay
                .plan()
                .metrics
                .machine
                .map(|it| it.platform.to_string()),
            ..Self::default()
        };
        let mut known = Known {
            by_time: replay.plan().metrics_by_time().collect(),
            ..Known::default()
        };
        let mut last = None;
        while let Some(report) = replay.advance()? {
            profile.add(&mut known, report);
            last = Some(report.clone());
        }
        let Some(last) = last else {
            return Err(ReadError::Empty(file.to_owned()));
        };
        profile.end(&known, &last);
        Ok(profile)
    }

    /// A file of samples alone: it has no windows.
    #[must_use]
    pub fn of_samples(samples: Scatter) -> Self {
        Self {
            file: samples.file.clone(),
            about: samples.about.clone(),
            began: samples.began().unwrap_or_default(),
            samples: Some(samples),
            ..Self::default()
        }
    }

    /// Adds a window.
    fn add(&mut self, known: &mut Known, report: &Report) {
        let seconds = |at: std::time::Duration| at.saturating_sub(report.began).as_secs_f64();
        if self.windows.is_empty() {
            self.origin = Some(nanos(report.began));
            self.began = (report.boot_time + report.began).as_secs_f64();
        }
        let window = self.windows.len();
        self.windows
            .push((seconds(report.start), seconds(report.end)));
        for group in report.groups() {
            if matches!(group.part, Part::Own | Part::Missing) {
                continue;
            }
            for series in group.series {
                let Some(at) = self.line_of(known, report, group.part, group.subject, series)
                else {
                    continue;
                };
                self.lines[at].push(window, known.value(report, series));
            }
        }
        for warning in &report.warnings {
            if !self.warnings.contains(warning) {
                self.warnings.push(warning.clone());
            }
        }
    }

    fn line_of(
        &mut self,
        known: &mut Known,
        report: &Report,
        part: Part,
        subject: &Subject,
        series: &Series,
    ) -> Option<usize> {
        if matches!(
            series.value,
            Ok(Value::Histogram(_) | Value::Info(_) | Value::State(..))
        ) {
            return None;
        }
        let holder = self.holder(known, report, part, subject);
        let metric = self.metric(known, report, series);
        let attributes = report.attributes(series);
        let of = line::told_apart(attributes);
        // An event may be counted in several groups.
        let key = (holder, metric, of.clone(), attributes.group);
        if let Some(at) = known.lines.get(&key) {
            return Some(*at);
        }
        let mut name = of;
        if !known.told_apart.insert((holder, metric, name.clone()))
            && let Some(group) = attributes.group
        {
            name = format!("{name} group {group}").trim().to_owned();
        }
        let (at, first) = (self.lines.len(), self.windows.len() - 1);
        self.lines.push(Line::new(holder, metric, name, first));
        known.lines.insert(key, at);
        Some(at)
    }

    fn holder(
        &mut self,
        known: &mut Known,
        report: &Report,
        part: Part,
        subject: &Subject,
    ) -> usize {
        let at = known.holders.entry((part, subject.clone()));
        let at = *at.or_insert_with(|| {
            self.holders.push(Holder::of(report, part, subject));
            self.holders.len() - 1
        });
        // A runtime may tell a container's name later than its first window.
        if self.holders[at].namespace.is_none() && self.holders[at].container.is_none() {
            self.holders[at] = Holder::of(report, part, subject);
        }
        at
    }

    fn metric(&mut self, known: &mut Known, report: &Report, series: &Series) -> usize {
        let metric = report.metric(series);
        let key = (metric.name.clone(), metric.unit.clone());
        *known.metrics.entry(key).or_insert_with(|| {
            self.metrics.push(LineMetric::of(metric));
            self.metrics.len() - 1
        })
    }

    /// What is known at its end.
    fn end(&mut self, known: &Known, last: &Report) {
        for group in last.groups() {
            for series in group.series {
                let metric = last.metric(series);
                match &series.value {
                    Ok(Value::Histogram(histogram)) => {
                        let Some(holder) = known
                            .holders
                            .get(&(group.part, group.subject.clone()))
                            .copied()
                        else {
                            continue;
                        };
                        let key = (metric.name.clone(), metric.unit.clone());
                        let at = known.metrics.get(&key).copied().unwrap_or_else(|| {
                            self.metrics.push(LineMetric::of(metric));
                            self.metrics.len() - 1
                        });
                        self.histograms.push(Distribution {
                            holder,
                            metric: at,
                            of: line::told_apart(last.attributes(series)),
                            bounds: histogram.bounds.clone(),
                            counts: histogram.counts.clone(),
                        });
                    }
                    Err(reason) if group.part == Part::Missing => {
                        let missing = (metric.name.clone(), reason.to_string());
                        self.missing.push(missing);
                    }
                    _ => {}
                }
            }
        }
        let findings = last.findings.iter().map(|finding| {
            let who = match finding.about {
                About::Socket(_) => String::new(),
                About::Subject(at) => {
                    let subject = &last.subjects[at as usize];
                    Holder::of(last, Part::Rows, subject).label
                }
            };
            (who, finding.text.clone())
        });
        self.findings = findings.collect();
        self.leave_out();
    }

    /// Leaves out rows that are too many for a page.
    fn leave_out(&mut self) {
        let mut rows: Vec<(usize, f64)> = (0..self.holders.len())
            .filter(|at| self.holders[*at].part == "row")
            .map(|at| (at, self.first_of(at)))
            .collect();
        if rows.len() <= MOST {
            return;
        }
        rows.sort_by(|a, b| b.1.total_cmp(&a.1));
        let out: HashSet<usize> = rows[MOST..].iter().map(|(at, _)| *at).collect();
        self.left_out = out.len();
        self.lines.retain(|line| !out.contains(&line.holder));
        self.histograms.retain(|it| !out.contains(&it.holder));
    }

    /// The sum of what the holder has of its first metric.
    fn first_of(&self, holder: usize) -> f64 {
        let line = self.lines.iter().find(|line| line.holder == holder);
        let values = line.into_iter().flat_map(|line| &line.values);
        values.filter(|value| !value.is_nan()).sum()
    }
}

#[cfg(test)]
mod tests;
