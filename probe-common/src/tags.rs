//! Marker functions, by which a program names its memory regions and phases
//! (docs/reference/regions.md). `include/pmuscope.h` has the same functions for C.
//!
//! The functions only return; pmuscope observes their calls by uprobes. Each is a naked function,
//! opaque to the optimiser, so that its arguments are where the calling convention puts them. On
//! machines other than x86-64 and arm64, on which pmuscope does not run, they are empty.

use core::{
    ffi::{CStr, c_char},
    ops::Range,
};

macro_rules! marker {
    ($name:ident($($argument:ident: $type:ty),*)) => {
        // SAFETY: it touches no memory and no register. The name is unique: the functions of
        // include/pmuscope.h are weak.
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

/// Makes the addresses from `range.start` to below `range.end` part of the region `name`. An empty
/// name ends the tags inside the range; an empty range ends the whole region `name`.
#[inline]
pub fn tag_addr<T>(name: &CStr, range: Range<*const T>) {
    pmuscope_tag_addr(name.as_ptr(), range.start.cast(), range.end.cast());
}

/// Begins the phase `name` of this thread, nested in its current phase.
#[inline]
pub fn start(name: &CStr) {
    pmuscope_start(name.as_ptr());
}

/// Ends the phase that this thread began last.
#[inline]
pub fn stop() {
    pmuscope_stop();
}
