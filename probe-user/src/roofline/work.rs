//! The kinds of [`Work`] to time: [`Triad`], [`MultiplyAdd`] and [`Chase`].

use std::sync::{Arc, Mutex};

use super::{
    kernels::{self, Arrays, Chain, Stores, Vectors},
    timed::Work,
};
use crate::sys::pages::HUGE;

/// Rounds of multiply-adds in one iteration.
pub(super) const ROUNDS: u64 = 64;

/// Bytes of memory in huge pages, and all bytes. The thread that owns the memory stores them.
#[derive(Clone, Debug, Default)]
pub(super) struct HugePages(Arc<Mutex<Option<(u64, u64)>>>);

impl HugePages {
    fn store(&self, bytes: Option<(u64, u64)>) {
        *self.0.lock().expect("nobody panics with it") = bytes;
    }

    /// The part of the memory in huge pages, from 0 to 1; None if it is unknown.
    #[expect(clippy::cast_precision_loss, reason = "bytes below 2^53")]
    pub(super) fn ratio(&self) -> Option<f64> {
        let (huge, all) = (*self.0.lock().expect("nobody panics with it"))?;
        // Less memory than a huge page cannot be in one.
        (all >= HUGE as u64).then(|| huge as f64 / all as f64)
    }
}

/// STREAM's triad over the thread's own arrays.
pub(super) struct Triad {
    pub(super) arrays: Arrays,
    pub(super) vectors: Vectors,
    pub(super) stores: Stores,
    /// Where this thread stores its bytes in huge pages; None if it does not.
    pub(super) huge_pages: Option<HugePages>,
}

impl Work for Triad {
    fn touch(&mut self) {
        self.arrays.touch();
        if let Some(huge_pages) = &self.huge_pages {
            huge_pages.store(self.arrays.huge());
        }
    }

    fn work(&mut self, iterations: u64) {
        self.arrays.triad(self.vectors, self.stores, iterations);
    }
}

/// Multiply-adds in registers.
pub(super) struct MultiplyAdd(pub(super) Vectors);

impl Work for MultiplyAdd {
    fn touch(&mut self) {}

    fn work(&mut self, iterations: u64) {
        kernels::multiply_add(self.0, iterations * ROUNDS);
    }
}

/// A pointer chase along a chain.
pub(super) struct Chase {
    pub(super) chain: Chain,
    pub(super) huge_pages: HugePages,
}

impl Chase {
    /// Steps in one iteration.
    pub(super) const STEPS: u64 = 8 * kernels::STEPS;
}

impl Work for Chase {
    fn touch(&mut self) {
        self.chain.link();
        self.huge_pages.store(self.chain.huge());
    }

    fn work(&mut self, iterations: u64) {
        self.chain.chase(iterations * Self::STEPS);
    }
}
