//! Shared code of iterator programs. The kernel calls such a program for each object of the
//! iterator. [`walk`] ignores these objects, and walks a whole kernel list in the first call.
//!
//! Walks use an iterator because its programs run in the reader's context and can be preempted.

use core::{ffi::c_void, ptr};

use aya_ebpf::{helpers::generated::bpf_loop, maps::Array};

/// Maximum steps of a walk: the limit of `bpf_loop`, above any number of threads and processes.
const MAX_STEPS: u32 = 1 << 23;

/// The kernel's `struct bpf_iter_meta`, to which the context of an iterator's program points first.
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
unsafe fn is_first_call(ctx: *mut c_void) -> bool {
    // SAFETY: the context begins with a pointer to the iterator's meta data, never null.
    unsafe {
        let meta = ctx.cast::<*const Meta>().read();
        (&raw const (*meta).number).read_volatile() == 0
    }
}

/// The state of the current walk, from its map of one value. Only one walk runs at a time.
#[inline(always)]
#[expect(
    clippy::mut_from_ref,
    reason = "a map is shared memory; one walk at a time borrows its value"
)]
pub(crate) fn walk_state<W>(walk: &'static Array<W>) -> Option<&'static mut W> {
    // SAFETY: only the walk accesses the value while it runs.
    walk.get_ptr_mut(0).map(|walk| unsafe { &mut *walk })
}

/// Walks a list in the iterator's first call: `start` finds its first entry, then `step` is called
/// until it returns 1. An iterator's program runs under RCU, so no entry is freed during the walk,
/// and an unlinked entry still leads to the next one.
///
/// # Safety
///
/// `ctx` is the context of an iterator's program.
#[inline(always)]
pub(crate) unsafe fn walk(
    ctx: *mut c_void,
    start: impl FnOnce() -> Option<()>,
    step: extern "C" fn(u32, *mut c_void) -> i64,
) -> i32 {
    // SAFETY: the caller's promise.
    if unsafe { is_first_call(ctx) } && start().is_some() {
        // SAFETY: the callback is a function of the type that the helper calls.
        unsafe {
            bpf_loop(MAX_STEPS, step as *mut c_void, ptr::null_mut::<c_void>(), 0);
        }
    }
    0
}
