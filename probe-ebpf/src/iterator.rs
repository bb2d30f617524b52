//! What the programs of iterators share: the first call walks the whole list.
//!
//! Walks run in an iterator because it runs in the context of the reader and can be preempted. What
//! it iterates over does not matter.

use core::{ffi::c_void, ptr};

use aya_ebpf::{helpers::generated::bpf_loop, maps::Array};

/// Steps of a walk: the most that `bpf_loop` makes, and more than there can be threads and
/// processes.
const MAX_STEPS: u32 = 1 << 23;

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
unsafe fn is_first_call(ctx: *mut c_void) -> bool {
    // SAFETY: the context begins with a pointer to the iterator's meta data, never null.
    unsafe {
        let meta = ctx.cast::<*const Meta>().read();
        (&raw const (*meta).number).read_volatile() == 0
    }
}

/// The walk that is under way, in the map of one value that holds it: there is one at a time.
#[inline(always)]
#[expect(
    clippy::mut_from_ref,
    reason = "a map is shared memory; one walk at a time borrows its value"
)]
pub(crate) fn under_way<W>(walk: &'static Array<W>) -> Option<&'static mut W> {
    // SAFETY: nobody else touches it during a walk.
    walk.get_ptr_mut(0).map(|walk| unsafe { &mut *walk })
}

/// Walks the list in the first call: `begin` finds its start, and `step` is called until 1 is
/// returned. An iterator's program runs under RCU: no entry is freed meanwhile, and an entry that
/// is taken out of the list still leads to the next one.
///
/// # Safety
///
/// `ctx` is the context of an iterator's program.
#[inline(always)]
pub(crate) unsafe fn walk(
    ctx: *mut c_void,
    begin: impl FnOnce() -> Option<()>,
    step: extern "C" fn(u32, *mut c_void) -> i64,
) -> i32 {
    // SAFETY: the caller's promise.
    if unsafe { is_first_call(ctx) } && begin().is_some() {
        // SAFETY: the callback is a function of the type that the helper calls.
        unsafe {
            bpf_loop(MAX_STEPS, step as *mut c_void, ptr::null_mut::<c_void>(), 0);
        }
    }
    0
}
