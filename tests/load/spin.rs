//! A loop of known length, which runs in the loads and in the guests' own tests.

/// Executes two instructions a round; `rounds` is at least 1.
pub(crate) fn spin(rounds: u64) {
    // SAFETY: counts a register of its own down to 0, touches nothing else.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("2: subs {n}, {n}, #1", "b.ne 2b", n = inout(reg) rounds => _);
    }
    // SAFETY: as above.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("2: sub {n}, 1", "jnz 2b", n = inout(reg) rounds => _);
    }
}
