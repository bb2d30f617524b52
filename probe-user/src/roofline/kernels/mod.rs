//! What is timed: a triad over three arrays, fused multiply-adds in registers, a chase of pointers.
//! They are assembly, so that a debug build and one for size measure the same machine.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as target;
#[cfg(target_arch = "x86_64")]
use x86_64 as target;

pub use self::target::Vectors;
use crate::sys::pages::Pages;

/// Every kernel takes that many bytes of an array in one round.
const BLOCK: usize = 256;

/// Bytes that the triad reads and writes for one element, as STREAM counts them: what a store reads
/// before it writes a line is not in it.
pub(super) const TRIAD_BYTES: u64 = 24;

/// From one array to the next, beside its own bytes: not a multiple of 4 KiB, by which loads and
/// stores of different arrays would be taken for the same (4K aliasing).
const APART: usize = 21 * 64;

/// How the triad writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stores {
    /// Ordinary stores, before which most CPUs read the line.
    Plain,
    /// Stores past the caches: `vmovntpd`, and STNP, which is a hint only.
    NonTemporal,
}

/// Three arrays of doubles, for one thread.
#[derive(Debug)]
pub(super) struct Arrays {
    pages: Pages,
    /// Bytes of each, a multiple of [`BLOCK`].
    each: usize,
}

impl Arrays {
    /// For `bytes` of all three, rounded down to what the kernels take, at least one block each.
    pub(super) fn new(bytes: u64) -> std::io::Result<Self> {
        let each = Self::each(bytes);
        let size = each.checked_add(APART).and_then(|one| one.checked_mul(3));
        let size = size.ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            pages: Pages::new(size)?,
            each,
        })
    }

    fn each(bytes: u64) -> usize {
        let each = usize::try_from(bytes / 3).unwrap_or(usize::MAX) / BLOCK * BLOCK;
        each.max(BLOCK)
    }

    /// Bytes of all three for that many asked for.
    pub(super) fn bytes_of(asked: u64) -> u64 {
        3 * Self::each(asked) as u64
    }

    /// Elements of each.
    pub(super) fn elements(&self) -> u64 {
        (self.each / size_of::<f64>()) as u64
    }

    /// See [`Pages::huge`].
    pub(super) fn huge(&self) -> Option<(u64, u64)> {
        self.pages.huge()
    }

    fn array(&self, index: usize) -> *mut u8 {
        // SAFETY: within what `new` mapped.
        unsafe { self.pages.start().add(index * (self.each + APART)) }
    }

    /// Writes all three, by which the thread that does so gets memory near to it.
    pub(super) fn touch(&mut self) {
        for (index, value) in [0.0, 1.0, 2.0].into_iter().enumerate() {
            let start: *mut f64 = self.array(index).cast();
            for at in 0..self.each / size_of::<f64>() {
                // SAFETY: inside the array, which is aligned to 64 bytes.
                unsafe { start.add(at).write(value) };
            }
        }
    }

    /// `a[i] = b[i] + s * c[i]` for all elements, `passes` times.
    pub(super) fn triad(&mut self, vectors: Vectors, stores: Stores, passes: u64) {
        let [a, b, c] = [self.array(0), self.array(1), self.array(2)];
        for _ in 0..passes {
            // SAFETY: the three arrays have `each` bytes, a multiple of BLOCK above 0, aligned to
            // 64, and nobody else has them; `vectors` was detected on this machine.
            unsafe { target::triad(vectors, stores, [a, b, c], self.each) };
        }
    }

    /// The first elements of the three.
    #[cfg(test)]
    fn first(&self) -> [f64; 3] {
        // SAFETY: each array has a block at least.
        [0, 1, 2].map(|index| unsafe { self.array(index).cast::<f64>().read() })
    }

    /// The last ones.
    #[cfg(test)]
    fn last(&self) -> [f64; 3] {
        let end = self.each - size_of::<f64>();
        // SAFETY: as above.
        [0, 1, 2].map(|index| unsafe { self.array(index).add(end).cast::<f64>().read() })
    }
}

/// Executes rounds of fused multiply-adds, whose number of floating-point operations is
/// [`Vectors::operations`] each. At least one round.
pub(super) fn multiply_add(vectors: Vectors, rounds: u64) {
    // SAFETY: registers only; `vectors` was detected on this machine.
    unsafe { target::multiply_add(vectors, rounds.max(1)) };
}

/// A cycle through all lines of some memory in an order that no prefetcher guesses.
#[derive(Debug)]
pub(super) struct Chain {
    pages: Pages,
    lines: usize,
    line: usize,
    /// The line to go on from.
    at: usize,
}

impl Chain {
    /// Through `bytes`, with one stop on each line of `line` bytes.
    pub(super) fn new(bytes: u64, line: u64) -> std::io::Result<Self> {
        let line = usize::try_from(line).unwrap_or(64).max(size_of::<usize>());
        let lines = (usize::try_from(bytes).unwrap_or(usize::MAX) / line).max(2);
        let size = lines.checked_mul(line);
        Ok(Self {
            pages: Pages::new(size.ok_or(std::io::ErrorKind::OutOfMemory)?)?,
            lines,
            line,
            at: 0,
        })
    }

    /// See [`Pages::huge`].
    pub(super) fn huge(&self) -> Option<(u64, u64)> {
        self.pages.huge()
    }

    fn stop(&self, line: usize) -> *mut usize {
        // SAFETY: within what `new` mapped; a line has room for a pointer, and is a power of two.
        unsafe { self.pages.start().add(line * self.line).cast() }
    }

    /// Links the lines into one cycle (Sattolo's shuffle), by which the thread that does so gets
    /// memory near to it.
    pub(super) fn link(&mut self) {
        let write = |line: usize, next: usize| {
            // SAFETY: `stop` is inside the mapping, and aligned.
            unsafe { self.stop(line).write(next) };
        };
        // SAFETY: as above.
        let read = |line: usize| unsafe { self.stop(line).read() };
        for line in 0..self.lines {
            write(line, line);
        }
        let mut random = SplitMix(0x9e37_79b9_7f4a_7c15);
        for line in (1..self.lines).rev() {
            let other = random.below(line);
            let (own, its) = (read(line), read(other));
            write(line, its);
            write(other, own);
        }
        // From numbers of lines to addresses.
        for line in 0..self.lines {
            let next = self.stop(read(line)) as usize;
            write(line, next);
        }
    }

    /// Follows the pointers that many steps, a multiple of [`STEPS`] and at least one.
    pub(super) fn chase(&mut self, steps: u64) -> u64 {
        let rounds = (steps / STEPS).max(1);
        let start = self.stop(self.at) as usize;
        // SAFETY: every line has the address of another line.
        let end = unsafe { target::chase(start, rounds) };
        self.at = (end - self.pages.start() as usize) / self.line;
        rounds * STEPS
    }
}

/// Steps of a round of the chase.
pub(super) const STEPS: u64 = 8;

/// A generator whose numbers are as good as a shuffle needs (Steele, Lea, Flood: `SplitMix`).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.next()) * bound as u128;
        usize::try_from(wide >> 64).expect("below the bound")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_kind_of_vector_here_computes_the_triad_of_all_elements() {
        for vectors in Vectors::here() {
            for stores in [Stores::Plain, Stores::NonTemporal] {
                let mut arrays = Arrays::new(3 * 5 * BLOCK as u64).unwrap();
                arrays.touch();
                assert_eq!(arrays.first(), [0.0, 1.0, 2.0]);
                arrays.triad(vectors, stores, 1);
                // 1 + 3 x 2.
                assert_eq!(arrays.first(), [7.0, 1.0, 2.0], "{vectors:?} {stores:?}");
                assert_eq!(arrays.last(), [7.0, 1.0, 2.0], "{vectors:?} {stores:?}");
                assert_eq!(arrays.elements(), 160);
            }
            multiply_add(vectors, 3);
            assert!(vectors.operations() >= 24, "{vectors:?}");
        }
    }

    proptest! {
        /// Nothing is left out, and no cycle is shorter: a chase through a part would be of a
        /// smaller cache.
        #[test]
        fn a_chain_visits_every_line_once(
            lines in 2_u64..300,
            line in prop::sample::select(vec![64_u64, 128]),
        ) {
            let mut chain = Chain::new(lines * line, line).unwrap();
            chain.link();
            let mut seen = BTreeSet::new();
            let mut at = 0;
            for _ in 0..lines {
                seen.insert(at);
                // SAFETY: a line of the chain.
                let next = unsafe { chain.stop(at).read() };
                at = (next - chain.pages.start() as usize) / chain.line;
            }
            prop_assert_eq!(at, 0);
            prop_assert_eq!(seen.len() as u64, lines);
            // Assembly goes the same way.
            prop_assert_eq!(chain.chase(lines * STEPS), lines * STEPS);
            prop_assert_eq!(chain.at, 0);
        }

        #[test]
        fn arrays_have_whole_blocks(bytes in 0_u64..1 << 40) {
            let all = Arrays::bytes_of(bytes);
            prop_assert_eq!(all % (3 * BLOCK as u64), 0);
            prop_assert!(all > 0 && all <= bytes.max(3 * BLOCK as u64));
        }
    }
}
