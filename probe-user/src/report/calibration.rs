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
const CLASSES: [&str; 2] = ["load", "store"];

/// Name prefix of sampled events.
const SAMPLED: &str = "sampled_";

/// The kernel's clock events.
const WHOLE_CLOCKS: [&str; 2] = ["cpu-clock", "task-clock"];

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
    /// All pairs of a run.
    #[must_use]
    pub fn all(run: &Run) -> Vec<Self> {
        let named = |name: &str| run.metrics.iter().position(|it| it.name == name);
        let mut all = Vec::new();
        for (at, metric) in run.metrics.iter().enumerate() {
            let calibration = |count: &str, qualifiers: &[&str]| {
                let count = named(count)?;
                Some(Self {
                    estimate: metric.name.clone(),
                    count: run.metrics[count].name.clone(),
                    unit: run.metrics[count].unit.clone(),
                    points: metric_points(run, at, count, qualifiers),
                })
            };
            // A sampled clock equals the counted time.
            let event = metric.name.strip_prefix(SAMPLED);
            if let Some(event) = event.filter(|event| !WHOLE_CLOCKS.contains(event)) {
                all.extend(calibration(event, &[""]));
            }
            if metric.name == derive::ACCESSES {
                all.extend(calibration(ACCESSES, &CLASSES));
            }
            if let Some(traffic) = metric.name.strip_suffix(PER_ACCESS) {
                all.extend(named(traffic).map(|count| Self {
                    estimate: format!("{LINE_BYTES} B x accesses of the CPUs"),
                    count: traffic.to_owned(),
                    unit: run.metrics[count].unit.clone(),
                    points: socket_points(run, at, count),
                }));
            }
        }
        all.retain(|it| !it.points.is_empty());
        all
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

fn of_metric(run: &Run, metric: usize) -> impl Iterator<Item = &RunLine> {
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
    let counted = of_metric(run, count).filter(|line| line.qualifier.is_empty());
    let points = counted.filter_map(|counted| {
        let estimates: Vec<&RunLine> = of_metric(run, estimate)
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
                let sides = match (low.is_finite(), value == 0.0) {
                    (true, _) => Some(((value - low).powi(2), (high - value).powi(2))),
                    (false, true) => Some((0.0, 0.0)),
                    (false, false) => None,
                };
                let sum = point.interval.zip(sides);
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

/// Points by socket: the traffic if each access were one cache line, with the counted traffic.
fn socket_points(run: &Run, per_access: usize, traffic: usize) -> Vec<EstimatePoint> {
    let points = of_metric(run, per_access).filter_map(|bytes| {
        let socket = &run.subjects[bytes.subject];
        let traffic = of_metric(run, traffic).find(|it| {
            let subject = &run.subjects[it.subject];
            subject.part == socket.part && subject.label == socket.label
        })?;
        let mut point = EstimatePoint {
            subject: bytes.subject,
            windows: 0,
            count: 0.0,
            estimate: 0.0,
            interval: None,
        };
        let mut seconds = 0.0;
        for at in bytes.windows() {
            let (rate, bytes) = (traffic.value(at), bytes.value(at));
            if rate.is_finite() && bytes > 0.0 {
                let (start, end) = run.windows[at];
                point.windows += 1;
                seconds += end - start;
                point.count += rate * (end - start);
                point.estimate += rate * (end - start) * LINE_BYTES / bytes;
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
