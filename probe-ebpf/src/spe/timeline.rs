//! The timeline: each CPU's last switches. It finds the owner of records without a thread id by
//! their time.

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
    /// 1: the timeline is recorded.
    SPE_WITH_TIMELINE;
}

/// A ring of switches. User space sets its size to [`TIMELINE`] if it attaches `spe_switch`.
#[map]
static SPE_SWITCHES: PerCpuArray<SpeSwitch> = PerCpuArray::with_max_entries(1, 0);

/// Rounds of a binary search over the ring.
const ROUNDS: u32 = TIMELINE.ilog2() + 1;

/// Records a switch if it changes the owner.
#[inline(always)]
pub(crate) fn record_switch(next: Task, since: u64) {
    let Some(cpu) = cpu() else { return };
    let cgroup = owner_of(next).cgroup;
    let tgid = u64::from(next.tgid());
    let recorded = cpu.switches;
    if recorded > 0
        && let Some(last) = entry(recorded - 1)
        && last.cgroup == cgroup
        && last.tgid == tgid
    {
        return;
    }
    if let Some(slot) = SPE_SWITCHES.get_ptr_mut(recorded as u32 & (TIMELINE - 1)) {
        // SAFETY: a value of this CPU. Chunks, which interrupt this, search neither this entry,
        // until the count below is raised, nor the one that it replaces.
        unsafe {
            *slot = SpeSwitch {
                since,
                cgroup,
                tgid,
            };
        }
        cpu.switches = recorded + 1;
    }
}

#[inline(always)]
fn entry(number: u64) -> Option<&'static SpeSwitch> {
    SPE_SWITCHES.get(number as u32 & (TIMELINE - 1))
}

/// The owner of the task that ran on this CPU at `time`.
#[inline(always)]
pub(super) fn owner(cpu: &mut SpeCpu, time: u64) -> Owner {
    let end = cpu.switches;
    if end == 0 || time == NO_TIME {
        return unattributed(cpu, Unattributed::NoThread);
    }
    // Searches [from, to) for the last entry that is not later than `time`. Leaves out the oldest
    // entry: an interrupted `record_switch` may be replacing it.
    let mut from = end.saturating_sub(u64::from(TIMELINE) - 1);
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
