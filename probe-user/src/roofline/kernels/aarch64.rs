//! The kernels for 64-bit Arm: Advanced SIMD (NEON), which every such CPU of a server has. Where
//! vectors of SVE are wider and more of them cannot make up for it, the peak is above these.

use std::arch::asm;

use super::Stores;

/// The vectors that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// 2 doubles.
    Neon,
}

impl Vectors {
    /// All that this CPU has, the widest first.
    #[cfg(test)]
    pub(super) fn here() -> Vec<Self> {
        vec![Self::Neon]
    }

    /// The widest that this CPU has.
    #[must_use]
    pub fn detect() -> Self {
        Self::Neon
    }

    /// What CPUs call them.
    #[must_use]
    pub fn name(self) -> &'static str {
        "neon"
    }

    /// Floating-point operations of a round of multiply-adds: registers x doubles x 2.
    #[must_use]
    pub fn operations(self) -> u64 {
        24 * 2 * 2
    }
}

/// `$pair` stores two registers at an offset.
macro_rules! triad {
    ($name:ident, $pair:literal) => {
        /// # Safety
        ///
        /// Each of the arrays has `bytes`, a multiple of 64 above 0.
        unsafe fn $name([a, b, c]: [*mut u8; 3], bytes: usize) {
            // SAFETY: the caller's.
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
triad!(triad_stream, "stnp");

/// # Safety
///
/// The arrays have `bytes` each, a multiple of [`BLOCK`](super::BLOCK) above 0, and nobody else has
/// them.
pub(super) unsafe fn triad(_: Vectors, stores: Stores, arrays: [*mut u8; 3], bytes: usize) {
    // SAFETY: the caller's.
    unsafe {
        match stores {
            Stores::Plain => triad_plain(arrays, bytes),
            Stores::NonTemporal => triad_stream(arrays, bytes),
        }
    }
}

/// One instruction for each of these registers. More registers than latency x units of any core.
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

/// Eight steps for each of `rounds`; the address where they end.
///
/// # Safety
///
/// `start` and every word that is reached from it is the address of such a word; `rounds` is above
/// 0.
pub(super) unsafe fn chase(start: usize, rounds: u64) -> usize {
    let end;
    // SAFETY: the caller's.
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
