//! What programs do with words that they share: adds that several CPUs make to one word, stores in
//! their order, and buckets of latencies.

use core::arch::asm;

use probe_common::spe::{LATENCY_BUCKETS, SpeRow};

/// An atomic add; core has none for this target.
///
/// # Safety
///
/// `word` is a word of a map value.
#[inline(always)]
pub(crate) unsafe fn add_shared(word: *mut u64, n: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("lock *(u64 *)({word} + 0) += {n}", word = in(reg) word, n = in(reg) n) };
}

/// [`SpeRow::bucket`] with its bound where the verifier sees it: LLVM knows that the number of bits
/// is no larger and leaves a mask out.
#[inline(always)]
pub(crate) fn bucket(cycles: u16) -> usize {
    const { assert!(LATENCY_BUCKETS == 32) };
    let mut bucket = SpeRow::bucket(cycles);
    // SAFETY: changes one register.
    unsafe { asm!("{bucket} &= 31", bucket = inout(reg) bucket) };
    bucket % LATENCY_BUCKETS
}

/// Compiler barrier: stores above stay above, as an interrupt on this CPU sees them. LLVM has no
/// fence for eBPF.
#[inline(always)]
pub(crate) fn keep_order() {
    // SAFETY: no instruction.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}
