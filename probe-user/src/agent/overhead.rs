//! The [`Governor`] of `max_overhead`: keeps the cost of counting within a budget.
//!
//! It is pure: its input is the cost of each window ([`WindowCost`]), its output the level of the
//! [`Ladder`] for the next windows. Each level gives up more: first events, then short windows,
//! then samples. The cost of another level is predicted from measured parts: charges per second
//! times the time of a charge at that level, and pulls. For levels that ran before, the measured
//! times of a charge and a pull are used, since the model of these times is not exact.
//!
//! It does not flap. It steps down if the mean of a few windows exceeds the budget. It steps up by
//! one level after many windows in a row in which that level would have fitted with a margin. Each
//! step up that had to be reverted raises the number of these windows.

pub(super) mod cost_meter;
mod ladder;

use std::{collections::VecDeque, time::Duration};

pub(super) use self::ladder::{Ladder, Level};

/// The number of windows in a mean. A single window may be a burst.
const RECENT: usize = 6;

/// A step down goes to the first level whose predicted cost is within this part of the budget.
const STEP_DOWN_TARGET: f64 = 0.9;

/// A step up needs a predicted cost within this part of the budget.
const STEP_UP_LIMIT: f64 = 0.8;

/// Consecutive windows in which a step up must have fitted: initially, and at most.
const CALM: (u64, u64) = (30, 720);

/// A step up that is reverted within this many windows was too early: the next step up to that
/// level needs [`BACKOFF`] times as many calm windows. A step up that lasts [`BACKOFF`] times as
/// long cancels one such increase.
const EARLY: u64 = 360;

/// The factor by which a step up that was too early raises the number of calm windows.
const BACKOFF: u64 = 4;

/// The part by which the measured cost of a level decays to the model with each window at another
/// level: machines change over hours.
const DECAY: f64 = 0.002;

/// The cost of counting in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct WindowCost {
    /// Length of the window in seconds.
    pub(super) seconds: f64,
    /// Number of charged slices on the CPU where the programs took most time.
    pub(super) charges: f64,
    /// Mean nanoseconds of a charge, including the reads of counters.
    pub(super) charge: f64,
    /// Nanoseconds to read one hardware counter, and one software counter.
    pub(super) reads: (f64, f64),
    /// Nanoseconds of the programs' runs on that CPU that charged nothing.
    pub(super) uncharged: f64,
    /// Nanoseconds of the programs for samples on that CPU.
    pub(super) samples: f64,
    /// Nanoseconds of the agent's CPU time for the pull and everything after it.
    pub(super) pull: f64,
    /// Nanoseconds of the agent's CPU time outside of the pull and what follows it.
    pub(super) other: f64,
}

impl WindowCost {
    /// The whole cost, as a share of a CPU's time.
    fn share(&self) -> f64 {
        let nanos =
            self.charges * self.charge + self.uncharged + self.samples + self.pull + self.other;
        nanos / (self.seconds * 1e9)
    }

    /// The sum of windows, and their number. `charge` is the mean over all charges, `reads` that of
    /// the last window.
    fn sum<'a>(windows: impl Iterator<Item = &'a Self>) -> (Self, f64) {
        let (mut sum, mut count, mut charging) = (Self::default(), 0.0, 0.0);
        for window in windows {
            count += 1.0;
            charging += window.charges * window.charge;
            sum = Self {
                seconds: sum.seconds + window.seconds,
                charges: sum.charges + window.charges,
                charge: window.charge,
                reads: window.reads,
                uncharged: sum.uncharged + window.uncharged,
                samples: sum.samples + window.samples,
                pull: sum.pull + window.pull,
                other: sum.other + window.other,
            };
        }
        if sum.charges > 0.0 {
            sum.charge = charging / sum.charges;
        }
        (sum, count)
    }
}

/// The measured or predicted cost of a level.
#[derive(Clone, Copy, Debug)]
struct LevelCost {
    /// Nanoseconds of a charge.
    charge: f64,
    /// Nanoseconds of a pull.
    pull: f64,
    /// Share of a CPU that samples took.
    samples: f64,
}

/// A change of level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LevelChange {
    pub(super) from: Level,
    pub(super) to: Level,
    /// The share of a CPU that the old level took.
    pub(super) share: f64,
    /// The predicted share of the new level.
    pub(super) predicted: f64,
}

/// The result of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Decision {
    /// The level stays.
    Stay,
    /// The level changes.
    Change(LevelChange),
    /// Even the lowest level exceeds the budget now, with this share.
    Exceeded(f64),
    /// The lowest level is within the budget again, with this share.
    WithinAgain(f64),
}

/// Keeps counting within a budget.
#[derive(Debug)]
pub(super) struct Governor {
    /// The budget, as a share of a CPU.
    budget: f64,
    ladder: Ladder,
    /// Index of the current level in the ladder.
    level: usize,
    /// The last windows at this level.
    recent: VecDeque<WindowCost>,
    /// By level: its last measured cost, which decays to the model; None if it never ran.
    costs: Vec<Option<LevelCost>>,
    /// Consecutive windows in which a step up would have fitted.
    calm: u64,
    /// By level: the number of calm windows that a step up to it needs.
    calm_needed: Vec<u64>,
    /// By level: windows since the step up to it, until that proved right or was reverted.
    since_raised: Vec<Option<u64>>,
    /// Whether even the lowest level exceeds the budget.
    exceeded: bool,
}

impl Governor {
    /// Begins at the level that counts everything.
    pub(super) fn new(budget: f64, ladder: Ladder) -> Self {
        Self {
            budget,
            level: 0,
            recent: VecDeque::new(),
            costs: vec![None; ladder.len()],
            calm_needed: vec![CALM.0; ladder.len()],
            since_raised: vec![None; ladder.len()],
            ladder,
            calm: 0,
            exceeded: false,
        }
    }

    pub(super) fn level(&self) -> Level {
        self.ladder[self.level]
    }

    /// Whether the level counts fewer events or takes no samples. Longer windows do not matter.
    pub(super) fn is_reduced(&self) -> bool {
        let (now, full) = (self.level(), self.ladder[0]);
        let widened = full.widened;
        Level { widened, ..now } != full
    }

    /// The number of the level; 0 gives up nothing.
    pub(super) fn number(&self) -> usize {
        self.level
    }

    /// The budget, as a share of a CPU.
    pub(super) fn budget(&self) -> f64 {
        self.budget
    }

    /// Whether even the lowest level exceeds the budget.
    pub(super) fn is_exceeded(&self) -> bool {
        self.exceeded
    }

    /// The share of a CPU that the last windows at this level took; None before the first.
    pub(super) fn share(&self) -> Option<f64> {
        let (all, count) = WindowCost::sum(self.recent.iter());
        (count > 0.0).then(|| all.share())
    }

    /// Takes the cost of a window at the current level, and decides on the level of the next
    /// window.
    pub(super) fn on_window(&mut self, cost: WindowCost) -> Decision {
        if cost.seconds <= 0.0 {
            return Decision::Stay;
        }
        self.recent.push_back(cost);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        self.remember();
        self.require_less_calm();
        if self.recent.len() < RECENT {
            return Decision::Stay;
        }
        let (windows, count) = WindowCost::sum(self.recent.iter());
        let share = windows.share();
        let last = self.ladder.len() - 1;
        if share > self.budget {
            self.calm = 0;
            if self.level == last {
                let was_exceeded = std::mem::replace(&mut self.exceeded, true);
                return if was_exceeded {
                    Decision::Stay
                } else {
                    Decision::Exceeded(share)
                };
            }
            let predicted = |level: usize| self.predicted(&windows, count, level);
            let fits = |level: &usize| predicted(*level) <= self.budget * STEP_DOWN_TARGET;
            let to = (self.level + 1..=last).find(fits).unwrap_or(last);
            let predicted = predicted(to);
            self.require_more_calm(to);
            return self.change(to, share, predicted);
        }
        if self.exceeded && share <= self.budget * STEP_UP_LIMIT {
            self.exceeded = false;
            return Decision::WithinAgain(share);
        }
        let Some(up) = self.level.checked_sub(1) else {
            return Decision::Stay;
        };
        let predicted = self.predicted(&windows, count, up);
        self.calm = match predicted <= self.budget * STEP_UP_LIMIT {
            true => self.calm + 1,
            false => 0,
        };
        if self.calm < self.calm_needed[up] {
            return Decision::Stay;
        }
        self.since_raised[up] = Some(0);
        self.change(up, share, predicted)
    }

    fn change(&mut self, to: usize, share: f64, predicted: f64) -> Decision {
        let from = self.level();
        self.level = to;
        self.recent.clear();
        self.calm = 0;
        self.exceeded = false;
        Decision::Change(LevelChange {
            from,
            to: self.level(),
            share,
            predicted,
        })
    }

    /// On a step down to `to`: the levels above `to`, from the current one on, need more calm
    /// windows for the next step up to them, if the last one was too early.
    fn require_more_calm(&mut self, to: usize) {
        for level in self.level..to {
            if self.since_raised[level]
                .take()
                .is_some_and(|windows| windows <= EARLY)
            {
                self.calm_needed[level] = (self.calm_needed[level] * BACKOFF).min(CALM.1);
            }
        }
    }

    /// Counts the windows since each step up. If a step up to a level lasted, the next one to that
    /// level needs fewer calm windows.
    fn require_less_calm(&mut self) {
        for (since, needed) in self.since_raised.iter_mut().zip(&mut self.calm_needed) {
            *since = since.map(|windows| windows + 1);
            if since.is_some_and(|windows| windows > EARLY * BACKOFF) {
                *needed = (*needed / BACKOFF).max(CALM.0);
                *since = None;
            }
        }
    }

    /// Remembers the cost of this level, and lets the costs of other levels decay to the model.
    fn remember(&mut self) {
        let (windows, count) = WindowCost::sum(self.recent.iter());
        let here = LevelCost {
            charge: windows.charge,
            pull: windows.pull / count,
            samples: windows.samples / (windows.seconds * 1e9),
        };
        let level = self.level();
        for (at, took) in self.costs.iter_mut().enumerate() {
            if at == self.level {
                *took = Some(here);
            } else if let Some(took) = took {
                let model = modelled(&windows, here, level, self.ladder[at]);
                took.charge += (model.charge - took.charge) * DECAY;
                took.pull += (model.pull - took.pull) * DECAY;
                took.samples += (model.samples - took.samples) * DECAY;
            }
        }
    }

    /// The share of a CPU that the level with index `at` would have taken in `windows`, the sum of
    /// `count` windows.
    fn predicted(&self, windows: &WindowCost, count: f64, at: usize) -> f64 {
        let here = LevelCost {
            charge: windows.charge,
            pull: windows.pull / count,
            samples: windows.samples / (windows.seconds * 1e9),
        };
        let (now, level) = (self.level(), self.ladder[at]);
        let mut took = self.costs[at].unwrap_or_else(|| modelled(windows, here, now, level));
        if level.samples && !now.samples && self.costs[at].is_none() {
            // Samples cost as much as at the nearest level that ran with them.
            let sampled = self.costs[..self.level].iter().rev().flatten();
            took.samples = sampled.map(|it| it.samples).next().unwrap_or(0.0);
        }
        let pulls = count * f64::from(now.widened) / f64::from(level.widened);
        let nanos =
            windows.charges * took.charge + windows.uncharged + windows.other + pulls * took.pull;
        nanos / (windows.seconds * 1e9) + took.samples
    }
}

/// The modelled cost of `level`, by the cost `here` of the level `now`: a charge reads the counters
/// of `level`, and a pull costs the same.
fn modelled(windows: &WindowCost, here: LevelCost, now: Level, level: Level) -> LevelCost {
    let count = |counters: usize| f64::from(u32::try_from(counters).unwrap_or(u32::MAX));
    let reads = |level: Level| {
        count(level.hardware) * windows.reads.0 + count(level.software) * windows.reads.1
    };
    LevelCost {
        charge: (here.charge - reads(now) + reads(level)).max(reads(level)),
        pull: here.pull,
        samples: match level.samples {
            true => here.samples,
            false => 0.0,
        },
    }
}

/// The time between two pulls at a level.
pub(super) fn interval(config: Duration, level: Level) -> Duration {
    config * level.widened
}

#[cfg(test)]
mod tests;
