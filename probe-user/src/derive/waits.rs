//! CPU waits of entities, and the lengths of the waits. An entity waits *behind* what runs on the
//! CPU meanwhile.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use probe_common::WaitTimes;

use super::{
    Attributes, CounterValue, Estimate, FindingKind, FindingSubject, Histogram, MetricInfo,
    MetricKind, PowerBuckets, Reason, Report, ReportFinding, ReportTable, Subject, TableCell,
    Value, report::WAITS_TABLE, sources::ReportedRows, spe::sampled_estimate, statistics,
};
use crate::{
    formula::NoValue,
    join::{Entity, EntityWaits, MostWaitedFor, WaitRows, WaitedFor},
    plan::Plan,
    window::{Window, float},
};

/// The smallest part of an entity's waits that, if behind one other entity, makes a finding.
const LEAST_PART: f64 = 0.25;

/// The shortest waits of an entity that make a finding, as a part of the window.
pub(crate) const LEAST_WAIT: f64 = 0.01;

/// The smallest part of an entity's waits that tables for people show.
const LEAST_SHOWN: f64 = 0.05;

const COLUMNS: [&str; 4] = ["owner", "behind", "cpu_wait_ns", "share"];

const QUANTILES: [(f64, &str, &str); 3] = [
    (
        0.5,
        "cpu_wait_p50",
        "Median of the waits for a CPU that ended",
    ),
    (
        0.9,
        "cpu_wait_p90",
        "90th percentile of the waits for a CPU that ended",
    ),
    (
        0.99,
        "cpu_wait_p99",
        "99th percentile of the waits for a CPU that ended",
    ),
];

/// The metrics of an entity: their indices in a report.
pub(super) struct WaitMetrics {
    quantiles: [u32; QUANTILES.len()],
    histogram: u32,
    behind: u32,
    /// Subjects of the entities, for findings.
    subjects: BTreeMap<Entity, u32>,
}

impl ReportedRows for WaitRows {
    type Metrics = WaitMetrics;

    fn metrics(&self, report: &mut Report) -> WaitMetrics {
        let mut metric = |name: &str, help: &str, unit: &str, kind| {
            report.add_metric(MetricInfo {
                kind,
                ..MetricInfo::gauge(name, help, unit)
            })
        };
        WaitMetrics {
            quantiles: QUANTILES.map(|(_, name, help)| metric(name, help, "ms", MetricKind::Gauge)),
            histogram: metric(
                "cpu_wait_duration",
                "Waits for a CPU that ended, by their lengths",
                "s",
                MetricKind::Histogram,
            ),
            behind: metric(
                "cpu_wait_behind",
                "Time that its threads waited for a CPU, by what ran there meanwhile",
                "ns",
                MetricKind::Counter,
            ),
            subjects: BTreeMap::new(),
        }
    }

    fn entities(&self) -> Vec<&Entity> {
        self.entities.keys().collect()
    }

    fn add_row(
        &self,
        metrics: &mut WaitMetrics,
        report: &mut Report,
        subject: u32,
        entity: Option<&Entity>,
    ) {
        let Some((entity, row)) = entity.and_then(|it| self.entities.get_key_value(it)) else {
            return;
        };
        metrics.subjects.insert(entity.clone(), subject);
        let lengths = &row.lengths;
        for ((q, ..), metric) in QUANTILES.into_iter().zip(metrics.quantiles) {
            let value = quantile(&lengths.delta, q);
            report.push([subject, metric, 0], value, None);
        }
        let histogram = Value::Histogram(Box::new(histogram(&lengths.total, lengths.since)));
        report.push([subject, metrics.histogram, 0], Ok(histogram), None);
        add_totals(report, subject, metrics.behind, &row.most);
    }

    fn add_findings(
        &self,
        metrics: WaitMetrics,
        report: &mut Report,
        _: &Plan,
        window: &Window,
        machine: u32,
    ) {
        let unplaced = (self.unplaced > 0).then(|| {
            let text = format!(
                "{:.3} s of waits found no room in the kernel's map: they are in cpu-wait, and \
                 behind nobody in the table",
                float(self.unplaced) / 1e9
            );
            (FindingKind::UnplacedWaits, text)
        });
        let without_length = (self.unplaced_waits > 0).then(|| {
            let text = format!(
                "{} waits found no room in the kernel's map of lengths: they are in cpu-waits, and \
                 in no percentile",
                self.unplaced_waits
            );
            (FindingKind::UnplacedLengths, text)
        });
        for (kind, text) in unplaced.into_iter().chain(without_length) {
            let about = FindingSubject::Subject(machine);
            report.findings.push(ReportFinding {
                kind,
                about,
                text,
                named: None,
            });
        }
        let waits = self.entities.iter().map(|(entity, row)| Waits {
            nanos: row.behind.values().copied().fold(0, u64::saturating_add),
            entity,
            row,
        });
        let mut longest: Vec<Waits<'_>> = waits.filter(|waits| waits.nanos > 0).collect();
        longest.sort_by_key(|waits| (Reverse(waits.nanos), waits.entity));
        let least = LEAST_WAIT * window.length.as_secs_f64() * 1e9;
        let rows: Vec<(bool, Vec<TableCell>)> = longest
            .iter()
            .flat_map(|waits| waits.table_rows(least))
            .collect();
        let small = rows.iter().enumerate().filter(|(_, (small, _))| *small);
        report.tables.push(ReportTable {
            name: WAITS_TABLE,
            columns: COLUMNS.to_vec(),
            small_rows: small.map(|(at, _)| at).collect(),
            rows: rows.into_iter().map(|(_, cells)| cells).collect(),
            counts: vec![
                ("waits_unplaced_ns", self.unplaced),
                ("waits_unplaced", self.unplaced_waits),
            ],
        });
        let findings = longest
            .iter()
            .filter(|waits| float(waits.nanos) >= least && *waits.entity != Entity::System)
            .filter_map(|waits| {
                let about = FindingSubject::Subject(*metrics.subjects.get(waits.entity)?);
                waits.finding(about)
            });
        report.findings.extend(findings);
    }
}

/// A quantile of waits in milliseconds, computed like that of sampled latencies. No value if its
/// interval reaches into the last bucket, which has no end.
fn quantile(lengths: &WaitTimes, q: f64) -> Result<Value, Reason> {
    let counts = lengths.counts.map(float);
    let interval = statistics::quantile(&counts, bucket_ends, counts.iter().sum(), q);
    let bounded = interval.filter(|it| it.high.is_finite());
    bounded
        .map(|interval| Value::Gauge(sampled_estimate(interval)))
        .ok_or(Reason::NoValue(NoValue::TooFewWaits))
}

/// The ends of a bucket in milliseconds.
fn bucket_ends(bucket: usize) -> (f64, f64) {
    let end = |bucket| 1e3 * WaitTimes::end(bucket).unwrap_or(f64::INFINITY);
    (bucket.checked_sub(1).map_or(0.0, end), end(bucket))
}

/// The histogram for monitoring systems. These may have a series for each bucket, so the buckets
/// are fewer and wider: each ends at four times the end of the previous one.
fn histogram(lengths: &WaitTimes, start: Duration) -> Histogram {
    const FIRST: usize = 2;
    const LAST: usize = 24;
    let shown = || (FIRST..=LAST).step_by(2);
    let up_to = |bucket: usize| {
        let counts = lengths.counts[..=bucket].iter().copied();
        counts.fold(0, u64::saturating_add)
    };
    let ends = shown().map(up_to).chain([lengths.waits()]);
    let counts = ends.scan(0, |before, up_to| {
        Some(up_to - std::mem::replace(before, up_to))
    });
    Histogram {
        start,
        bounds: shown().filter_map(WaitTimes::end).collect(),
        counts: counts.collect(),
        sum: float(lengths.nanos) / 1e9,
        powers: Some(PowerBuckets {
            first: WaitTimes::FIRST_END,
            counts: lengths.counts.to_vec(),
        }),
    }
}

/// Adds the totals of waits, by what ran meanwhile.
fn add_totals(report: &mut Report, subject: u32, metric: u32, most: &MostWaitedFor) {
    let mut add = |behind: WaitedFor, nanos: u64, start| {
        let attributes = report.add_attributes(Attributes {
            behind: Some(behind),
            ..Attributes::default()
        });
        let total = CounterValue {
            start,
            raw: nanos,
            estimate: Estimate::exact(float(nanos)),
            time: None,
        };
        let ids = [subject, metric, attributes];
        report.push(ids, Err(Reason::NotMeasured), Some(total));
    };
    for named in &most.named {
        add(named.behind.clone(), named.total, named.since);
    }
    if most.others > 0 {
        add(WaitedFor::Entity(Entity::Others), most.others, most.since);
    }
}

/// Waits of an entity in a window.
struct Waits<'a> {
    nanos: u64,
    entity: &'a Entity,
    row: &'a EntityWaits,
}

impl Waits<'_> {
    /// Rows of the table, the longest waits first, each with a flag for small rows: the entity
    /// waited less than `least` nanoseconds in all, or this row has only a small part of that.
    fn table_rows(&self, least: f64) -> Vec<(bool, Vec<TableCell>)> {
        let mut parts: Vec<_> = self.row.behind.iter().collect();
        parts.sort_by_key(|(behind, nanos)| (Reverse(**nanos), *behind));
        let row = |(behind, nanos): (&WaitedFor, &u64)| {
            let share = float(*nanos) / float(self.nanos);
            let is_small = float(self.nanos) < least || share < LEAST_SHOWN;
            let cells = vec![
                TableCell::Owner(Subject::Entity(self.entity.clone())),
                match behind {
                    WaitedFor::Entity(entity) => TableCell::Owner(Subject::Entity(entity.clone())),
                    other => TableCell::Text(unattributed_label(other).to_owned()),
                },
                TableCell::Count(*nanos),
                TableCell::Estimate(Some(Estimate::exact(share))),
            ];
            (is_small, cells)
        };
        parts.into_iter().map(row).collect()
    }

    /// The finding about these waits. None if no quota throttled the entity, and it did not wait
    /// long behind any single other entity.
    fn finding(&self, about: FindingSubject) -> Option<ReportFinding> {
        let parts = self.row.behind.iter();
        let others = parts.filter_map(|(behind, nanos)| match behind {
            WaitedFor::Entity(Entity::Others) => None,
            WaitedFor::Entity(other) if other != self.entity => Some((other, *nanos)),
            _ => None,
        });
        let longest = others.max_by_key(|(other, nanos)| (*nanos, Reverse(*other)));
        let most = longest.map(|(other, nanos)| (Subject::Entity(other.clone()), float(nanos)));
        let throttled = self.row.throttled;
        let (text, named) = waits_sentence(float(self.nanos), throttled, most)?;
        Some(ReportFinding {
            kind: FindingKind::Waits { throttled },
            about,
            text,
            named,
        })
    }
}

/// The sentence of a finding, such as `its threads waited 1.20 s for a CPU, 83% of it for`, and the
/// subject that ends it. `most`: the entity that ran most of that time, and its nanoseconds. Names
/// no subject if a quota throttled the waiting entity; None if the part of `most` is small.
pub(crate) fn waits_sentence(
    nanos: f64,
    throttled: bool,
    most: Option<(Subject, f64)>,
) -> Option<(String, Option<Subject>)> {
    let waited = format!("its threads waited {:.2} s for a CPU", nanos / 1e9);
    if throttled {
        let text = format!("{waited}, which includes throttling by a CPU quota");
        return Some((text, None));
    }
    let (other, part) = most?;
    let share = part / nanos;
    let text = format!("{waited}, {:.0}% of it for", 100.0 * share);
    (share >= LEAST_PART).then_some((text, Some(other)))
}

/// The label of what ran, if it is not an entity; empty for an entity.
fn unattributed_label(waited_for: &WaitedFor) -> &'static str {
    match waited_for {
        WaitedFor::Entity(_) => "",
        WaitedFor::Nobody => "(nobody: the CPU was idle)",
        WaitedFor::Earlier => "(not known: too long ago)",
        WaitedFor::OtherCpu => "(not known: on another CPU)",
    }
}

#[cfg(test)]
mod tests;
