//! The lengths of waits, by owner. The waits of the open slice are counted in the CPU's state, so
//! that a switch that keeps the owner looks up no row.

use core::mem;

use aya_ebpf::{
    bindings::{BPF_F_NO_PREALLOC, BPF_NOEXIST},
    macros::map,
    maps::HashMap,
};
use probe_common::{CpuState, UsageKey, WAIT_BUCKETS, WaitTimes};

use crate::{
    account::{BACK_OFF, E2BIG, preallocate, spare_key},
    asm::masked,
    state::cpu,
};

/// Waits that ended, by owner and CPU. User space sets the size.
#[map]
static WAIT_TIMES: HashMap<UsageKey, WaitTimes> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

/// Preallocates rows on this CPU.
#[inline(never)]
pub(super) fn preallocate_rows(state: &CpuState) {
    preallocate(&WAIT_TIMES, &spare_key(), &state.wait_times);
}

/// Counts a wait of the owner of the open slice.
#[inline(always)]
pub(super) fn add(state: &mut CpuState, nanos: u64) {
    // Waits are often like the one before.
    if !WaitTimes::is_in(nanos, state.last_bucket) {
        state.other_buckets |= 1 << last_bucket(state);
        state.last_bucket = WaitTimes::bucket(nanos) as u64;
    }
    let bucket = last_bucket(state);
    state.wait_times.counts[bucket] += 1;
    state.wait_times.nanos += nanos;
}

#[inline(always)]
fn last_bucket(state: &CpuState) -> usize {
    masked::<WAIT_BUCKETS>(state.last_bucket as usize)
}

/// Whether a wait of the open slice was counted.
#[inline(always)]
pub(super) fn has_counted(state: &CpuState) -> bool {
    state.wait_times.counts[last_bucket(state)] != 0
}

/// Adds the waits of the open slice to its owner's row. Call before the slice is charged.
///
/// Not inlined: the stacks of its callers would be too large for Linux 6.1.
#[inline(never)]
pub(super) fn charge(state: &mut CpuState) {
    let key = UsageKey {
        cgroup: state.owner,
        tgid: state.owner_tgid as u32,
        cpu: cpu() as u16,
        group: 0,
    };
    let row = WAIT_TIMES.get_ptr_mut(key);
    // SAFETY: the value of a map. Its key has the CPU, and no program that charges interrupts
    // another one there.
    let mut row = unsafe { row.and_then(|row| row.as_mut()) };
    let inserted = row.is_none() && state.read >= state.retry_wait_times && {
        // By reference: a copy would be on the stack.
        let times: &WaitTimes = &state.wait_times;
        let inserted = WAIT_TIMES.insert(key, times, BPF_NOEXIST.into());
        if inserted == Err(E2BIG) {
            state.retry_wait_times = state.read + BACK_OFF;
        }
        inserted.is_ok()
    };
    let nanos = mem::take(&mut state.wait_times.nanos);
    if let Some(row) = &mut row {
        row.nanos += nanos;
    }
    charge_bucket(state, &mut row, inserted, last_bucket(state));
    let mut buckets = mem::take(&mut state.other_buckets);
    for _ in 0..WAIT_BUCKETS {
        if buckets == 0 {
            break;
        }
        let bucket = masked::<WAIT_BUCKETS>(buckets.trailing_zeros() as usize);
        buckets &= buckets - 1;
        charge_bucket(state, &mut row, inserted, bucket);
    }
}

#[inline(always)]
fn charge_bucket(
    state: &mut CpuState,
    row: &mut Option<&mut WaitTimes>,
    inserted: bool,
    bucket: usize,
) {
    let count = mem::take(&mut state.wait_times.counts[bucket]);
    match row {
        Some(row) => row.counts[bucket] += count,
        None if inserted => {}
        None => state.unplaced_waits += count,
    }
}
