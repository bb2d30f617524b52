//! Who ran when, for records that name no thread: each CPU's last switches, joined by time.

use aya_ebpf::{Global, macros::map, maps::PerCpuArray};
use probe_common::spe::{SpeCpu, SpeKey, SpeSwitch, TIMELINE, Unattributed};

use super::{
    cpu,
    unattributed::{NO_TIME, unattributed},
};
use crate::{
    kernel::{Task, offsets},
    owner::{Owner, owner_of},
};

offsets! {
    /// 1: the timeline is kept.
    SPE_WITH_TIMELINE;
}

/// A ring. User space sets the size, [`TIMELINE`], where it attaches `spe_switch`.
#[map]
static SPE_SWITCHES: PerCpuArray<SpeSwitch> = PerCpuArray::with_max_entries(1, 0);

/// The rounds of a binary search over the ring.
const ROUNDS: u32 = TIMELINE.ilog2() + 1;

/// Notes a switch, if it changes the owner: others take no place in the ring.
#[inline(always)]
pub(crate) fn note(next: Task, since: u64) {
    let Some(cpu) = cpu() else { return };
    let cgroup = owner_of(next).cgroup;
    let tgid = u64::from(next.tgid());
    let taken = cpu.switches;
    if taken > 0
        && let Some(last) = entry(taken - 1)
        && last.cgroup == cgroup
        && last.tgid == tgid
    {
        return;
    }
    if let Some(place) = SPE_SWITCHES.get_ptr_mut(taken as u32 & (TIMELINE - 1)) {
        // SAFETY: a value of this CPU; chunks, which interrupt this, see it only by the count.
        unsafe {
            *place = SpeSwitch {
                since,
                cgroup,
                tgid,
            };
        }
        cpu.switches = taken + 1;
    }
}

#[inline(always)]
fn entry(number: u64) -> Option<&'static SpeSwitch> {
    SPE_SWITCHES.get(number as u32 & (TIMELINE - 1))
}

/// Who ran on this CPU at this time.
#[inline(always)]
pub(super) fn owner(cpu: &mut SpeCpu, time: u64) -> Owner {
    let end = cpu.switches;
    if end == 0 || time == NO_TIME {
        return unattributed(cpu, Unattributed::NoThread);
    }
    // The last entry that is not later: in [from, to).
    let mut from = end.saturating_sub(u64::from(TIMELINE));
    let mut to = end;
    let mut found = Owner {
        cgroup: SpeKey::UNATTRIBUTED,
        tgid: 0,
    };
    for _ in 0..ROUNDS {
        if from >= to {
            break;
        }
        let middle = from + (to - from) / 2;
        let Some(switch) = entry(middle) else { break };
        if switch.since <= time {
            found = Owner {
                cgroup: switch.cgroup,
                tgid: switch.tgid as u32,
            };
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    if found.cgroup == SpeKey::UNATTRIBUTED {
        return unattributed(cpu, Unattributed::BeforeTimeline);
    }
    found
}
