//! Memory use of entities, and its peak relative to the limit.

use std::time::Duration;

use super::{
    Estimate, FindingKind, FindingSubject, MetricInfo, Report, ReportFinding, Value,
    sources::ReportedRows, tlb,
};
use crate::{
    join::{Entity, MemoryCapacities, MemoryCapacity},
    plan::Plan,
    window::Window,
};

/// The smallest peak that makes a finding, in percent of the limit.
const LEAST_PEAK: f64 = 10.0;

/// The metrics: their indices in a report, in the order of the values of a row.
pub(super) struct MemoryMetrics {
    metrics: [u32; 7],
    /// Rows with memory: the index of their subject, and their memory use.
    holders: Vec<(u32, MemoryCapacity)>,
}

impl MemoryMetrics {
    fn new(report: &mut Report) -> Self {
        let metrics = [
            (
                "memory_used",
                "B",
                "Memory that is held at the end of the window",
            ),
            ("memory_anon", "B", "Of that, what is of no file"),
            (
                "memory_file",
                "B",
                "Of that, pages of files, with shared memory",
            ),
            (
                "memory_huge_pages",
                "%",
                "Share of it that is in transparent huge pages",
            ),
            (
                "memory_peak",
                "B",
                "The most that was held at one time since the session began",
            ),
            (
                "memory_limit",
                "B",
                "The least limit of the cgroup and those above it, or all memory of the machine",
            ),
            (
                "memory_peak_of_limit",
                "%",
                "The peak as a part of the limit",
            ),
        ];
        Self {
            metrics: metrics
                .map(|(name, unit, help)| report.add_metric(MetricInfo::gauge(name, help, unit))),
            holders: Vec::new(),
        }
    }
}

impl MemoryCapacities {
    /// Adds the memory use of a row.
    fn add(&self, report: &mut Report, ids: (u32, [u32; 7]), capacity: &MemoryCapacity) {
        let (subject, metrics) = ids;
        let now = &capacity.now;
        let limit = self.limit(capacity);
        let values = [
            Some(float(now.used)),
            now.anon.map(float),
            now.file.map(float),
            now.huge.and_then(|huge| percent(huge, now.used)),
            Some(float(capacity.peak.bytes)),
            limit.map(float),
            limit.and_then(|limit| percent(capacity.peak.bytes, limit)),
        ];
        // Values that the kernel does not report for this kind of row have no series.
        for (metric, value) in metrics.into_iter().zip(values) {
            if let Some(value) = value {
                let value = Value::Gauge(Estimate::exact(value));
                report.push([subject, metric, 0], Ok(value), None);
            }
        }
    }

    /// The limit of the entity or the machine, whichever is less.
    fn limit(&self, capacity: &MemoryCapacity) -> Option<u64> {
        let machine = self
            .machine
            .and_then(|machine| machine.now.limit)
            .filter(|limit| *limit > 0);
        let of_entity = capacity.now.limit.filter(|limit| *limit > 0);
        of_entity.into_iter().chain(machine).min()
    }

    /// Findings about peaks of at least [`LEAST_PEAK`]: first of rows, the one nearest to its limit
    /// first, then of the machine. `began`: start of the session.
    fn findings(
        &self,
        mut holders: Vec<(u32, MemoryCapacity)>,
        machine: u32,
        began: Duration,
    ) -> Vec<ReportFinding> {
        let percent_of_limit =
            |capacity: &MemoryCapacity| percent(capacity.peak.bytes, self.limit(capacity)?);
        let is_reported = |capacity: &MemoryCapacity| {
            percent_of_limit(capacity).is_some_and(|percent| percent >= LEAST_PEAK)
        };
        holders.retain(|(_, capacity)| is_reported(capacity));
        holders.sort_by(|(_, a), (_, b)| {
            percent_of_limit(b)
                .partial_cmp(&percent_of_limit(a))
                .expect("no NaN")
        });
        let machine = self.machine.filter(is_reported).map(|all| (machine, all));
        holders.extend(machine);
        let sentence = |(subject, capacity): (u32, MemoryCapacity)| {
            Some(ReportFinding {
                kind: FindingKind::MemoryPeak,
                about: FindingSubject::Subject(subject),
                text: self.sentence(&capacity, began)?,
                named: None,
            })
        };
        holders.into_iter().filter_map(sentence).collect()
    }

    /// The sentence of section VI.A of the NMO paper: `peak 48.4% of the limit ..., reached 12 s
    /// in`.
    fn sentence(&self, capacity: &MemoryCapacity, began: Duration) -> Option<String> {
        let limit = self.limit(capacity)?;
        let is_own_limit = capacity.now.limit.is_some_and(|own| own == limit);
        let limit_name = if is_own_limit {
            "the limit"
        } else {
            "the machine's memory"
        };
        Some(format!(
            "peak {:.1}% of {limit_name} ({} of {}), reached {:.0} s in",
            percent(capacity.peak.bytes, limit)?,
            bytes(capacity.peak.bytes),
            bytes(limit),
            capacity.peak.at.saturating_sub(began).as_secs_f64(),
        ))
    }
}

impl ReportedRows for MemoryCapacities {
    type Metrics = MemoryMetrics;

    fn metrics(&self, report: &mut Report) -> MemoryMetrics {
        MemoryMetrics::new(report)
    }

    fn entities(&self) -> Vec<&Entity> {
        self.entities.keys().collect()
    }

    fn add_row(
        &self,
        metrics: &mut MemoryMetrics,
        report: &mut Report,
        subject: u32,
        entity: Option<&Entity>,
    ) {
        let of_entity = entity.and_then(|entity| self.entities.get(entity));
        metrics.holders.extend(of_entity.map(|it| (subject, *it)));
        let machine = self.machine.as_ref().filter(|_| entity.is_none());
        if let Some(capacity) = of_entity.or(machine) {
            self.add(report, (subject, metrics.metrics), capacity);
        }
    }

    fn add_findings(
        &self,
        metrics: MemoryMetrics,
        report: &mut Report,
        plan: &Plan,
        window: &Window,
        machine: u32,
    ) {
        let MemoryMetrics { holders, .. } = metrics;
        let hardware = plan.metrics.machine.as_ref();
        let tlb = hardware.and_then(|hardware| hardware.platform.spec().tlb.as_ref());
        let advised = tlb.zip(self.pages).map_or_else(Vec::new, |(tlb, pages)| {
            tlb::findings(tlb, pages, &holders, |row| tlb::walk_ratio(report, row))
        });
        let findings = self.findings(holders, machine, window.began);
        report.findings.extend(findings.into_iter().chain(advised));
    }
}

fn percent(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| 100.0 * float(part) / float(all))
}

/// Formats bytes in binary units, in which limits are usually set.
pub(super) fn bytes(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = float(bytes) / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", units[unit])
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bytes are shown with few digits"
)]
pub(super) fn float(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests;
