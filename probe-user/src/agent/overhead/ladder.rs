//! The [`Ladder`] of a budget: what is given up, level by level.

use std::{fmt, ops::Index, time::Duration};

/// The longest window that the budget may make.
const LONGEST: Duration = Duration::from_mins(5);

/// The largest factor by which windows get longer.
const WIDEST: u32 = 8;

/// What is counted at a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::agent) struct Level {
    /// Hardware counters that a charge reads.
    pub(in crate::agent) hardware: usize,
    /// Software counters that a charge reads.
    pub(in crate::agent) software: usize,
    /// Factor by which windows are longer than configured.
    pub(in crate::agent) widened: u32,
    /// Whether samples are taken.
    pub(in crate::agent) samples: bool,
}

/// The levels: the first gives up nothing, and each gives up more than the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::agent) struct Ladder(Vec<Level>);

impl Ladder {
    /// The levels from `full` down, for this interval. Without `events`, only the length of windows
    /// can change: the agent cannot open counters any more.
    pub(in crate::agent) fn new(full: Level, interval: Duration, events: bool) -> Self {
        let mut levels = vec![full];
        let mut level = full;
        if events {
            // One counter stays: a software counter if there is one, since it costs less.
            let least = usize::from(full.software == 0);
            while level.hardware > least {
                level.hardware = (level.hardware / 2).max(least);
                levels.push(level);
            }
            while level.software > 1 {
                level.software /= 2;
                levels.push(level);
            }
        }
        while level.widened < WIDEST && interval * (level.widened * 2) <= LONGEST {
            level.widened *= 2;
            levels.push(level);
        }
        if level.samples && events {
            level.samples = false;
            levels.push(level);
        }
        Self(levels)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Index<usize> for Ladder {
    type Output = Level;

    fn index(&self, at: usize) -> &Level {
        &self.0[at]
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            hardware,
            software,
            widened,
            samples,
        } = self;
        write!(f, "{hardware} hardware and {software} software counters")?;
        if *widened > 1 {
            write!(f, ", windows {widened} times as long")?;
        }
        f.write_str(if *samples { ", samples" } else { "" })
    }
}
