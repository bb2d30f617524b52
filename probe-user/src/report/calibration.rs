//! Compares estimates with counts of the same events, in recordings that have both.
//!
//! Each pair is summed over the windows in which both have a value. Windows have independent
//! samples, so the squares of the half widths of their 95% intervals are added.

use serde_json::{Value, json};

use super::{Run, RunLine, text::number};
use crate::derive;

/// The event that counts the accesses that SPE samples: loads and stores (Arm ARM, D18:
/// `MEM_ACCESS` counts memory-read and memory-write operations).
const ACCESSES: &str = "mem_access";
/// The qualifiers of the estimates that are compared with [`ACCESSES`].
const ACCESS_QUALIFIERS: [&str; 2] = ["load", "store"];

/// Name prefix of sampled events.
const SAMPLED: &str = "sampled_";

/// The kernel's clock events.
const CLOCK_EVENTS: [&str; 2] = ["cpu-clock", "task-clock"];

/// Name suffix of metrics that divide a socket's traffic by the accesses that its CPUs counted.
const PER_ACCESS: &str = "_bytes_per_access";

/// Bytes of a cache line: the expected traffic of an access.
const LINE_BYTES: f64 = 64.0;

/// A metric that was both estimated and counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// The metric that is estimated.
    pub estimate: String,
    /// The metric that was counted.
    pub count: String,
    /// Unit of both.
    pub unit: String,
    /// One point for each subject.
    pub points: Vec<EstimatePoint>,
}

/// An estimate with its count.
#[derive(Clone, Debug, PartialEq)]
pub struct EstimatePoint {
    /// Index into [`Run::subjects`].
    pub subject: usize,
    /// Windows in which both the count and the estimate have a value.
    pub windows: usize,
    /// The count in these windows; for the traffic of a socket, the mean rate.
    pub count: f64,
    /// The estimate in these windows, as `count`.
    pub estimate: f64,
    /// The estimate's 95% interval, if each of its windows has one.
    pub interval: Option<(f64, f64)>,
}

impl Calibration {
    /// All metrics of a run that were both estimated and counted, for at least one subject.
    #[must_use]
    pub fn all(run: &Run) -> Vec<Self> {
        let metric_named = |name: &str| run.metrics.iter().position(|it| it.name == name);
        let mut pairs = Vec::new();
        for (at, metric) in run.metrics.iter().enumerate() {
            let calibration = |count: &str, qualifiers: &[&str]| {
                let count = metric_named(count)?;
                Some(Self {
                    estimate: metric.name.clone(),
                    count: run.metrics[count].name.clone(),
                    unit: run.metrics[count].unit.clone(),
                    points: metric_points(run, at, count, qualifiers),
                })
            };
            // Clocks are left out: a sampled clock equals the counted time.
            let event = metric.name.strip_prefix(SAMPLED);
            if let Some(event) = event.filter(|event| !CLOCK_EVENTS.contains(event)) {
                pairs.extend(calibration(event, &[""]));
            }
            if metric.name == derive::ACCESSES {
                pairs.extend(calibration(ACCESSES, &ACCESS_QUALIFIERS));
            }
            if let Some(traffic) = metric.name.strip_suffix(PER_ACCESS) {
                pairs.extend(metric_named(traffic).map(|count| Self {
                    estimate: format!("{LINE_BYTES} B x accesses of the CPUs"),
                    count: traffic.to_owned(),
                    unit: run.metrics[count].unit.clone(),
                    points: socket_points(run, at, count),
                }));
            }
        }
        pairs.retain(|it| !it.points.is_empty());
        pairs
    }

    pub(super) fn json(&self, run: &Run) -> Value {
        let points = self.points.iter().map(|point| {
            let subject = &run.subjects[point.subject];
            json!({
                "label": subject.label,
                "name": subject.name(),
                "part": subject.part,
                "windows": point.windows,
                "count": number(point.count),
                "estimate": number(point.estimate),
                "low": point.interval.map(|it| number(it.0)),
                "high": point.interval.map(|it| number(it.1)),
                "ratio": number(point.estimate / point.count),
            })
        });
        json!({
            "estimate": self.estimate,
            "count": self.count,
            "unit": self.unit,
            "points": points.collect::<Vec<_>>(),
        })
    }
}

fn lines_of(run: &Run, metric: usize) -> impl Iterator<Item = &RunLine> {
    run.lines.iter().filter(move |it| it.metric == metric)
}

/// One point for each counted subject: its count, and the sum of its estimates with one of these
/// `qualifiers`.
fn metric_points(
    run: &Run,
    estimate: usize,
    count: usize,
    qualifiers: &[&str],
) -> Vec<EstimatePoint> {
    let counted = lines_of(run, count).filter(|line| line.qualifier.is_empty());
    let points = counted.filter_map(|counted| {
        let estimates: Vec<&RunLine> = lines_of(run, estimate)
            .filter(|line| {
                line.subject == counted.subject && qualifiers.contains(&line.qualifier.as_str())
            })
            .collect();
        let mut point = EstimatePoint {
            subject: counted.subject,
            windows: 0,
            count: 0.0,
            estimate: 0.0,
            interval: Some((0.0, 0.0)),
        };
        for at in counted.windows() {
            let count = counted.value(at);
            let known = || estimates.iter().filter(|line| line.value(at).is_finite());
            if !count.is_finite() || known().next().is_none() {
                continue;
            }
            point.windows += 1;
            point.count += count;
            for line in known() {
                let value = line.value(at);
                point.estimate += value;
                let (low, high) = line.interval(at);
                // An estimate of 0 without an interval is exact: nothing ran.
                let squares = match (low.is_finite(), value == 0.0) {
                    (true, _) => Some(((value - low).powi(2), (high - value).powi(2))),
                    (false, true) => Some((0.0, 0.0)),
                    (false, false) => None,
                };
                let sum = point.interval.zip(squares);
                point.interval = sum.map(|(a, b)| (a.0 + b.0, a.1 + b.1));
            }
        }
        let middle = point.estimate;
        let ends = |it: (f64, f64)| (middle - it.0.sqrt(), middle + it.1.sqrt());
        point.interval = point.interval.map(ends);
        (point.count > 0.0).then_some(point)
    });
    points.collect()
}

/// One point for each socket: the counted traffic, and the traffic if each access were one cache
/// line.
fn socket_points(run: &Run, per_access: usize, traffic: usize) -> Vec<EstimatePoint> {
    let points = lines_of(run, per_access).filter_map(|line| {
        let socket = &run.subjects[line.subject];
        let traffic = lines_of(run, traffic).find(|it| {
            let subject = &run.subjects[it.subject];
            subject.part == socket.part && subject.label == socket.label
        })?;
        let mut point = EstimatePoint {
            subject: line.subject,
            windows: 0,
            count: 0.0,
            estimate: 0.0,
            interval: None,
        };
        let mut seconds = 0.0;
        for at in line.windows() {
            let (rate, bytes_per_access) = (traffic.value(at), line.value(at));
            if rate.is_finite() && bytes_per_access > 0.0 {
                let (start, end) = run.windows[at];
                point.windows += 1;
                seconds += end - start;
                point.count += rate * (end - start);
                point.estimate += rate * (end - start) * LINE_BYTES / bytes_per_access;
            }
        }
        // Back to rates, as in the metric.
        point.count /= seconds;
        point.estimate /= seconds;
        (point.count > 0.0).then_some(point)
    });
    points.collect()
}

#[cfg(test)]
mod tests;
