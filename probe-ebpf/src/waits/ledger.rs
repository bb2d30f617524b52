//! The ledger of waits: each nanosecond of a wait is in the row of the owner that waited and the
//! cgroup that ran on that CPU meanwhile. So the rows of an owner add up to its waits.
//!
//! Functions are not inlined where the stacks of their callers would be too large for Linux 6.1.

use core::ffi::c_void;

use aya_ebpf::{
    Global,
    bindings::{BPF_F_NO_PREALLOC, BPF_NOEXIST},
    helpers::generated::bpf_loop,
    macros::map,
    maps::{HashMap, PerCpuArray},
};
use probe_common::{CgroupId, CpuState, WaitKey, WaitSlices, WaitSpan};

use crate::{
    account::{BACK_OFF, E2BIG, preallocate},
    asm::add_shared,
    owner::Owner,
    state::{self, cpu},
};

/// 1: the ledger is kept.
#[unsafe(no_mangle)]
static WITH_LEDGER: Global<u8> = Global::new(0);

/// Nanoseconds by the owner that waited and the cgroup that ran. User space sets the size.
#[map]
static WAITS: HashMap<WaitKey, u64> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

/// The last slices of each CPU.
#[map]
static SLICES: PerCpuArray<WaitSlices> = PerCpuArray::with_max_entries(1, 0);

/// The slices of a CPU. That CPU writes them, mostly under the lock of its run queue; other CPUs
/// read them under this lock. Some writes, such as after an unseen switch, do not hold it: a reader
/// may then take one owner for another.
#[inline(always)]
fn slices_of(cpu: u32) -> Option<&'static mut WaitSlices> {
    // SAFETY: the value of a map.
    unsafe { state::value_of_cpu(&SLICES, cpu).as_mut() }
}

/// A wait that is being divided.
struct Wait {
    /// The key of the row for the slice that is being added.
    key: WaitKey,
    span: WaitSpan,
}

/// Preallocates rows on this CPU: many cgroups may run during one wait, and each needs a row.
#[inline(never)]
pub(super) fn preallocate_rows() {
    let key = WaitKey {
        waiting: CgroupId::EARLIER,
        running: CgroupId::EARLIER,
        tgid: 0,
        cpu: cpu(),
    };
    preallocate(&WAITS, &key, &0);
}

/// Whether the ledger is kept.
#[inline(always)]
pub(super) fn is_on() -> bool {
    WITH_LEDGER.load() == 1
}

/// Ends the open slice at this time of the run queue's clock: its owner is about to change.
#[inline(always)]
pub(super) fn close_slice(state: &mut CpuState, end: u64) {
    // SAFETY: the value of this CPU, which other CPUs only read.
    if let Some(ring) = unsafe { SLICES.get_ptr_mut(0).and_then(|ring| ring.as_mut()) } {
        ring.close(state, end);
    }
}

/// Adds the time that the open slice's owner waited behind its own tasks. Call before the slice is
/// charged.
#[inline(never)]
pub(super) fn add_own_wait(state: &mut CpuState) {
    add(&key(state, state.owner), state.own_wait);
    state.own_wait = 0;
}

/// Adds a wait of the open slice's owner on another CPU. Its length is known from `run_delay`, but
/// not who ran meanwhile.
#[inline(never)]
pub(super) fn add_elsewhere(state: &CpuState, nanos: u64) {
    add(&key(state, CgroupId::OTHER_CPU), nanos);
}

/// The key of a row of the open slice's owner.
#[inline(always)]
fn key(state: &CpuState, running: CgroupId) -> WaitKey {
    WaitKey {
        waiting: state.owner,
        running,
        tgid: state.owner_tgid as u32,
        cpu: cpu(),
    }
}

/// Divides a wait of the open slice's owner: `nanos` in this CPU's run queue since `queued`.
#[inline(always)]
pub(super) fn divide(state: &mut CpuState, queued: u64, nanos: u64) {
    if queued >= state.slice_began {
        state.own_wait += nanos;
    } else if nanos != 0 {
        let end = queued + nanos;
        divide_earlier(state, WaitSpan { queued, end });
    }
}

/// Divides a wait that began before the open slice, for the open slice's owner.
#[inline(always)]
fn divide_earlier(state: &mut CpuState, mut span: WaitSpan) {
    state.own_wait += span.take_since(state.slice_began);
    if span.queued >= state.previous_slice_began {
        // Most waits end here, without a look at the ring.
        add(&key(state, state.previous_owner), span.end - span.queued);
    } else {
        divide_among_closed_slices(&mut Wait {
            key: key(state, state.owner),
            span,
        });
    }
}

/// Divides a wait that `owner` spent in the run queue of `cpu`. False if that CPU is not counting,
/// or may be changing its slices.
#[inline(always)]
pub(super) fn divide_on_cpu(owner: Owner, cpu: u32, queued: u64, end: u64) -> bool {
    let (Some(ring), Some(state)) = (slices_of(cpu), state::of_cpu(cpu)) else {
        return false;
    };
    // A busy CPU may be changing its slices without the lock of its run queue.
    if state.armed != CpuState::ARMED || state.busy == 1 {
        return false;
    }
    let mut wait = Wait {
        key: WaitKey {
            waiting: owner.cgroup,
            running: state.owner,
            tgid: owner.tgid,
            cpu,
        },
        span: WaitSpan { queued, end },
    };
    let part = wait.span.take_since(ring.back(1).end);
    if part != 0 {
        add(&wait.key, part);
    }
    if !wait.span.is_divided() {
        divide_among_closed_slices(&mut wait);
    }
    true
}

/// Divides the part of a wait that precedes the open slice.
#[inline(never)]
fn divide_among_closed_slices(wait: &mut Wait) {
    let Some(ring) = slices_of(wait.key.cpu) else {
        return;
    };
    // SAFETY: the callback is a function of the type that the helper calls, and its context is on a
    // stack.
    unsafe {
        bpf_loop(
            ring.known() as u32,
            step as *mut c_void,
            (&raw mut *wait).cast(),
            0,
        );
    }
    if !wait.span.is_divided() {
        wait.key.running = CgroupId::EARLIER;
        add(&wait.key, wait.span.end - wait.span.queued);
    }
}

/// Adds the part of the wait in one slice, from the newest slice on. Returns 1 when all is added.
#[inline(never)]
extern "C" fn step(index: u32, wait: *mut c_void) -> i64 {
    // SAFETY: the context that `divide_among_closed_slices` passes.
    let wait = unsafe { &mut *wait.cast::<Wait>() };
    let Some(ring) = slices_of(wait.key.cpu) else {
        return 1;
    };
    let back = u64::from(index) + 1;
    let part = wait.span.take_since(ring.back(back + 1).end);
    if part != 0 {
        wait.key.running = ring.back(back).owner;
        add(&wait.key, part);
    }
    i64::from(wait.span.is_divided())
}

/// Adds nanoseconds to a row, atomically: programs that interrupt each other call this.
#[inline(always)]
fn add(key: &WaitKey, nanos: u64) {
    if !add_to_row(key, nanos) {
        add_row(key, nanos);
    }
}

/// Adds a row. Not inlined: the stacks of its callers would be too large.
#[inline(never)]
fn add_row(key: &WaitKey, nanos: u64) {
    let Some(state) = state::this_cpu() else {
        return;
    };
    if state.read >= state.retry_waits {
        let inserted = WAITS.insert(key, nanos, BPF_NOEXIST.into());
        // Another program may have inserted the row in between.
        if inserted.is_ok() || add_to_row(key, nanos) {
            return;
        }
        // Backs off, as the count rows do: the kernel takes long to find that the map is full.
        if inserted == Err(E2BIG) {
            state.retry_waits = state.read + BACK_OFF;
        }
    }
    // SAFETY: a word of this CPU's state.
    unsafe { add_shared(&raw mut state.unplaced_wait, nanos) };
}

#[inline(always)]
fn add_to_row(key: &WaitKey, nanos: u64) -> bool {
    let row = WAITS.get_ptr_mut(key);
    // SAFETY: the value of a map.
    row.map(|row| unsafe { add_shared(row, nanos) }).is_some()
}
