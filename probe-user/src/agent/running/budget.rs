//! The budget of a running agent: what a window took is told to the governor, and what that decides
//! is done.

use std::time::Duration;

use super::Running;
use crate::agent::overhead::{Change, Governor, Ladder, Level, Verdict, interval, measure::Mark};

impl Running {
    /// Measures from here on, and keeps to the budget, where there is one. To be called where a
    /// session or the budget is a new one.
    pub(super) fn govern(&mut self) {
        self.mark = None;
        let (Some(budget), Some(pipeline)) = (self.config.max_overhead, &self.pipeline) else {
            if self.config.max_overhead.is_none() {
                self.governor = None;
            }
            return self.tell_budget();
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
        match Mark::new(pipeline) {
            Ok(mark) => self.mark = Some(mark),
            Err(error) => tracing::warn!("what counting takes is not known: {error}"),
        }
        self.tell_budget();
    }

    /// The time between two pulls.
    pub(super) fn interval(&self) -> Duration {
        let level = self.governor.as_ref().map(Governor::level);
        level.map_or(self.config.interval, |it| {
            interval(self.config.interval, it)
        })
    }

    /// The interval, where it is another one than before.
    pub(super) fn interval_after(&self, before: Duration) -> Option<Duration> {
        let now = self.interval();
        (now != before).then_some(now)
    }

    /// Goes to another level where the last windows ask for it.
    pub(super) fn keep_budget(&mut self) {
        let interval = self.interval();
        let (spe, count) = (&self.config.spe, &self.config.count);
        let events = f64::from(u8::from(!count.sample.is_empty())) * count.sample_budget;
        let samples_budget = spe.budget + events;
        let (Some(pipeline), Some(governor), Some(mark)) =
            (&self.pipeline, &mut self.governor, &mut self.mark)
        else {
            return;
        };
        let spent = match mark.window(pipeline) {
            Ok(spent) => spent,
            Err(error) => return tracing::warn!("what counting took is not known: {error}"),
        };
        // The first window of a session may be a short one: a pull is dear for it. Samples above
        // their own budget become fewer by themselves.
        let is_short = spent.seconds < interval.as_secs_f64() / 2.0;
        if is_short || spent.samples > samples_budget * spent.seconds * 1e9 {
            return;
        }
        let verdict = governor.window(spent);
        let percent = |share: f64| share * 100.0;
        let budget = percent(governor.budget());
        match verdict {
            Verdict::Stay => {}
            Verdict::Exceeded(share) => tracing::warn!(
                "max_overhead cannot be held: counting takes {:.3}% of a CPU, above {budget}%, \
                 with nothing left to give up",
                percent(share)
            ),
            Verdict::Held(share) => tracing::info!(
                "max_overhead is held again: counting takes {:.3}% of a CPU",
                percent(share)
            ),
            Verdict::Change(change) => {
                let Change { from, to, .. } = change;
                tracing::info!(
                    "max_overhead: counting takes {:.3}% of a CPU, and may take {budget}%: {to} \
                     instead of {from}, which would take {:.3}%",
                    percent(change.share),
                    percent(change.predicted)
                );
                self.own.health.overhead_changes += 1;
                self.count_at(from, to);
            }
        }
        self.tell_budget();
    }

    /// Counts at another level.
    fn count_at(&mut self, from: Level, to: Level) {
        let counters = |level: Level| (level.hardware, level.software);
        if counters(from) != counters(to) || (to.samples && !from.samples) {
            self.pause();
            self.begin_again();
        } else if from.samples
            && !to.samples
            && let Some(pipeline) = &mut self.pipeline
        {
            pipeline.stop_sampling();
        }
    }

    /// Tells the account what there is to show.
    fn tell_budget(&mut self) {
        let health = &mut self.own.health;
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
    reason = "a share is not negative; as a float it cannot be beyond what is shown"
)]
fn ppm(share: f64) -> u64 {
    (share * 1e6).round() as u64
}
