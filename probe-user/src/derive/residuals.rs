//! Distances of calibrated shares from what resctrl counted. They reveal errors that a calibration
//! cannot know, such as that of an access pattern which it lacks.
//!
//! Split conformal prediction (Vovk, Gammerman, Shafer, Algorithmic Learning in a Random World,
//! 2005): the next distance is below a quantile of the past distances as often as these were, if
//! its container is of the same kind. Containers without monitoring groups may be of another kind,
//! so distances only widen intervals.

use std::collections::{HashMap, VecDeque};

use super::{Estimate, Report, Spread, Subject, Value, monitored_row::MonitoredRow};

/// The metric of what resctrl counts.
pub(crate) const RESCTRL: &str = "resctrl_bandwidth";

/// The number of windows whose distances are kept.
const KEPT: usize = 200;

/// The distances of past windows, as parts of the shares; a list for each window, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Residuals(VecDeque<Vec<f64>>);

impl Residuals {
    /// Widens the intervals of calibrated shares that are narrower than past distances.
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

    /// Adds the distances of rows with their own monitoring groups. `of_memory`: the metrics of
    /// shares in the reads and writes of memories, whose sum resctrl counts.
    pub(super) fn learn(&mut self, report: &Report, of_memory: &[String]) {
        let mut rows: HashMap<&Subject, MonitoredRow<Option<u32>>> = HashMap::new();
        for series in &report.series {
            let name = report.metric(series).name.as_str();
            let is_share = of_memory.iter().any(|share| share == name);
            if !is_share && name != RESCTRL {
                continue;
            }
            // The same subject may have several indices.
            let row = rows.entry(&report.subjects[series.subject as usize]);
            let row = row.or_default();
            let estimate = series.estimate();
            let value = estimate.map(|it| it.value);
            if is_share {
                let place = (series.metric as usize, report.attributes(series).socket);
                row.add_share(place, value, estimate.and_then(Estimate::interval));
            } else {
                row.add_count(value);
            }
        }
        let distances = rows
            .values()
            .filter_map(|row| distance(row, of_memory.len()));
        let distances: Vec<f64> = distances.collect();
        if !distances.is_empty() {
            self.0.push_back(distances);
        }
        let excess = self.0.len().saturating_sub(KEPT);
        self.0.drain(..excess);
    }

    /// The distance that 95 of 100 distances do not exceed; the largest one if there are few; None
    /// without any.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "some thousand distances"
    )]
    fn bound(&self) -> Option<f64> {
        let mut all: Vec<f64> = self.0.iter().flatten().copied().collect();
        let rank = (0.95 * (all.len() as f64 + 1.0)).ceil() as usize;
        let at = rank.min(all.len()).checked_sub(1)?;
        let (_, bound, _) = all.select_nth_unstable_by(at, f64::total_cmp);
        Some(*bound)
    }
}

/// The distance of a row's shares from what resctrl counted, as a part of the shares. `None` unless
/// the shares and the count are known, and the shares have intervals.
fn distance(row: &MonitoredRow<Option<u32>>, metrics: usize) -> Option<f64> {
    let (share, half) = row.share(metrics)?;
    let counted = half.and(row.counted())?;
    (share > 0.0).then(|| (counted - share).abs() / share)
}

#[cfg(test)]
mod tests;
