//! Marker functions: a program names its memory and its phases, and pmuscope sees it
//! (docs/regions.md). The same as `include/pmuscope.h` of this package for C.
//!
//! They do nothing but return; pmuscope observes their calls by uprobes. Each is one function of
//! machine code that no optimisation looks into, so that its arguments are where the calling
//! convention has them. On other machines than x86-64 and arm64 pmuscope does not run, and they
//! are empty.

use core::{
    ffi::{CStr, c_char},
    ops::Range,
};

macro_rules! marker {
    ($name:ident($($argument:ident: $type:ty),*)) => {
        // SAFETY: it touches no memory and no register. Nobody else has a function of this name:
        // those of include/pmuscope.h are weak.
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) {
            core::arch::naked_asm!("nop", "ret")
        }

        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        extern "C" fn $name($(_: $type),*) {}
    };
}

marker!(pmuscope_tag_addr(_name: *const c_char, _start: *const u8, _end: *const u8));
marker!(pmuscope_start(_name: *const c_char));
marker!(pmuscope_stop());

/// From now on addresses from `range.start` to below `range.end` belong to the region `name`. An
/// empty name ends what was tagged inside the range, an empty range ends all of `name`.
#[inline]
pub fn tag_addr<T>(name: &CStr, range: Range<*const T>) {
    pmuscope_tag_addr(name.as_ptr(), range.start.cast(), range.end.cast());
}

/// This thread begins the phase `name`, inside the phase that it is in.
#[inline]
pub fn start(name: &CStr) {
    pmuscope_start(name.as_ptr());
}

/// This thread ends the phase that it began last.
#[inline]
pub fn stop() {
    pmuscope_stop();
}
