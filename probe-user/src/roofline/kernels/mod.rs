//! The timed kernels: a triad over three arrays ([`Arrays`]), fused multiply-adds in registers
//! ([`multiply_add`]), and a pointer chase ([`Chain`]). They are assembly, so that the results do
//! not depend on the build profile.

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

/// Array sizes are multiples of this many bytes, which every kernel handles in whole iterations.
const BLOCK: usize = 256;

/// Bytes that the triad reads and writes for one element, as STREAM counts them: without the reads
/// for ownership before stores.
pub(super) const TRIAD_BYTES: u64 = 24;

/// Bytes between two arrays. Not a multiple of 4 KiB, to avoid 4K aliasing between loads and stores
/// of different arrays.
const ARRAY_PADDING: usize = 21 * 64;

/// The kind of stores that the triad uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stores {
    /// Ordinary stores. Most CPUs read the line first (read for ownership).
    Plain,
    /// Stores that bypass the caches: `vmovntpd` on x86-64, STNP (only a hint) on Arm.
    NonTemporal,
}

/// Three arrays of doubles, for one thread.
#[derive(Debug)]
pub(crate) struct Arrays {
    pages: Pages,
    /// Bytes of one array, a multiple of [`BLOCK`].
    array_bytes: usize,
}

impl Arrays {
    /// Three arrays of `bytes` together, each rounded down to whole blocks, but at least one block.
    pub(crate) fn new(bytes: u64) -> std::io::Result<Self> {
        let array_bytes = Self::array_bytes(bytes);
        let size = array_bytes
            .checked_add(ARRAY_PADDING)
            .and_then(|one| one.checked_mul(3))
            .ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            pages: Pages::new(size)?,
            array_bytes,
        })
    }

    fn array_bytes(total: u64) -> usize {
        let third = usize::try_from(total / 3).unwrap_or(usize::MAX);
        (third / BLOCK * BLOCK).max(BLOCK)
    }

    /// Bytes of the three arrays together that `new(requested)` maps.
    pub(super) fn total_bytes(requested: u64) -> u64 {
        3 * Self::array_bytes(requested) as u64
    }

    /// Elements of one array.
    pub(super) fn elements(&self) -> u64 {
        (self.array_bytes / size_of::<f64>()) as u64
    }

    /// See [`Pages::huge`].
    pub(super) fn huge(&self) -> Option<(u64, u64)> {
        self.pages.huge()
    }

    fn array(&self, index: usize) -> *mut u8 {
        // SAFETY: within what `new` mapped.
        unsafe {
            self.pages
                .start()
                .add(index * (self.array_bytes + ARRAY_PADDING))
        }
    }

    /// Writes all three arrays. First touch places their memory near the calling thread.
    pub(crate) fn touch(&mut self) {
        for (index, value) in [0.0, 1.0, 2.0].into_iter().enumerate() {
            let start: *mut f64 = self.array(index).cast();
            for at in 0..self.array_bytes / size_of::<f64>() {
                // SAFETY: inside the array, which is aligned to 64 bytes.
                unsafe { start.add(at).write(value) };
            }
        }
    }

    /// `a[i] = b[i] + s * c[i]` for all elements, `passes` times.
    pub(crate) fn triad(&mut self, vectors: Vectors, stores: Stores, passes: u64) {
        let [a, b, c] = [self.array(0), self.array(1), self.array(2)];
        for _ in 0..passes {
            // SAFETY: the three arrays have `array_bytes`, a multiple of BLOCK above 0, are aligned
            // to 64 and borrowed mutably; `vectors` was detected on this machine.
            unsafe { target::triad(vectors, stores, [a, b, c], self.array_bytes) };
        }
    }

    /// The first element of each array.
    #[cfg(test)]
    fn first(&self) -> [f64; 3] {
        // SAFETY: each array has a block at least.
        [0, 1, 2].map(|index| unsafe { self.array(index).cast::<f64>().read() })
    }

    /// The last element of each array.
    #[cfg(test)]
    fn last(&self) -> [f64; 3] {
        let end = self.array_bytes - size_of::<f64>();
        // SAFETY: as above.
        [0, 1, 2].map(|index| unsafe { self.array(index).add(end).cast::<f64>().read() })
    }
}

/// Executes rounds of fused multiply-adds, at least one. Each round has [`Vectors::operations`]
/// floating-point operations.
pub(super) fn multiply_add(vectors: Vectors, rounds: u64) {
    // SAFETY: registers only; `vectors` was detected on this machine.
    unsafe { target::multiply_add(vectors, rounds.max(1)) };
}

/// A cycle of pointers through all lines of a buffer, in an order that no prefetcher predicts.
#[derive(Debug)]
pub(crate) struct Chain {
    pages: Pages,
    line_count: usize,
    line_size: usize,
    /// The line where the next chase starts.
    position: usize,
}

impl Chain {
    /// A chain through `bytes`, with one pointer in each line of `line_size` bytes.
    pub(crate) fn new(bytes: u64, line_size: u64) -> std::io::Result<Self> {
        let line_size = usize::try_from(line_size)
            .unwrap_or(64)
            .max(size_of::<usize>());
        let line_count = (usize::try_from(bytes).unwrap_or(usize::MAX) / line_size).max(2);
        let size = line_count.checked_mul(line_size);
        Ok(Self {
            pages: Pages::new(size.ok_or(std::io::ErrorKind::OutOfMemory)?)?,
            line_count,
            line_size,
            position: 0,
        })
    }

    /// See [`Pages::huge`].
    pub(super) fn huge(&self) -> Option<(u64, u64)> {
        self.pages.huge()
    }

    fn pointer(&self, index: usize) -> *mut usize {
        // SAFETY: within what `new` mapped; a line has room for a pointer, and is a power of two.
        unsafe { self.pages.start().add(index * self.line_size).cast() }
    }

    /// Links the lines into one cycle (Sattolo's shuffle). First touch places their memory near the
    /// calling thread.
    pub(crate) fn link(&mut self) {
        let write = |line: usize, next: usize| {
            // SAFETY: `pointer` is inside the mapping, and aligned.
            unsafe { self.pointer(line).write(next) };
        };
        // SAFETY: as above.
        let read = |line: usize| unsafe { self.pointer(line).read() };
        for line in 0..self.line_count {
            write(line, line);
        }
        let mut random = SplitMix(0x9e37_79b9_7f4a_7c15);
        for line in (1..self.line_count).rev() {
            let other = random.below(line);
            let (next, other_next) = (read(line), read(other));
            write(line, other_next);
            write(other, next);
        }
        // Turns line numbers into addresses.
        for line in 0..self.line_count {
            let next = self.pointer(read(line)) as usize;
            write(line, next);
        }
    }

    /// Follows the pointers for `steps`, rounded down to whole rounds of [`STEPS`], but at least
    /// one round. Returns the number of steps.
    pub(crate) fn chase(&mut self, steps: u64) -> u64 {
        let rounds = (steps / STEPS).max(1);
        let start = self.pointer(self.position) as usize;
        // SAFETY: every line has the address of another line.
        let end = unsafe { target::chase(start, rounds) };
        self.position = (end - self.pages.start() as usize) / self.line_size;
        rounds * STEPS
    }
}

/// Steps in one round of the chase.
pub(super) const STEPS: u64 = 8;

/// A pseudo-random generator, good enough for a shuffle (Steele, Lea, Flood: `SplitMix`).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to below `bound`.
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
    fn every_available_vector_extension_computes_the_whole_triad() {
        for vectors in Vectors::available() {
            for stores in [Stores::Plain, Stores::NonTemporal] {
                let mut arrays = Arrays::new(3 * 5 * BLOCK as u64).unwrap();
                arrays.touch();
                assert_eq!(arrays.first(), [0.0, 1.0, 2.0]);
                arrays.triad(vectors, stores, 1);
                // The triad is 1 + 3 x 2.
                assert_eq!(arrays.first(), [7.0, 1.0, 2.0], "{vectors:?} {stores:?}");
                assert_eq!(arrays.last(), [7.0, 1.0, 2.0], "{vectors:?} {stores:?}");
                assert_eq!(arrays.elements(), 160);
            }
            multiply_add(vectors, 3);
            assert!(vectors.operations() >= 24, "{vectors:?}");
        }
    }

    proptest! {
        /// The cycle has all lines. A chase through fewer lines would measure a smaller cache.
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
                let next = unsafe { chain.pointer(at).read() };
                at = (next - chain.pages.start() as usize) / chain.line_size;
            }
            prop_assert_eq!(at, 0);
            prop_assert_eq!(seen.len() as u64, lines);
            // The assembly follows the same path.
            prop_assert_eq!(chain.chase(lines * STEPS), lines * STEPS);
            prop_assert_eq!(chain.position, 0);
        }

        #[test]
        fn arrays_have_whole_blocks(bytes in 0_u64..1 << 40) {
            let all = Arrays::total_bytes(bytes);
            prop_assert_eq!(all % (3 * BLOCK as u64), 0);
            prop_assert!(all > 0 && all <= bytes.max(3 * BLOCK as u64));
        }
    }
}
