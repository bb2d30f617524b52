//! The kernels for 64-bit Arm use Advanced SIMD (NEON), which every Arm server CPU has. On CPUs
//! with wider SVE vectors the true peak may be higher.

use std::arch::asm;

use super::Stores;

/// The SIMD extension that the kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// 2 doubles.
    Neon,
}

impl Vectors {
    /// All extensions of this CPU, the widest first.
    #[cfg(test)]
    pub(super) fn available() -> Vec<Self> {
        vec![Self::Neon]
    }

    /// The widest extension of this CPU.
    #[must_use]
    pub fn detect() -> Self {
        Self::Neon
    }

    /// The extension's usual name.
    #[must_use]
    pub fn name(self) -> &'static str {
        "neon"
    }

    /// Floating-point operations in one round of multiply-adds: registers x doubles x 2.
    #[must_use]
    pub fn operations(self) -> u64 {
        24 * 2 * 2
    }
}

/// `$pair`: the instruction that stores a pair of registers.
macro_rules! triad {
    ($name:ident, $pair:literal) => {
        /// # Safety
        ///
        /// Each array has `bytes`, a multiple of 64 above 0.
        unsafe fn $name([a, b, c]: [*mut u8; 3], bytes: usize) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                asm!(
                    "fmov v31.2d, #3.0",
                    "2:",
                    "ldp q0, q1, [{b}]",
                    "ldp q2, q3, [{b}, #32]",
                    "ldp q4, q5, [{c}]",
                    "ldp q6, q7, [{c}, #32]",
                    "fmla v0.2d, v4.2d, v31.2d",
                    "fmla v1.2d, v5.2d, v31.2d",
                    "fmla v2.2d, v6.2d, v31.2d",
                    "fmla v3.2d, v7.2d, v31.2d",
                    concat!($pair, " q0, q1, [{a}]"),
                    concat!($pair, " q2, q3, [{a}, #32]"),
                    "add {a}, {a}, #64",
                    "add {b}, {b}, #64",
                    "add {c}, {c}, #64",
                    "subs {n}, {n}, #64",
                    "b.ne 2b",
                    a = inout(reg) a => _,
                    b = inout(reg) b => _,
                    c = inout(reg) c => _,
                    n = inout(reg) bytes => _,
                    out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _,
                    out("v6") _, out("v7") _, out("v31") _,
                    options(nostack),
                );
            }
        }
    };
}

triad!(triad_plain, "stp");
triad!(triad_non_temporal, "stnp");

/// # Safety
///
/// Each array has `bytes`, a multiple of [`BLOCK`](super::BLOCK) above 0. Nothing else accesses
/// them.
pub(super) unsafe fn triad(_: Vectors, stores: Stores, arrays: [*mut u8; 3], bytes: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match stores {
            Stores::Plain => triad_plain(arrays, bytes),
            Stores::NonTemporal => triad_non_temporal(arrays, bytes),
        }
    }
}

/// The instruction `$op` for each of the registers `$n`; `$sources`: the other operands. There are
/// more registers than latency x execution units of any core, so that the units stay busy.
macro_rules! each {
    ($op:literal, $sources:literal, $($n:literal)*) => {
        concat!($($op, " v", $n, ".2d, ", $sources, "\n"),*)
    };
}

/// # Safety
///
/// `rounds` is above 0.
pub(super) unsafe fn multiply_add(_: Vectors, rounds: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!(
            "fmov v30.2d, #3.0",
            "fmov v31.2d, #3.0",
            each!("fmov", "#1.0", 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23),
            "2:",
            each!("fmla", "v30.2d, v31.2d",
                0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23),
            "subs {n}, {n}, #1",
            "b.ne 2b",
            n = inout(reg) rounds => _,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _,
            out("v6") _, out("v7") _, out("v8") _, out("v9") _, out("v10") _, out("v11") _,
            out("v12") _, out("v13") _, out("v14") _, out("v15") _, out("v16") _, out("v17") _,
            out("v18") _, out("v19") _, out("v20") _, out("v21") _, out("v22") _, out("v23") _,
            out("v30") _, out("v31") _,
            options(nostack),
        );
    }
}

/// Follows pointers for `rounds` rounds of eight steps; returns the last address.
///
/// # Safety
///
/// `start`, and every word reached from it, holds the address of another such word. `rounds` is
/// above 0.
pub(super) unsafe fn chase(start: usize, rounds: u64) -> usize {
    let end;
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!(
            "2:",
            "ldr {p}, [{p}]",
            "ldr {p}, [{p}]",
            "ldr {p}, [{p}]",
            "ldr {p}, [{p}]",
            "ldr {p}, [{p}]",
            "ldr {p}, [{p}]",
            "ldr {p}, [{p}]",
            "ldr {p}, [{p}]",
            "subs {n}, {n}, #1",
            "b.ne 2b",
            p = inout(reg) start => end,
            n = inout(reg) rounds => _,
            options(nostack, readonly),
        );
    }
    end
}
