//! The open slices of idle CPUs. Their length follows from the clock. Measuring it would wake the
//! CPUs, and would be the only cost of pmuscope that is noticeable on an idle machine.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use probe_common::{CgroupId, CpuState, UsageKey, UsageRow};

use crate::{
    plan::Plan,
    session::{CountedCpus, EbpfObject, SessionError},
    snapshot::UsageRows,
    sys::clock::nanos,
};

/// Idle rows of the last snapshot. They are lower bounds for the next one: no row may decrease, and
/// the clock and the counters may differ by nanoseconds.
#[derive(Default)]
pub(crate) struct LastIdleRows(HashMap<UsageKey, UsageRow>);

impl LastIdleRows {
    /// Adds the open slices, up to `until`, of CPUs that were idle `before` the flush and so were
    /// not flushed.
    pub(super) fn add_open_slices(
        &mut self,
        object: &EbpfObject,
        plan: &Plan,
        cpus: &CountedCpus,
        rows: &mut UsageRows,
        [before, after]: [&BTreeMap<u32, CpuState>; 2],
        until: Duration,
    ) -> Result<(), SessionError> {
        let time = nanos(until);
        for cpu in cpus.numbers() {
            let (Some(before), Some(after)) = (before.get(&cpu), after.get(&cpu)) else {
                continue;
            };
            if before.owner != CgroupId::IDLE || after.armed != CpuState::ARMED {
                continue;
            }
            let is_same_slice = before.counts.charges == after.counts.charges;
            for group in (0..plan.groups.len()).filter(|group| plan.counts_on(*group, cpu)) {
                let key = idle_key(cpu, group);
                if !is_same_slice {
                    // The CPU woke since the flush. Its row may have been read before the charge at
                    // the wake-up, so it is read again.
                    if let Some(row) = object.maps.usage.get(&key)? {
                        *rows.get_or_zero(key) = row;
                    }
                } else if let Some(row) = rows.get_mut(&key)
                    // Of the multiplexed groups only one was running.
                    && (group < plan.fixed() || group as u64 == after.live)
                {
                    // If a full map has no row for idle, the slice will be charged to overflow.
                    let open = OpenSlice {
                        since_switch: time.saturating_sub(after.since),
                        since_read: time.saturating_sub(after.read),
                    };
                    add_open_slice(plan, group, row, &open);
                }
            }
        }
        // Removes idle rows without any charge.
        rows.retain(|key, row| key.cgroup != CgroupId::IDLE || *row != UsageRow::ZERO);
        let Self(last) = self;
        // Idle rows come first: no cgroup has a smaller id.
        for (key, row) in rows
            .iter_mut()
            .take_while(|(key, _)| key.cgroup == CgroupId::IDLE)
        {
            if let Some(last) = last.get(key) {
                raise_to_last(row, last);
            }
            // An idle row is one row since the start, and is never freed. Without a creation time
            // it stays the same row, also when its first charge inserts it.
            row.made = 0;
            last.insert(*key, *row);
        }
        Ok(())
    }
}

/// Inserts the idle rows of a CPU while the map still has room. A snapshot adds idle's open slice
/// to its row before the slice is charged, so the row must exist, even if the map has filled up
/// since.
pub(crate) fn make_idle_rows(object: &EbpfObject, plan: &Plan, cpu: u32) {
    for group in (0..plan.groups.len()).filter(|group| plan.counts_on(*group, cpu)) {
        let key = idle_key(cpu, group);
        // A CPU that was offline still has its rows. If the map is too small for them, idle's time
        // goes to the overflow row.
        if object.maps.usage.add(&key, &UsageRow::ZERO).is_err() {
            return;
        }
    }
}

fn idle_key(cpu: u32, group: usize) -> UsageKey {
    UsageKey {
        cgroup: CgroupId::IDLE,
        tgid: 0,
        cpu: u16::try_from(cpu).expect("the key's CPU is 16 bits wide"),
        group: u16::try_from(group).expect("at most GROUPS"),
    }
}

/// Length of the open slice, in nanoseconds, from two starting points.
struct OpenSlice {
    /// Time since the switch that opened the slice: the delta of clock counters.
    since_switch: u64,
    /// Time since the counters were last read: the delta of enabled and running time.
    since_read: u64,
}

/// Adds the open slice to the clock counts and times of the row. Groups with a hardware leader are
/// left out: their time on the PMU is unknown until the next wake-up.
fn add_open_slice(plan: &Plan, group: usize, row: &mut UsageRow, open: &OpenSlice) {
    let events = &plan.groups[group];
    if events
        .first()
        .is_none_or(|first| first.counter.is_hardware())
    {
        return;
    }
    for (count, planned) in row.counts.iter_mut().zip(events) {
        if plan.columns[planned.column].clock {
            *count += open.since_switch;
        }
    }
    row.enabled += open.since_read;
    row.running += open.since_read;
}

/// Raises each value of the row to at least its value in the last snapshot.
fn raise_to_last(row: &mut UsageRow, last: &UsageRow) {
    for (count, last) in row.counts.iter_mut().zip(last.counts) {
        *count = (*count).max(last);
    }
    row.enabled = row.enabled.max(last.enabled);
    row.running = row.running.max(last.running);
}
