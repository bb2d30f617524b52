//! Operations on plain data in map values: atomic adds, ordered stores, histogram buckets.

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

/// [`SpeRow::bucket`] with a bound that the verifier sees. LLVM knows that the number of bits is no
/// larger and would drop a mask.
#[inline(always)]
pub(crate) fn bucket(cycles: u16) -> usize {
    const { assert!(LATENCY_BUCKETS == 32) };
    let mut bucket = SpeRow::bucket(cycles);
    // SAFETY: changes one register.
    unsafe { asm!("{bucket} &= 31", bucket = inout(reg) bucket) };
    bucket % LATENCY_BUCKETS
}

/// Compiler barrier: an interrupt on this CPU sees the stores before it in order. LLVM has no fence
/// for eBPF.
#[inline(always)]
pub(crate) fn keep_order() {
    // SAFETY: no instruction.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}
