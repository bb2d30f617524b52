//! `max_overhead` of a running agent: gives the cost of each window to the governor, and applies
//! its decision.

use std::time::Duration;

use super::Running;
use crate::agent::overhead::{
    Decision, Governor, Ladder, Level, LevelChange, cost_meter::CostMeter, interval,
};

impl Running {
    /// Begins to measure the cost, if there is a budget. Called for a new session or budget.
    pub(super) fn start_budget(&mut self) {
        self.cost_meter = None;
        let (Some(budget), Some(pipeline)) = (self.config.max_overhead, &self.pipeline) else {
            if self.config.max_overhead.is_none() {
                self.governor = None;
            }
            return self.report_budget();
        };
        let (hardware, software) = pipeline.plan().reads();
        let full = Level {
            hardware,
            software,
            widened: 1,
            samples: pipeline.samples(),
        };
        if self.governor.is_none() {
            let ladder = Ladder::new(full, self.config.interval, !self.options.drop_all);
            self.governor = Some(Governor::new(budget, ladder));
        }
        match CostMeter::new(pipeline) {
            Ok(meter) => self.cost_meter = Some(meter),
            Err(error) => tracing::warn!("what counting takes is not known: {error}"),
        }
        self.report_budget();
    }

    /// The time between two pulls.
    pub(super) fn interval(&self) -> Duration {
        let level = self.governor.as_ref().map(Governor::level);
        level.map_or(self.config.interval, |it| {
            interval(self.config.interval, it)
        })
    }

    /// The interval, if it is not `before`.
    pub(super) fn interval_after(&self, before: Duration) -> Option<Duration> {
        let now = self.interval();
        (now != before).then_some(now)
    }

    /// Changes the level of counting if the cost of the last windows requires it.
    pub(super) fn keep_budget(&mut self) {
        let interval = self.interval();
        let (spe, count) = (&self.config.spe, &self.config.count);
        let event_budget = f64::from(u8::from(!count.sample.is_empty())) * count.sample_budget;
        let samples_budget = spe.budget + event_budget;
        let (Some(pipeline), Some(governor), Some(meter)) =
            (&self.pipeline, &mut self.governor, &mut self.cost_meter)
        else {
            return;
        };
        let cost = match meter.end_window(pipeline) {
            Ok(cost) => cost,
            Err(error) => return tracing::warn!("what counting took is not known: {error}"),
        };
        // The first window of a session may be short, and a pull is expensive relative to it. The
        // session itself reduces samples that exceed their own budget.
        let is_short = cost.seconds < interval.as_secs_f64() / 2.0;
        if is_short || cost.samples > samples_budget * cost.seconds * 1e9 {
            return;
        }
        let decision = governor.on_window(cost);
        let percent = |share: f64| share * 100.0;
        let budget = percent(governor.budget());
        match decision {
            Decision::Stay => {}
            Decision::Exceeded(share) => tracing::warn!(
                "max_overhead cannot be held: counting takes {:.3}% of a CPU, above {budget}%, \
                 with nothing left to give up",
                percent(share)
            ),
            Decision::WithinAgain(share) => tracing::info!(
                "max_overhead is held again: counting takes {:.3}% of a CPU",
                percent(share)
            ),
            Decision::Change(change) => {
                let LevelChange { from, to, .. } = change;
                tracing::info!(
                    "max_overhead: counting takes {:.3}% of a CPU, and may take {budget}%: {to} \
                     instead of {from}, which would take {:.3}%",
                    percent(change.share),
                    percent(change.predicted)
                );
                self.self_report.health.overhead_changes += 1;
                self.change_level(from, to);
            }
        }
        self.report_budget();
    }

    /// Makes the session count what the level `to` counts, if that differs from `from`.
    fn change_level(&mut self, from: Level, to: Level) {
        let counters = |level: Level| (level.hardware, level.software);
        if counters(from) != counters(to) || (to.samples && !from.samples) {
            self.pause();
            self.restart_session();
        } else if from.samples
            && !to.samples
            && let Some(pipeline) = &mut self.pipeline
        {
            pipeline.stop_sampling();
        }
    }

    /// Updates the metrics of the budget.
    fn report_budget(&mut self) {
        let health = &mut self.self_report.health;
        let governor = self.governor.as_ref();
        health.overhead_ppm = governor.and_then(Governor::share).map(ppm);
        health.overhead_budget_ppm = self.config.max_overhead.map(ppm);
        health.overhead_level = governor.map(|it| it.number() as u64);
        health.overhead_exceeded = governor.map(|it| it.is_exceeded().into());
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share is not negative, and far below what a u64 of millionths can hold"
)]
fn ppm(share: f64) -> u64 {
    (share * 1e6).round() as u64
}
