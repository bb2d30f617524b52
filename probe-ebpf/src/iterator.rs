//! What the programs of iterators share: they do all at their first call.

use core::ffi::c_void;

/// Steps of a walk: the most that `bpf_loop` makes, and more than there can be threads and
/// processes.
pub(crate) const MAX_STEPS: u32 = 1 << 23;

/// What an iterator's program gets first (`struct bpf_iter_meta`).
#[repr(C)]
struct Meta {
    sequence: *const c_void,
    session: u64,
    number: u64,
}

/// # Safety
///
/// `ctx` is the context of an iterator's program.
#[inline(always)]
pub(crate) unsafe fn is_first_call(ctx: *mut c_void) -> bool {
    // SAFETY: the context begins with a pointer to the iterator's meta data, never null.
    unsafe {
        let meta = ctx.cast::<*const Meta>().read();
        (&raw const (*meta).number).read_volatile() == 0
    }
}
