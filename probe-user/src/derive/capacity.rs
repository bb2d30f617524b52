//! What entities hold in memory, and how near their limits that came.

use std::time::Duration;

use super::{About, Estimate, Finding, Metric, Report, Value};
use crate::join::{Capacities, Capacity};

/// Of how many containers or processes a sentence is said: of those nearest to their limits.
const SAID: usize = 3;

/// The metrics: their indices in a report.
pub(super) struct Columns<'a> {
    all: &'a Capacities,
    /// As [`Self::add_row`] fills them.
    metrics: [u32; 7],
}

impl<'a> Columns<'a> {
    pub(super) fn new(report: &mut Report, all: &'a Capacities) -> Self {
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
            all,
            metrics: metrics
                .map(|(name, unit, help)| report.add_metric(Metric::gauge(name, help, unit))),
        }
    }

    /// Adds what an entity holds; nothing where that is not known.
    pub(super) fn add_row(&self, report: &mut Report, subject: u32, of: Option<&Capacity>) {
        let Some(capacity) = of else {
            return;
        };
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
        // What the kernel does not tell of this kind of holder has no series.
        for (metric, value) in self.metrics.into_iter().zip(values) {
            if let Some(value) = value {
                let value = Value::Gauge(Estimate::exact(value));
                report.push([subject, metric, 0], Ok(value), None);
            }
        }
    }

    /// That of the machine holds for whom no other does.
    fn limit(&self, of: &Capacity) -> Option<u64> {
        let machine = self.all.machine.and_then(|machine| machine.now.limit);
        let machine = machine.filter(|limit| *limit > 0);
        let own = of.now.limit.filter(|limit| *limit > 0);
        own.into_iter().chain(machine).min()
    }

    /// What is to be said of those who came nearest to their limits, and of the machine.
    pub(super) fn findings(
        &self,
        mut holders: Vec<(u32, &'a Capacity)>,
        machine: u32,
        began: Duration,
    ) -> Vec<Finding> {
        let part = |of: &Capacity| percent(of.peak.bytes, self.limit(of)?);
        holders.retain(|(_, capacity)| part(capacity).is_some());
        holders.sort_by(|(_, a), (_, b)| part(b).partial_cmp(&part(a)).expect("no NaN"));
        holders.truncate(SAID);
        holders.extend(self.all.machine.as_ref().map(|all| (machine, all)));
        let sentence = |(subject, capacity): (u32, &Capacity)| {
            Some(Finding {
                about: About::Subject(subject),
                text: self.sentence(capacity, began)?,
            })
        };
        holders.into_iter().filter_map(sentence).collect()
    }

    /// As of section VI.A of the NMO paper: `peak 48.4% of the limit ..., reached 12 s in`.
    fn sentence(&self, of: &Capacity, began: Duration) -> Option<String> {
        let limit = self.limit(of)?;
        let own = of.now.limit.is_some_and(|own| own == limit);
        let whose = if own {
            "the limit"
        } else {
            "the machine's memory"
        };
        Some(format!(
            "peak {:.1}% of {whose} ({} of {}), reached {:.0} s in",
            percent(of.peak.bytes, limit)?,
            bytes(of.peak.bytes),
            bytes(limit),
            of.peak.at.saturating_sub(began).as_secs_f64(),
        ))
    }
}

fn percent(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| 100.0 * float(part) / float(all))
}

/// In binary units, as limits are set in them.
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
