//! A loop of a known number of instructions, for trying counters and for tests.

/// Number of instructions per round.
pub const PER_ROUND: u64 = 2;

/// Executes [`PER_ROUND`] instructions in user mode for each round, and a few around the loop.
/// `rounds` must be at least 1.
pub fn spin(rounds: u64) {
    // SAFETY: the code counts its own register down to 0, and changes nothing else.
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
