//! The kernels: loops that move memory in a known pattern. All accesses are volatile, assembly or
//! followed by `black_box`, so that no build leaves them out.

use std::{io, ptr};

use crate::{
    roofline::kernels::{Arrays, Chain, Stores, Vectors},
    sys::pages::Pages,
};

/// Bytes of a cache line, as the kernels assume it. Strides are several lines long.
const LINE: usize = 64;

/// What a kernel does with its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// Reads every word in order, which suits prefetchers.
    ReadStream,
    /// Reads one word of every seventh line, which does not suit prefetchers.
    StridedRead,
    /// Reads one half and writes the other.
    Copy,
    /// STREAM's triad.
    Triad,
    /// Writes zeros in order, without reading: memset (DC ZVA on Arm).
    Zero,
    /// The triad with stores that bypass the caches.
    NonTemporalTriad,
    /// Follows pointers through all lines in random order.
    PointerChase,
    /// Reads and writes words at random places.
    RandomUpdate,
    /// Reads every word of memory that stays in the caches, and so moves nothing.
    CachedRead,
}

impl Kernel {
    pub(super) const ALL: [Self; 9] = [
        Self::ReadStream,
        Self::StridedRead,
        Self::Copy,
        Self::Triad,
        Self::Zero,
        Self::NonTemporalTriad,
        Self::PointerChase,
        Self::RandomUpdate,
        Self::CachedRead,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ReadStream => "read-stream",
            Self::StridedRead => "strided-read",
            Self::Copy => "copy",
            Self::Triad => "triad",
            Self::Zero => "zero",
            Self::NonTemporalTriad => "non-temporal-triad",
            Self::PointerChase => "pointer-chase",
            Self::RandomUpdate => "random-update",
            Self::CachedRead => "cached-read",
        }
    }

    /// Whether it moves data between memory and the caches.
    pub(super) fn moves_memory(self) -> bool {
        self != Self::CachedRead
    }

    /// The kernel with its own memory of `bytes`, or of `cached` bytes, which stay in the core's
    /// caches. The memory is not yet touched.
    pub(super) fn with_memory(self, bytes: u64, cached: u64) -> io::Result<Running> {
        Ok(match self {
            Self::Triad => Running::Triad(Arrays::new(bytes)?, Stores::Plain),
            Self::NonTemporalTriad => Running::Triad(Arrays::new(bytes)?, Stores::NonTemporal),
            Self::PointerChase => Running::Chase(Chain::new(bytes, LINE as u64)?),
            Self::CachedRead => Running::Words(self, Words::new(cached)?),
            _ => Running::Words(self, Words::new(bytes)?),
        })
    }
}

/// A kernel with its memory.
pub(super) enum Running {
    Triad(Arrays, Stores),
    Chase(Chain),
    Words(Kernel, Words),
}

impl Running {
    /// Writes its memory, so that Linux places the pages near this thread (first touch).
    pub(super) fn touch(&mut self) {
        match self {
            Self::Triad(arrays, _) => arrays.touch(),
            Self::Chase(chain) => chain.link(),
            Self::Words(_, words) => words.zero(),
        }
    }

    /// Does a part of the work: one pass over the memory, or a number of random accesses.
    pub(super) fn step(&mut self, vectors: Vectors) {
        /// Number of random accesses in a step.
        const RANDOM_ACCESSES: u64 = 1 << 13;
        match self {
            Self::Triad(arrays, stores) => arrays.triad(vectors, *stores, 1),
            Self::Chase(chain) => {
                chain.chase(RANDOM_ACCESSES);
            }
            Self::Words(Kernel::StridedRead, words) => words.read(7 * LINE / size_of::<u64>()),
            Self::Words(Kernel::Copy, words) => words.copy(),
            Self::Words(Kernel::Zero, words) => words.zero(),
            Self::Words(Kernel::RandomUpdate, words) => words.update(RANDOM_ACCESSES),
            Self::Words(_, words) => words.read(1),
        }
    }
}

/// Memory as 64-bit words.
pub(super) struct Words {
    pages: Pages,
    words: usize,
    /// The state of the random generator.
    random_state: u64,
}

impl Words {
    fn new(bytes: u64) -> io::Result<Self> {
        let words = usize::try_from(bytes).unwrap_or(usize::MAX) / size_of::<u64>();
        // Both halves have whole lines.
        let words = (words / 16 * 16).max(16);
        let bytes = words.checked_mul(size_of::<u64>());
        Ok(Self {
            pages: Pages::new(bytes.ok_or(io::ErrorKind::OutOfMemory)?)?,
            words,
            random_state: 0x9e37_79b9_7f4a_7c15,
        })
    }

    fn word(&self, at: usize) -> *mut u64 {
        debug_assert!(at < self.words);
        // SAFETY: within what `new` mapped; all callers stay below `words`.
        unsafe { self.pages.start().cast::<u64>().add(at) }
    }

    fn read(&self, stride: usize) {
        for at in (0..self.words).step_by(stride) {
            // SAFETY: `word` is inside the mapping and aligned; any bits are a u64.
            unsafe { self.word(at).read_volatile() };
        }
    }

    fn copy(&mut self) {
        let half = self.words / 2;
        for at in 0..half {
            // SAFETY: as above.
            let word = unsafe { self.word(at).read_volatile() };
            // SAFETY: as above.
            unsafe { self.word(half + at).write_volatile(word) };
        }
    }

    fn zero(&mut self) {
        // SAFETY: all words of the mapping, which this value alone has.
        unsafe { ptr::write_bytes(self.word(0), 0, self.words) };
        std::hint::black_box(self.word(0));
    }

    fn update(&mut self, times: u64) {
        for _ in 0..times {
            // xorshift64*.
            self.random_state ^= self.random_state >> 12;
            self.random_state ^= self.random_state << 25;
            self.random_state ^= self.random_state >> 27;
            let random = self.random_state.wrapping_mul(0x2545_f491_4f6c_dd1d);
            let at = (u128::from(random) * self.words as u128) >> 64;
            let word = self.word(usize::try_from(at).unwrap_or_default());
            // SAFETY: as above.
            unsafe { word.write_volatile(word.read_volatile() ^ random) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_runs_over_memory_of_any_size() {
        for kernel in Kernel::ALL {
            for bytes in [0, 4096, 100_000] {
                let mut running = kernel.with_memory(bytes, 4096).unwrap();
                running.touch();
                running.step(Vectors::detect());
                running.step(Vectors::detect());
            }
        }
    }

    #[test]
    fn words_are_copied_zeroed_and_changed() {
        let mut words = Words::new(1024).unwrap();
        words.zero();
        let all = |words: &Words| -> Vec<u64> {
            // SAFETY: inside the mapping.
            (0..words.words)
                .map(|at| unsafe { words.word(at).read() })
                .collect()
        };
        words.update(10_000);
        let changed = all(&words);
        assert_eq!(changed.len(), 128);
        assert!(
            changed.iter().all(|word| *word != 0),
            "each place is reached"
        );
        words.copy();
        let copied = all(&words);
        assert_eq!(copied[..64], copied[64..]);
        words.zero();
        assert_eq!(all(&words), vec![0; 128]);
    }
}
