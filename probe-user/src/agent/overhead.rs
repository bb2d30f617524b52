//! Overhead: how much may be counted within `max_overhead`.
//!
//! Pure: it is told what counting took in each window ([`Spent`]), and says at which level of its
//! ladder the next windows are counted. Each level gives up more: first events, then short
//! windows, then samples. What another level would take is predicted from measured parts: switches
//! per second times what a charge takes there, and pulls. A level that ran is remembered by what a
//! charge and a pull really took, since a model of these is not exact.
//!
//! It does not flap: it goes down where the mean of a few windows is above the budget, and up by
//! one step where that would have fitted, with room left, in each of many windows. Each step up
//! that had to be taken back raises the number of these windows.

mod ladder;
pub(super) mod measure;

use std::{collections::VecDeque, time::Duration};

pub(super) use self::ladder::{Ladder, Level};

/// Windows whose mean counts. One alone may be a burst.
const RECENT: usize = 6;

/// The part of the budget that a level must be predicted to keep to go down to it.
const DOWN_TO: f64 = 0.9;

/// The same of a step up.
const UP_TO: f64 = 0.8;

/// Windows in a row in which a step up must have fitted, at first and at most.
const CALM: (u64, u64) = (30, 720);

/// A step up that is taken back within so many windows was too early: the next one to that level
/// needs `RARER` times as many calm windows. One that holds four times as long makes up for one.
const EARLY: u64 = 360;
const RARER: u64 = 4;

/// The part by which what is remembered of a level comes nearer to the model with each window at
/// another one: machines change in hours.
const FORGET: f64 = 0.002;

/// What was taken in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spent {
    /// Its seconds.
    pub(super) seconds: f64,
    /// Slices that were charged on the CPU where the programs took most.
    pub(super) charges: f64,
    /// Nanoseconds of a charge, with reading the counters.
    pub(super) charge: f64,
    /// Nanoseconds to read one counter of hardware, and one of the kernel's own.
    pub(super) reads: (f64, f64),
    /// Nanoseconds of the runs on that CPU that charged nothing.
    pub(super) rest: f64,
    /// Nanoseconds of samples on the CPU where they took most.
    pub(super) samples: f64,
    /// Nanoseconds of the agent's CPU time for the pull and all that follows it.
    pub(super) pull: f64,
    /// The rest of its CPU time.
    pub(super) other: f64,
}

impl Spent {
    /// The sum, as a share of a CPU's time.
    fn share(&self) -> f64 {
        let nanos = self.charges * self.charge + self.rest + self.samples + self.pull + self.other;
        nanos / (self.seconds * 1e9)
    }

    /// Windows together, and how many they are: what one charge takes is a mean, all else a sum.
    fn together<'a>(windows: impl Iterator<Item = &'a Self>) -> (Self, f64) {
        let (mut sum, mut count, mut charging) = (Self::default(), 0.0, 0.0);
        for window in windows {
            count += 1.0;
            charging += window.charges * window.charge;
            sum = Self {
                seconds: sum.seconds + window.seconds,
                charges: sum.charges + window.charges,
                charge: window.charge,
                reads: window.reads,
                rest: sum.rest + window.rest,
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

/// What is remembered of a level.
#[derive(Clone, Copy, Debug)]
struct Took {
    /// Nanoseconds of a charge.
    charge: f64,
    /// Nanoseconds of a pull.
    pull: f64,
    /// Share of a CPU that samples took.
    samples: f64,
}

/// A change of level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    pub(super) from: Level,
    pub(super) to: Level,
    /// Share of a CPU that was taken.
    pub(super) share: f64,
    /// What the new level is predicted to take.
    pub(super) predicted: f64,
}

/// What a window says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// All stays as it is.
    Stay,
    /// Another level from here on.
    Change(Change),
    /// Even the lowest level is above the budget now, with this share.
    Exceeded(f64),
    /// It is within the budget again.
    Held(f64),
}

/// Keeps counting within a budget.
#[derive(Debug)]
pub(super) struct Governor {
    /// Share of a CPU.
    budget: f64,
    ladder: Ladder,
    level: usize,
    /// The last windows at this level.
    recent: VecDeque<Spent>,
    took: Vec<Option<Took>>,
    /// Windows in a row in which a step up would have fitted.
    calm: u64,
    /// By level: how many there must be for a step up to it.
    wanted: Vec<u64>,
    /// By level: windows since the step up to it, until that held or was taken back.
    raised: Vec<Option<u64>>,
    exceeded: bool,
}

impl Governor {
    /// Begins with everything.
    pub(super) fn new(budget: f64, ladder: Ladder) -> Self {
        Self {
            budget,
            level: 0,
            recent: VecDeque::new(),
            took: vec![None; ladder.len()],
            wanted: vec![CALM.0; ladder.len()],
            raised: vec![None; ladder.len()],
            ladder,
            calm: 0,
            exceeded: false,
        }
    }

    pub(super) fn level(&self) -> Level {
        self.ladder[self.level]
    }

    /// Whether this level counts or samples less than everything.
    pub(super) fn lacks(&self) -> bool {
        let (now, full) = (self.level(), self.ladder[0]);
        let widened = full.widened;
        Level { widened, ..now } != full
    }

    /// The number of the level: 0 gives up nothing.
    pub(super) fn number(&self) -> usize {
        self.level
    }

    /// Share of a CPU.
    pub(super) fn budget(&self) -> f64 {
        self.budget
    }

    /// Whether even the lowest level takes more than the budget.
    pub(super) fn is_exceeded(&self) -> bool {
        self.exceeded
    }

    /// Share of a CPU that the last windows at this level took; None where there was none.
    pub(super) fn share(&self) -> Option<f64> {
        let (all, count) = Spent::together(self.recent.iter());
        (count > 0.0).then(|| all.share())
    }

    /// What follows from a window at this level.
    pub(super) fn window(&mut self, spent: Spent) -> Verdict {
        if spent.seconds <= 0.0 {
            return Verdict::Stay;
        }
        self.recent.push_back(spent);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        self.remember();
        self.trust();
        if self.recent.len() < RECENT {
            return Verdict::Stay;
        }
        let (windows, count) = Spent::together(self.recent.iter());
        let share = windows.share();
        let last = self.ladder.len() - 1;
        if share > self.budget {
            self.calm = 0;
            if self.level == last {
                let was = std::mem::replace(&mut self.exceeded, true);
                return if was {
                    Verdict::Stay
                } else {
                    Verdict::Exceeded(share)
                };
            }
            let predicted = |level: usize| self.predicted(&windows, count, level);
            let fits = |level: &usize| predicted(*level) <= self.budget * DOWN_TO;
            let to = (self.level + 1..=last).find(fits).unwrap_or(last);
            let predicted = predicted(to);
            self.distrust(to);
            return self.change(to, share, predicted);
        }
        if self.exceeded && share <= self.budget * UP_TO {
            self.exceeded = false;
            return Verdict::Held(share);
        }
        let Some(up) = self.level.checked_sub(1) else {
            return Verdict::Stay;
        };
        let predicted = self.predicted(&windows, count, up);
        self.calm = match predicted <= self.budget * UP_TO {
            true => self.calm + 1,
            false => 0,
        };
        if self.calm < self.wanted[up] {
            return Verdict::Stay;
        }
        self.raised[up] = Some(0);
        self.change(up, share, predicted)
    }

    fn change(&mut self, to: usize, share: f64, predicted: f64) -> Verdict {
        let from = self.level();
        self.level = to;
        self.recent.clear();
        self.calm = 0;
        self.exceeded = false;
        Verdict::Change(Change {
            from,
            to: self.level(),
            share,
            predicted,
        })
    }

    /// Steps up that are taken back by going down to a level were too early.
    fn distrust(&mut self, to: usize) {
        for level in self.level..to {
            if self.raised[level]
                .take()
                .is_some_and(|windows| windows <= EARLY)
            {
                self.wanted[level] = (self.wanted[level] * RARER).min(CALM.1);
            }
        }
    }

    /// Steps up that held for long make the next ones come earlier.
    fn trust(&mut self) {
        for (raised, wanted) in self.raised.iter_mut().zip(&mut self.wanted) {
            *raised = raised.map(|windows| windows + 1);
            if raised.is_some_and(|windows| windows > EARLY * RARER) {
                *wanted = (*wanted / RARER).max(CALM.0);
                *raised = None;
            }
        }
    }

    /// Takes in what this level takes; what is known of others comes nearer to the model.
    fn remember(&mut self) {
        let (windows, count) = Spent::together(self.recent.iter());
        let here = Took {
            charge: windows.charge,
            pull: windows.pull / count,
            samples: windows.samples / (windows.seconds * 1e9),
        };
        let level = self.level();
        for (at, took) in self.took.iter_mut().enumerate() {
            if at == self.level {
                *took = Some(here);
            } else if let Some(took) = took {
                let model = modelled(&windows, here, level, self.ladder[at]);
                took.charge += (model.charge - took.charge) * FORGET;
                took.pull += (model.pull - took.pull) * FORGET;
                took.samples += (model.samples - took.samples) * FORGET;
            }
        }
    }

    /// The share that a level would have taken in these windows.
    fn predicted(&self, windows: &Spent, count: f64, at: usize) -> f64 {
        let here = Took {
            charge: windows.charge,
            pull: windows.pull / count,
            samples: windows.samples / (windows.seconds * 1e9),
        };
        let (now, level) = (self.level(), self.ladder[at]);
        let mut took = self.took[at].unwrap_or_else(|| modelled(windows, here, now, level));
        if level.samples && !now.samples && self.took[at].is_none() {
            // Of levels that sample the last that ran tells.
            let sampled = self.took[..self.level].iter().rev().flatten();
            took.samples = sampled.map(|it| it.samples).next().unwrap_or(0.0);
        }
        let pulls = count * f64::from(now.widened) / f64::from(level.widened);
        let nanos =
            windows.charges * took.charge + windows.rest + windows.other + pulls * took.pull;
        nanos / (windows.seconds * 1e9) + took.samples
    }
}

/// What a charge and a pull would take at a level that is not known: fewer counters are read.
fn modelled(windows: &Spent, here: Took, now: Level, level: Level) -> Took {
    let count = |counters: usize| f64::from(u32::try_from(counters).unwrap_or(u32::MAX));
    let reads = |level: Level| {
        count(level.hardware) * windows.reads.0 + count(level.software) * windows.reads.1
    };
    Took {
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
