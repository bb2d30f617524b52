//! What is timed: the triad, multiply-adds, and the walk along a chain.

use std::sync::{Arc, Mutex};

use super::{
    kernels::{self, Arrays, Chain, Stores, Vectors},
    timed::Work,
};
use crate::sys::pages::HUGE;

/// Rounds of multiply-adds that count as one time of that work.
pub(super) const ROUNDS: u64 = 64;

/// The bytes in huge pages of those in memory, told by the thread that has them.
#[derive(Clone, Debug, Default)]
pub(super) struct Huge(Arc<Mutex<Option<(u64, u64)>>>);

impl Huge {
    pub(super) fn tell(&self, told: Option<(u64, u64)>) {
        *self.0.lock().expect("nobody panics with it") = told;
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes below 2^53")]
    pub(super) fn share(&self) -> Option<f64> {
        let (huge, all) = (*self.0.lock().expect("nobody panics with it"))?;
        // Less than a huge page could be in none.
        (all >= HUGE as u64).then(|| huge as f64 / all as f64)
    }
}

/// STREAM's triad over arrays of its own.
pub(super) struct Triad {
    pub(super) arrays: Arrays,
    pub(super) vectors: Vectors,
    pub(super) stores: Stores,
    pub(super) told: Option<Huge>,
}

impl Work for Triad {
    fn touch(&mut self) {
        self.arrays.touch();
        if let Some(told) = &self.told {
            told.tell(self.arrays.huge());
        }
    }

    fn work(&mut self, times: u64) {
        self.arrays.triad(self.vectors, self.stores, times);
    }
}

/// Multiply-adds of registers.
pub(super) struct MultiplyAdd(pub(super) Vectors);

impl Work for MultiplyAdd {
    fn touch(&mut self) {}

    fn work(&mut self, times: u64) {
        kernels::multiply_add(self.0, times * ROUNDS);
    }
}

/// A walk along a chain of addresses.
pub(super) struct Chase {
    pub(super) chain: Chain,
    pub(super) told: Huge,
}

impl Chase {
    /// Steps of one time.
    pub(super) const STEPS: u64 = 8 * kernels::STEPS;
}

impl Work for Chase {
    fn touch(&mut self) {
        self.chain.link();
        self.told.tell(self.chain.huge());
    }

    fn work(&mut self, times: u64) {
        self.chain.chase(times * Self::STEPS);
    }
}
