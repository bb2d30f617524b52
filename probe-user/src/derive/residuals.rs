//! How far calibrated shares were from what resctrl counted: an error that a calibration cannot
//! know, such as of a pattern that it lacks.
//!
//! By split conformal prediction (Vovk, Gammerman, Shafer, Algorithmic Learning in a Random World,
//! 2005): as often as past distances were below a quantile, so is the next one, if it is of the
//! same kind. Containers without monitors may be of another kind, so this only widens intervals.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Report, Spread, Value};

/// The metric of what resctrl counts.
pub(crate) const RESCTRL: &str = "resctrl_bandwidth";

/// Distances that are kept.
const KEPT: usize = 400;

/// The fewest distances with a quantile of 95%.
const LEAST: usize = 19;

/// The distances of past windows, as parts of the shares, the last ones last.
#[derive(Clone, Debug, Default)]
pub(super) struct Residuals(VecDeque<f64>);

impl Residuals {
    /// Widens the intervals of all calibrated shares that are narrower than past distances.
    pub(super) fn widen(&self, report: &mut Report) {
        let Some(bound) = self.bound() else {
            return;
        };
        for series in &mut report.series {
            if let Ok(Value::Gauge(share)) = &mut series.value
                && let Spread::Calibrated(error) = &mut share.spread
            {
                *error = error.at_least(bound * share.value.abs());
            }
        }
    }

    /// Learns from rows with a monitoring group of their own. `of_memory`: the metrics of shares in
    /// the reads and writes of memories, whose sum resctrl counts.
    pub(super) fn learn(&mut self, report: &Report, of_memory: &[String]) {
        let mut rows: BTreeMap<u32, Monitored> = BTreeMap::new();
        for series in &report.series {
            let name = report.metric(series).name.as_str();
            let is_share = of_memory.iter().any(|share| share == name);
            if !is_share && name != RESCTRL {
                continue;
            }
            let row = rows.entry(series.subject).or_default();
            let estimate = series.estimate();
            match (estimate, estimate.map(|it| it.spread)) {
                (Some(counted), _) if !is_share => row.counted += counted.value,
                (Some(share), Some(Spread::Calibrated(_))) => {
                    row.shares += share.value;
                    row.metrics.insert(series.metric);
                }
                _ => row.has_unknown = true,
            }
        }
        for row in rows.values() {
            self.0.extend(row.distance(of_memory.len()));
        }
        let excess = self.0.len().saturating_sub(KEPT);
        self.0.drain(..excess);
    }

    /// The distance that 95 of 100 do not exceed; `None` for too few.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "some hundred distances"
    )]
    fn bound(&self) -> Option<f64> {
        if self.0.len() < LEAST {
            return None;
        }
        let mut sorted: Vec<f64> = self.0.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let rank = (0.95 * (sorted.len() as f64 + 1.0)).ceil() as usize;
        sorted.get(rank - 1).copied()
    }
}

/// A row's shares, and what resctrl counted for it.
#[derive(Default)]
struct Monitored {
    counted: f64,
    shares: f64,
    /// The metrics that these are shares of.
    metrics: BTreeSet<u32>,
    has_unknown: bool,
}

impl Monitored {
    /// As a part of the shares; `None` unless each of these metrics has a share.
    fn distance(&self, metrics: usize) -> Option<f64> {
        let is_whole = self.metrics.len() == metrics && !self.has_unknown;
        let is_comparable = is_whole && self.counted > 0.0 && self.shares > 0.0;
        is_comparable.then(|| (self.counted - self.shares).abs() / self.shares)
    }
}

#[cfg(test)]
mod tests;
