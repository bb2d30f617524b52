//! The usual level of each container, and whether it is worse now.

use std::collections::{BTreeMap, HashSet, VecDeque};

use crate::join::Entity;

/// Calm windows kept for each container, and the fewest that establish its usual level.
pub(super) const REMEMBERED: usize = 60;
pub(super) const USUAL: usize = 10;

/// Windows judged together, the fewest worse ones among them that start a verdict, and the most
/// with which it ends.
pub(super) const JUDGED: usize = 5;
pub(super) const BEGINS: usize = 3;
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
            calm: VecDeque::with_capacity(REMEMBERED),
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
        if self.calm.len() < USUAL {
            return None;
        }
        let n = self.calm.len() as f64;
        let mean = self.calm.iter().sum::<f64>() / n;
        let squares = self.calm.iter().map(|value| (value - mean).powi(2));
        Some((mean, (squares.sum::<f64>() / (n - 1.0)).sqrt()))
    }

    /// Adds the value of a calm window.
    pub(super) fn add_calm(&mut self, value: f64) {
        if self.calm.len() == REMEMBERED {
            self.calm.pop_front();
        }
        self.calm.push_back(value);
    }

    /// Adds whether a window was worse than usual, and returns whether the container suffers.
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

/// The distance from the mean beyond which a window is worse than usual.
pub(super) fn deviation((_, deviation): (f64, f64), smallest: f64) -> f64 {
    (SIGMAS * deviation).max(smallest)
}
