//! The counters. A slot shows a perf event, which user space puts into the slot's map for each
//! possible CPU, or a counter of [`waits`](crate::waits). Frozen globals give the number of slots
//! and their groups.

use core::{ffi::c_void, mem::MaybeUninit};

use aya_ebpf::{
    Global,
    bindings::{BPF_F_PRESERVE_ELEMS, bpf_perf_event_value},
    helpers::{bpf_ktime_get_ns, generated::bpf_perf_event_read_value},
    macros::map,
    maps::PerfEventArray,
};
use probe_common::{CpuState, SLOTS};

use crate::waits;

/// Number of slots in use: 0..EVENTS. A rotated group with fewer counters than another leaves the
/// last slots empty.
#[unsafe(no_mangle)]
pub(crate) static EVENTS: Global<u64> = Global::new(0);

/// Bit n: slot n is the last of its group.
#[unsafe(no_mangle)]
pub(crate) static GROUP_ENDS: Global<u64> = Global::new(0);

/// The first slot of the rotated group, after the slots of the groups that always run; EVENTS where
/// nothing is rotated.
#[unsafe(no_mangle)]
pub(crate) static ROTATED: Global<u64> = Global::new(0);

/// Bit n: slot n counts the nanoseconds of a clock (cpu-clock, task-clock).
#[unsafe(no_mangle)]
pub(crate) static CLOCKS: Global<u64> = Global::new(0);

macro_rules! slots {
    ($($slot:literal $name:ident),*) => {
        // Without the flag (kernel 5.10) the kernel removes the counters when the process that
        // inserted them closes the map, even if programs still count into pinned maps.
        $(#[map] static $name: PerfEventArray<u32> = PerfEventArray::new(BPF_F_PRESERVE_ELEMS);)*

        /// Reads a perf event of this CPU, with its enabled and running times. `place` is this
        /// CPU's index in the maps.
        #[inline(always)]
        fn read_event(slot: usize, place: u64) -> Option<bpf_perf_event_value> {
            let map: *const PerfEventArray<u32> = match slot {
                $($slot => &raw const $name,)*
                _ => return None,
            };
            let mut value = MaybeUninit::<bpf_perf_event_value>::uninit();
            // SAFETY: the map is a perf event array, and the buffer has the passed size. The helper
            // fills it, with zeros on failure.
            unsafe {
                let failed = bpf_perf_event_read_value(
                    map.cast_mut().cast::<c_void>(),
                    place,
                    value.as_mut_ptr(),
                    size_of::<bpf_perf_event_value>() as u32,
                );
                if failed == 0 { Some(value.assume_init()) } else { None }
            }
        }
    };
}

slots!(
    0 COUNTER0, 1 COUNTER1, 2 COUNTER2, 3 COUNTER3, 4 COUNTER4, 5 COUNTER5, 6 COUNTER6, 7 COUNTER7,
    8 COUNTER8, 9 COUNTER9, 10 COUNTER10, 11 COUNTER11, 12 COUNTER12, 13 COUNTER13, 14 COUNTER14,
    15 COUNTER15, 16 COUNTER16, 17 COUNTER17, 18 COUNTER18, 19 COUNTER19
);

/// Reads a counter of this CPU, with its enabled and running times if they are needed.
#[inline(always)]
pub(crate) fn read(
    state: &CpuState,
    slot: usize,
    needs_times: bool,
) -> Option<bpf_perf_event_value> {
    let Some(counter) = waits::counter(state, slot) else {
        return read_event(slot, state.place);
    };
    // A counter of waits always runs, so the current time serves as both times. Reading the clock
    // takes longer than all else here.
    let now = match needs_times {
        // SAFETY: the helper has no preconditions.
        true => unsafe { bpf_ktime_get_ns() },
        false => 0,
    };
    Some(bpf_perf_event_value {
        counter,
        enabled: now,
        running: now,
    })
}

/// The slots in use. The verifier knows [`EVENTS`], so it sees each slot's number as a constant.
#[inline(always)]
pub(crate) fn slots() -> impl Iterator<Item = usize> {
    let events = EVENTS.load();
    (0..SLOTS).take_while(move |slot| (*slot as u64) < events)
}
