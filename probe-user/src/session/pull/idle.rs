//! The open slice of a CPU that sleeps. Waking it for a number that the clock gives would be
//! the one cost of pmuscope that an idle machine could notice.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use probe_common::{CgroupId, CpuState, UsageKey, UsageRow};

use crate::{
    plan::Plan,
    session::{Session, SessionError},
    snapshot::UsageRows,
    sys::clock::nanos,
};

/// `PERF_TYPE_SOFTWARE`: such a group is always on, so its times are the clock's too.
const SOFTWARE: u32 = 1;

/// Idle rows of the last snapshot: the clock and the counters may differ by nanoseconds, and no
/// row may ever go back.
#[derive(Default)]
pub(crate) struct IdleRows(HashMap<UsageKey, UsageRow>);

impl Session {
    /// Makes the idle rows of a CPU, while there is room. A snapshot shows idle's open slice before
    /// it is charged, so idle must have its row then, also where the map has filled up since.
    pub(crate) fn make_idle_rows(&self, cpu: u32) -> Result<(), SessionError> {
        let plan = &self.config.plan;
        let usage = &self.object.maps.usage;
        for group in (0..plan.groups.len()).filter(|group| plan.counts_on(*group, cpu)) {
            let key = idle_key(cpu, group);
            // A CPU that was offline still has its rows. A map that is too small has none: idle's
            // time is then in the overflow row.
            if usage.get(&key)?.is_none() && usage.put(&key, &UsageRow::ZERO).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Adds the open slices of CPUs that were idle before the flush, and so were not flushed, as
    /// far as `until`.
    pub(super) fn add_idle(
        &mut self,
        rows: &mut UsageRows,
        before: &BTreeMap<u32, CpuState>,
        after: &BTreeMap<u32, CpuState>,
        until: Duration,
    ) -> Result<(), SessionError> {
        let time = nanos(until);
        for counters in &self.counters {
            let cpu = &counters.cpu;
            let (Some(before), Some(after)) = (before.get(cpu), after.get(cpu)) else {
                continue;
            };
            if before.owner != CgroupId::IDLE || after.armed != CpuState::ARMED {
                continue;
            }
            let same_slice = before.counts.charges == after.counts.charges;
            let plan = &self.config.plan;
            for group in (0..plan.groups.len()).filter(|group| plan.counts_on(*group, counters.cpu))
            {
                let key = idle_key(counters.cpu, group);
                if !same_slice {
                    // It woke while the rows were read: the row may have been read before that
                    // charge.
                    if let Some(row) = self.object.maps.usage.get(&key)? {
                        *rows.get_or_zero(key) = row;
                    }
                } else if let Some(row) = rows.get_mut(&key)
                    // Of the groups that take turns only one was live.
                    && (group < plan.fixed() || group as u64 == after.live)
                {
                    // Without a row in a map that is full, the slice will be charged to overflow.
                    let open = Open {
                        clock: time.saturating_sub(after.since),
                        live: time.saturating_sub(after.read),
                    };
                    extend(plan, group, row, &open);
                }
            }
        }
        // Those that nothing was charged to yet.
        rows.retain(|key, row| key.cgroup != CgroupId::IDLE || *row != UsageRow::ZERO);
        let IdleRows(last) = &mut self.idle;
        // They are the first: no cgroup has a smaller id.
        for (key, row) in rows
            .iter_mut()
            .take_while(|(key, _)| key.cgroup == CgroupId::IDLE)
        {
            if let Some(last) = last.get(key) {
                never_back(row, last);
            }
            // It is one row from the start, also before its first charge makes it, and is never
            // freed.
            row.made = 0;
            last.insert(*key, *row);
        }
        Ok(())
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

/// Nanoseconds of the open slice: by the clock of the switch that it began with, and since the
/// counters were read.
struct Open {
    clock: u64,
    live: u64,
}

/// Adds the open slice to the clocks of the row. For a group that hardware leads it is not known
/// how long it was on the PMU in that slice: the next wake-up brings the counts.
fn extend(plan: &Plan, group: usize, row: &mut UsageRow, open: &Open) {
    let events = &plan.groups[group];
    if events
        .first()
        .is_none_or(|first| first.counter.type_ != SOFTWARE)
    {
        return;
    }
    for (count, planned) in row.counts.iter_mut().zip(events) {
        if plan.columns[planned.column].clock {
            *count += open.clock;
        }
    }
    row.enabled += open.live;
    row.running += open.live;
}

fn never_back(row: &mut UsageRow, last: &UsageRow) {
    for (count, last) in row.counts.iter_mut().zip(last.counts) {
        *count = (*count).max(last);
    }
    row.enabled = row.enabled.max(last.enabled);
    row.running = row.running.max(last.running);
}
