//! Inline assembly that several programs need: atomic add, compiler barrier, index masks that the
//! verifier accepts.

use core::arch::asm;

use probe_common::spe::{LATENCY_BUCKETS, SpeRow};

/// Adds `n` to a word atomically: Rust's `core` has no atomic read-modify-write for this target.
///
/// # Safety
///
/// `word` is a word of a map value.
#[inline(always)]
pub(crate) unsafe fn add_shared(word: *mut u64, n: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("lock *(u64 *)({word} + 0) += {n}", word = in(reg) word, n = in(reg) n) };
}

/// [`SpeRow::bucket`] with a bound that the verifier sees.
#[inline(always)]
pub(crate) fn bucket(cycles: u16) -> usize {
    masked::<LATENCY_BUCKETS>(SpeRow::bucket(cycles))
}

/// An index into `N` values, with a bound that the verifier sees. In assembly: LLVM would drop the
/// mask of an index whose bound it knows.
#[inline(always)]
pub(crate) fn masked<const N: usize>(mut index: usize) -> usize {
    const { assert!(N == 32) };
    // SAFETY: changes only its register.
    unsafe { asm!("{index} &= 31", index = inout(reg) index) };
    index % N
}

/// Compiler barrier: an interrupt on this CPU sees the earlier stores before the later ones. LLVM
/// has no fence for eBPF.
#[inline(always)]
pub(crate) fn keep_order() {
    // SAFETY: no instruction.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}
