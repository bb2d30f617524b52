//! A whole [`Run`]: the values of each subject and metric over its windows, with findings. The
//! page, single views and comparisons are drawn from it.

mod calibration;
mod changes;
mod compare;
mod compared_text;
mod counted_twice;
mod findings;
mod idle;
mod line;
mod naming;
mod page;
mod roofline;
mod rows;
mod samples;
mod single;
mod svg;
mod text;
mod verb_json;
mod verified;
mod view;
mod waits;

use std::collections::{HashMap, HashSet};

pub use self::page::page;
pub use self::{
    calibration::Calibration,
    compare::{
        ComparedValue, Comparison, DifferenceTest, Evidence, RowError, SeriesName, Side,
        SideStatistics, SideSummary, compare,
    },
    compared_text::{
        ShownDifferences, html as comparison_html, json as comparison_json,
        table as comparison_table,
    },
    line::{LineMetric, LineSubject, LineSummary, RunLine},
    roofline::{Peaks, PeaksError},
    samples::{POINTS, Scatter},
    single::Single,
    svg::svg,
    text::{csv, json},
    verb_json::{VerbJsonError, calibrated},
    verified::{Agreement, VerifiedRow, VerifiedShares, VerifyError},
    view::Selection,
};
use crate::{
    catalogue::MemoryTraffic,
    derive::{
        Estimate, Histogram, MetricKind, Reason, Report, ReportSection, Series, Spread, Subject,
        Value, memory_shares,
    },
    formula::NoValue,
    recording::{ReadError, Replay},
    samples::Calibrated,
    sys::clock::nanos,
};

/// A whole recording in memory.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Name of its file.
    pub file: String,
    /// Metadata: keys and values.
    pub about: Vec<(String, String)>,
    /// Begin and end of each window, in seconds since the recording began.
    pub windows: Vec<(f64, f64)>,
    /// Unix time of the recording's begin, in seconds.
    pub began: f64,
    /// The subjects of lines.
    pub subjects: Vec<LineSubject>,
    /// The metrics of lines.
    pub metrics: Vec<LineMetric>,
    /// The values.
    pub lines: Vec<RunLine>,
    /// Distributions over the whole recording; of a row that ended, until then.
    pub histograms: Vec<Distribution>,
    /// Findings about the recording: label of the subject, and a sentence.
    pub findings: Vec<(String, String)>,
    /// Metrics without a value, each with the reason.
    pub missing: Vec<(String, String)>,
    /// Distinct warnings.
    pub warnings: Vec<String>,
    /// Number of rows left out: the user did not choose them, or they are beyond the limit.
    pub left_out: usize,
    /// Begin of the first window, in ns of `CLOCK_MONOTONIC`; None without windows.
    pub origin: Option<u64>,
    /// The metrics of shares in the traffic of memories, and what they are shares of.
    pub shared: Vec<(String, MemoryTraffic)>,
    /// The machine's platform, as the catalogue calls it, if known.
    pub platform: Option<String>,
    /// Samples of memory accesses, from `mem record`.
    pub samples: Option<Scatter>,
    /// The machine's peaks, from `roofline`.
    pub peaks: Option<Peaks>,
    /// Accuracy and cost of sampling, from `mem calibrate`.
    pub calibrated: Option<Calibrated>,
}

/// A histogram of a subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Index into [`Run::subjects`].
    pub subject: usize,
    /// Index into [`Run::metrics`].
    pub metric: usize,
    /// Distinguishes series of one subject and metric, such as by operation; may be empty.
    pub qualifier: String,
    /// Upper bound of each bucket; the last bucket has none.
    pub bounds: Vec<f64>,
    /// Count of each bucket, one more than `bounds`.
    pub counts: Vec<u64>,
}

/// Indices into a run while it is built.
#[derive(Default)]
struct RunIndex {
    subjects: HashMap<(ReportSection, Subject), usize>,
    metrics: HashMap<(String, String), usize>,
    /// By subject, metric, distinguishing text, and counter group.
    lines: HashMap<(usize, usize, String, Option<u32>), usize>,
    /// By subject, metric, and distinguishing text.
    histograms: HashMap<(usize, usize, String), usize>,
    /// What is shown of each line: subject, metric, and qualifier.
    shown_names: HashSet<(usize, usize, String)>,
    /// Names of metrics that are 0 for an owner that did not run.
    zero_if_not_run: HashSet<String>,
    idle: idle::IdleWindows,
    waits: waits::WaitLines,
    names: naming::RunNames,
    findings: findings::WindowFindings,
}

/// The value of an owner that did not run.
const ZERO: Value = Value::Gauge(Estimate {
    value: 0.0,
    running_ratio: 1.0,
    spread: Spread::None,
    exceeded_bound: None,
    over_threshold: false,
});

impl RunIndex {
    /// The value of a window. Counters and rates of an owner that did not run are 0, so that means
    /// over time include that window; a ratio of its counts stays unknown.
    fn value<'a>(&self, report: &Report, series: &'a Series) -> Result<&'a Value, &'a Reason> {
        let metric = report.metric(series);
        let counted =
            metric.kind == MetricKind::Counter || self.zero_if_not_run.contains(&metric.name);
        match &series.value {
            Err(Reason::NoValue(NoValue::DidNotRun)) if counted => Ok(&ZERO),
            value => value.as_ref(),
        }
    }
}

impl Run {
    /// Builds the run from a whole replay.
    ///
    /// # Errors
    ///
    /// If the replay is damaged or empty.
    pub fn read(
        file: &str,
        about: impl IntoIterator<Item = (String, String)>,
        mut replay: Replay,
    ) -> Result<Self, ReadError> {
        let mut run = Self {
            file: file.to_owned(),
            about: about.into_iter().collect(),
            platform: replay
                .plan()
                .metrics
                .machine
                .map(|it| it.platform.to_string()),
            shared: memory_shares(replay.plan()).collect(),
            ..Self::default()
        };
        let mut index = RunIndex {
            zero_if_not_run: replay.plan().time_only_metrics().collect(),
            ..RunIndex::default()
        };
        let mut last = None;
        while let Some(report) = replay.advance()? {
            run.add_window(&mut index, report);
            last = Some(report.clone());
        }
        let Some(last) = last else {
            return Err(ReadError::Empty(file.to_owned()));
        };
        run.fill_idle_windows(&index);
        run.add_missing(&last);
        run.name_subjects(&index, &last);
        run.drop_excess_rows();
        Ok(run)
    }

    /// A run of samples without a recording: it has no windows.
    #[must_use]
    pub fn from_samples(samples: Scatter) -> Self {
        Self {
            file: samples.file.clone(),
            about: samples.about.clone(),
            began: samples.began().unwrap_or_default(),
            samples: Some(samples),
            ..Self::default()
        }
    }

    /// Adds a window.
    fn add_window(&mut self, index: &mut RunIndex, report: &Report) {
        let seconds = |at: std::time::Duration| at.saturating_sub(report.began).as_secs_f64();
        if self.windows.is_empty() {
            self.origin = Some(nanos(report.began));
            self.began = (report.boot_time + report.began).as_secs_f64();
        }
        let window = self.windows.len();
        self.windows
            .push((seconds(report.start), seconds(report.end)));
        index.idle.add_window(report, window);
        for group in report.groups() {
            if matches!(
                group.section,
                ReportSection::SelfCounters | ReportSection::Missing
            ) {
                continue;
            }
            for series in group.series {
                if let Ok(Value::Histogram(histogram)) = &series.value {
                    let owner = (group.section, group.subject);
                    self.add_histogram(index, report, owner, series, histogram);
                    continue;
                }
                let Some(at) = self.line_of(index, report, group.section, group.subject, series)
                else {
                    continue;
                };
                self.lines[at].push(window, index.value(report, series));
                let (line, idle) = ((at, &self.lines[at]), &mut index.idle);
                let attributes = report.attributes(series);
                if group.section == ReportSection::Shares {
                    idle.add_share(line, attributes, &series.value, window);
                } else if attributes.operation.is_some() {
                    idle.add_accesses(line, &series.value, window);
                }
            }
        }
        self.add_waits(index, report);
        index.names.learn_findings(report);
        index.findings.add(report);
        for warning in &report.warnings {
            if !self.warnings.contains(warning) {
                self.warnings.push(warning.clone());
            }
        }
    }

    /// The index of the line of a series, which is added if it is new. None if the series has no
    /// number, or none of this window.
    fn line_of(
        &mut self,
        index: &mut RunIndex,
        report: &Report,
        part: ReportSection,
        subject: &Subject,
        series: &Series,
    ) -> Option<usize> {
        let is_no_number = matches!(series.value, Ok(Value::Info(_) | Value::State(..)));
        if is_no_number || !report.is_of_window(series) {
            return None;
        }
        let subject = self.subject_index(index, report, part, subject);
        let metric = self.metric_index(index, report, series);
        let attributes = report.attributes(series);
        let qualifier = line::distinguishing_text(attributes);
        // An event may be in several counter groups.
        let key = (subject, metric, qualifier.clone(), attributes.group);
        if let Some(at) = index.lines.get(&key) {
            return Some(*at);
        }
        let mut shown = qualifier;
        if !index.shown_names.insert((subject, metric, shown.clone()))
            && let Some(group) = attributes.group
        {
            shown = format!("{shown} group {group}").trim().to_owned();
        }
        let (at, first) = (self.lines.len(), self.windows.len() - 1);
        self.lines.push(RunLine::new(subject, metric, shown, first));
        index.lines.insert(key, at);
        Some(at)
    }

    fn subject_index(
        &mut self,
        index: &mut RunIndex,
        report: &Report,
        part: ReportSection,
        subject: &Subject,
    ) -> usize {
        index.names.learn(report, subject);
        let entry = index.subjects.entry((part, subject.clone()));
        let at = *entry.or_insert_with(|| {
            self.subjects.push(LineSubject::new(report, part, subject));
            self.subjects.len() - 1
        });
        let known = &self.subjects[at];
        let was_named = known.get("namespace").or(known.get("container")).is_some();
        // The runtime may report a container's name after its first window.
        if !was_named && subject.labels(&report.described).is_named() {
            self.subjects[at] = LineSubject::new(report, part, subject);
        }
        at
    }

    fn metric_index(&mut self, index: &mut RunIndex, report: &Report, series: &Series) -> usize {
        let metric = report.metric(series);
        let key = (metric.name.clone(), metric.unit.clone());
        *index.metrics.entry(key).or_insert_with(|| {
            self.metrics.push(LineMetric::new(report, metric));
            self.metrics.len() - 1
        })
    }

    /// Sets a distribution. It counts since the session began, so the distribution of the last
    /// window is the whole one. A row that ends keeps its last one.
    fn add_histogram(
        &mut self,
        index: &mut RunIndex,
        report: &Report,
        (part, subject): (ReportSection, &Subject),
        series: &Series,
        histogram: &Histogram,
    ) {
        let subject = self.subject_index(index, report, part, subject);
        let metric = self.metric_index(index, report, series);
        let qualifier = line::distinguishing_text(report.attributes(series));
        let key = (subject, metric, qualifier.clone());
        let at = *index.histograms.entry(key).or_insert_with(|| {
            self.histograms.push(Distribution {
                subject,
                metric,
                qualifier,
                bounds: histogram.bounds.clone(),
                counts: Vec::new(),
            });
            self.histograms.len() - 1
        });
        self.histograms[at].counts.clone_from(&histogram.counts);
    }

    /// Adds the metrics that cannot be counted, with their reasons.
    fn add_missing(&mut self, last: &Report) {
        let groups = last.groups();
        let missing = groups.filter(|group| group.section == ReportSection::Missing);
        for series in missing.flat_map(|group| group.series) {
            if let Err(reason) = &series.value {
                let name = last.metric(series).name.clone();
                self.missing.push((name, reason.to_string()));
            }
        }
    }
}

#[cfg(test)]
mod tests;
