//! The kernels for x86-64 use AVX-512, AVX2 with FMA, or SSE2, which every x86-64 CPU has.

use std::arch::{asm, is_x86_feature_detected};

use super::Stores;

/// The SIMD extension that the kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// 8 doubles.
    Avx512,
    /// 4 doubles.
    Avx2,
    /// 2 doubles; multiplies and adds are separate instructions.
    Sse2,
}

impl Vectors {
    /// All extensions of this CPU, the widest first.
    pub(super) fn available() -> Vec<Self> {
        let mut available = Vec::new();
        if is_x86_feature_detected!("avx512f") {
            available.push(Self::Avx512);
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            available.push(Self::Avx2);
        }
        available.push(Self::Sse2);
        available
    }

    /// The widest extension of this CPU.
    #[must_use]
    pub fn detect() -> Self {
        Self::available()[0]
    }

    /// The extension's usual name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Avx512 => "avx512f",
            Self::Avx2 => "avx2+fma",
            Self::Sse2 => "sse2 (multiplies and adds, none fused)",
        }
    }

    /// Floating-point operations in one round of multiply-adds: registers x doubles x 2.
    #[must_use]
    pub fn operations(self) -> u64 {
        match self {
            Self::Avx512 => 24 * 8 * 2,
            Self::Avx2 => 12 * 4 * 2,
            // Six multiplies and six adds, of two doubles.
            Self::Sse2 => 12 * 2,
        }
    }
}

/// The triad's scalar `s`.
static FACTOR: f64 = 3.0;

/// One iteration handles four vectors of each array. `$r`: the kind of register; `$w`: the bytes of
/// a register.
macro_rules! triad {
    ($name:ident, $features:literal, $r:literal, $w:literal, $store:literal) => {
        /// # Safety
        ///
        /// The CPU has the vectors. Each array has `bytes`, a multiple of 4 vectors above 0, and is
        /// aligned to a vector.
        #[target_feature(enable = $features)]
        unsafe fn $name([a, b, c]: [*mut u8; 3], bytes: usize) {
            // SAFETY: guaranteed by the caller; the index runs from -bytes to 0, relative to the
            // ends of the arrays.
            unsafe {
                asm!(
                    concat!("vbroadcastsd ", $r, "15, [{s}]"),
                    "2:",
                    concat!("vmovupd ", $r, "0, [{b} + {i}]"),
                    concat!("vmovupd ", $r, "1, [{b} + {i} + ", $w, "]"),
                    concat!("vmovupd ", $r, "2, [{b} + {i} + 2 * ", $w, "]"),
                    concat!("vmovupd ", $r, "3, [{b} + {i} + 3 * ", $w, "]"),
                    concat!("vfmadd231pd ", $r, "0, ", $r, "15, [{c} + {i}]"),
                    concat!("vfmadd231pd ", $r, "1, ", $r, "15, [{c} + {i} + ", $w, "]"),
                    concat!("vfmadd231pd ", $r, "2, ", $r, "15, [{c} + {i} + 2 * ", $w, "]"),
                    concat!("vfmadd231pd ", $r, "3, ", $r, "15, [{c} + {i} + 3 * ", $w, "]"),
                    concat!($store, " [{a} + {i}], ", $r, "0"),
                    concat!($store, " [{a} + {i} + ", $w, "], ", $r, "1"),
                    concat!($store, " [{a} + {i} + 2 * ", $w, "], ", $r, "2"),
                    concat!($store, " [{a} + {i} + 3 * ", $w, "], ", $r, "3"),
                    concat!("add {i}, 4 * ", $w),
                    "jnz 2b",
                    "sfence",
                    "vzeroupper",
                    s = in(reg) &raw const FACTOR,
                    a = in(reg) a.add(bytes),
                    b = in(reg) b.add(bytes),
                    c = in(reg) c.add(bytes),
                    i = inout(reg) -bytes.cast_signed() => _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm15") _,
                    options(nostack),
                );
            }
        }
    };
}

triad!(triad_avx512, "avx512f", "zmm", "64", "vmovupd");
triad!(non_temporal_avx512, "avx512f", "zmm", "64", "vmovntpd");
triad!(triad_avx2, "avx2,fma", "ymm", "32", "vmovupd");
triad!(non_temporal_avx2, "avx2,fma", "ymm", "32", "vmovntpd");

macro_rules! triad_sse2 {
    ($name:ident, $store:literal) => {
        /// # Safety
        ///
        /// Each array has `bytes`, a multiple of 32 above 0, and is aligned to 16 bytes.
        unsafe fn $name([a, b, c]: [*mut u8; 3], bytes: usize) {
            // SAFETY: as above.
            unsafe {
                asm!(
                    "movsd xmm15, [{s}]",
                    "unpcklpd xmm15, xmm15",
                    "2:",
                    "movupd xmm0, [{c} + {i}]",
                    "movupd xmm1, [{c} + {i} + 16]",
                    "movupd xmm2, [{b} + {i}]",
                    "movupd xmm3, [{b} + {i} + 16]",
                    "mulpd xmm0, xmm15",
                    "mulpd xmm1, xmm15",
                    "addpd xmm0, xmm2",
                    "addpd xmm1, xmm3",
                    concat!($store, " [{a} + {i}], xmm0"),
                    concat!($store, " [{a} + {i} + 16], xmm1"),
                    "add {i}, 32",
                    "jnz 2b",
                    "sfence",
                    s = in(reg) &raw const FACTOR,
                    a = in(reg) a.add(bytes),
                    b = in(reg) b.add(bytes),
                    c = in(reg) c.add(bytes),
                    i = inout(reg) -bytes.cast_signed() => _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm15") _,
                    options(nostack),
                );
            }
        }
    };
}

triad_sse2!(triad_sse2, "movupd");
triad_sse2!(non_temporal_sse2, "movntpd");

/// # Safety
///
/// The CPU has these vectors. Each array has `bytes`, a multiple of [`BLOCK`](super::BLOCK) above
/// 0, and is aligned to 64. Nothing else accesses them.
pub(super) unsafe fn triad(vectors: Vectors, stores: Stores, arrays: [*mut u8; 3], bytes: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (vectors, stores) {
            (Vectors::Avx512, Stores::Plain) => triad_avx512(arrays, bytes),
            (Vectors::Avx512, Stores::NonTemporal) => non_temporal_avx512(arrays, bytes),
            (Vectors::Avx2, Stores::Plain) => triad_avx2(arrays, bytes),
            (Vectors::Avx2, Stores::NonTemporal) => non_temporal_avx2(arrays, bytes),
            (Vectors::Sse2, Stores::Plain) => triad_sse2(arrays, bytes),
            (Vectors::Sse2, Stores::NonTemporal) => non_temporal_sse2(arrays, bytes),
        }
    }
}

/// The instruction `$op` for each of the registers `$n`; `$sources`: the other operands. There are
/// more registers than latency x execution units of any core, so that the units stay busy.
macro_rules! each {
    ($op:literal, $r:literal, $sources:literal, $($n:literal)*) => {
        concat!($($op, " ", $r, $n, $sources, "\n"),*)
    };
}

/// # Safety
///
/// The CPU has AVX-512.
#[target_feature(enable = "avx512f")]
unsafe fn multiply_add_avx512(rounds: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!(
            "vbroadcastsd zmm30, [{s}]",
            "vmovapd zmm31, zmm30",
            each!("vmovapd", "zmm", ", zmm30",
                0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23),
            "2:",
            each!("vfmadd231pd", "zmm", ", zmm30, zmm31",
                0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23),
            "dec {n}",
            "jnz 2b",
            "vzeroupper",
            s = in(reg) &raw const FACTOR,
            n = inout(reg) rounds => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
            out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _,
            out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _,
            out("xmm15") _, out("xmm16") _, out("xmm17") _, out("xmm18") _, out("xmm19") _,
            out("xmm20") _, out("xmm21") _, out("xmm22") _, out("xmm23") _, out("xmm30") _,
            out("xmm31") _,
            options(nostack),
        );
    }
}

/// # Safety
///
/// The CPU has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply_add_avx2(rounds: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!(
            "vbroadcastsd ymm14, [{s}]",
            "vmovapd ymm15, ymm14",
            each!("vmovapd", "ymm", ", ymm14", 0 1 2 3 4 5 6 7 8 9 10 11),
            "2:",
            each!("vfmadd231pd", "ymm", ", ymm14, ymm15", 0 1 2 3 4 5 6 7 8 9 10 11),
            "dec {n}",
            "jnz 2b",
            "vzeroupper",
            s = in(reg) &raw const FACTOR,
            n = inout(reg) rounds => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
            out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _,
            out("xmm10") _, out("xmm11") _, out("xmm14") _, out("xmm15") _,
            options(nostack),
        );
    }
}

/// # Safety
///
/// Always safe: every x86-64 CPU has SSE2.
unsafe fn multiply_add_sse2(rounds: u64) {
    // SAFETY: registers only. The factor is 1, so that no product overflows.
    unsafe {
        asm!(
            "movsd xmm15, [{s}]",
            "unpcklpd xmm15, xmm15",
            each!("movapd", "xmm", ", xmm15", 0 1 2 3 4 5 6 7 8 9 10 11),
            "2:",
            each!("mulpd", "xmm", ", xmm15", 0 1 2 3 4 5),
            each!("addpd", "xmm", ", xmm15", 6 7 8 9 10 11),
            "dec {n}",
            "jnz 2b",
            s = in(reg) &raw const ONE,
            n = inout(reg) rounds => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
            out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _,
            out("xmm10") _, out("xmm11") _, out("xmm15") _,
            options(nostack),
        );
    }
}

static ONE: f64 = 1.0;

/// # Safety
///
/// The CPU has these vectors, and `rounds` is above 0.
pub(super) unsafe fn multiply_add(vectors: Vectors, rounds: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match vectors {
            Vectors::Avx512 => multiply_add_avx512(rounds),
            Vectors::Avx2 => multiply_add_avx2(rounds),
            Vectors::Sse2 => multiply_add_sse2(rounds),
        }
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
            "mov {p}, [{p}]",
            "mov {p}, [{p}]",
            "mov {p}, [{p}]",
            "mov {p}, [{p}]",
            "mov {p}, [{p}]",
            "mov {p}, [{p}]",
            "mov {p}, [{p}]",
            "mov {p}, [{p}]",
            "dec {n}",
            "jnz 2b",
            p = inout(reg) start => end,
            n = inout(reg) rounds => _,
            options(nostack, readonly),
        );
    }
    end
}
