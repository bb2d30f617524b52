//! The usual level of each container, and whether it is worse now.

use std::collections::{BTreeMap, HashSet, VecDeque};

use crate::join::Entity;

/// Calm windows kept for each container.
pub(super) const MAX_CALM: usize = 60;

/// The fewest calm windows that establish the usual level of a container.
pub(super) const MIN_CALM: usize = 10;

/// The number of last windows on which a verdict depends.
pub(super) const JUDGED: usize = 5;

/// The fewest worse windows among [`JUDGED`] that start a verdict.
pub(super) const BEGINS: usize = 3;

/// The most worse windows among [`JUDGED`] with which a verdict ends.
pub(super) const ENDS: usize = 1;

/// The distance from the mean, in standard deviations, beyond which a window is worse than usual.
const SIGMAS: f64 = 2.0;

/// The histories of containers, from window to window.
#[derive(Debug, Default)]
pub(super) struct Histories(pub(super) BTreeMap<Entity, ContainerHistory>);

#[derive(Debug)]
pub(super) struct ContainerHistory {
    /// Values of calm windows, oldest first.
    calm: VecDeque<f64>,
    /// Whether the container was worse, for the last windows that were judged.
    worse: VecDeque<bool>,
    suffers: bool,
}

/// A container in a window that can be judged.
pub(super) struct Judged {
    pub(super) suffers: bool,
    /// Whether the container starts to suffer in this window.
    pub(super) begins: bool,
    /// Mean and standard deviation of its calm windows.
    pub(super) usual: (f64, f64),
}

impl Default for ContainerHistory {
    /// Allocates all the memory that it will use, so that an agent's memory does not grow over
    /// time.
    fn default() -> Self {
        Self {
            calm: VecDeque::with_capacity(MAX_CALM),
            worse: VecDeque::with_capacity(JUDGED),
            suffers: false,
        }
    }
}

impl Histories {
    /// The history of a container that has a value in this window.
    pub(super) fn entry(&mut self, entity: &Entity) -> &mut ContainerHistory {
        self.0.entry(entity.clone()).or_default()
    }

    /// Removes containers that ended.
    pub(super) fn forget(&mut self, running: &HashSet<Entity>) {
        self.0.retain(|entity, _| running.contains(entity));
    }
}

impl ContainerHistory {
    /// Mean and standard deviation of the calm windows; None while they are too few.
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    pub(super) fn usual(&self) -> Option<(f64, f64)> {
        if self.calm.len() < MIN_CALM {
            return None;
        }
        let n = self.calm.len() as f64;
        let mean = self.calm.iter().sum::<f64>() / n;
        let squares = self.calm.iter().map(|value| (value - mean).powi(2));
        Some((mean, (squares.sum::<f64>() / (n - 1.0)).sqrt()))
    }

    /// Adds the value of a calm window.
    pub(super) fn add_calm(&mut self, value: f64) {
        if self.calm.len() == MAX_CALM {
            self.calm.pop_front();
        }
        self.calm.push_back(value);
    }

    /// Adds a window that was worse than usual or not, and returns whether the container suffers.
    pub(super) fn judge(&mut self, is_worse: bool, usual: (f64, f64)) -> Judged {
        if self.worse.len() == JUDGED {
            self.worse.pop_front();
        }
        self.worse.push_back(is_worse);
        let worse = self.worse.iter().filter(|worse| **worse).count();
        let suffered = self.suffers;
        self.suffers = match suffered {
            true => worse > ENDS,
            false => worse >= BEGINS,
        };
        Judged {
            suffers: self.suffers,
            begins: self.suffers && !suffered,
            usual,
        }
    }
}

/// The distance from the mean of calm windows beyond which a window is worse; at least `smallest`.
pub(super) fn tolerance((_, deviation): (f64, f64), smallest: f64) -> f64 {
    (SIGMAS * deviation).max(smallest)
}
