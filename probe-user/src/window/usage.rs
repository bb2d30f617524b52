//! Deltas of each owner between two snapshots ([`Gains`]). Rows are sorted once instead of kept in
//! trees.

use std::collections::BTreeMap;

use probe_common::{Field as _, UsageKey, UsageRow};

use super::{
    Owner, Usage,
    group_counts::{self, CpuRow, GroupCounts},
};
use crate::{
    machine::topology::Topology,
    plan::Plan,
    snapshot::{GrowingRow as _, Snapshot},
};

/// Deltas by owner; also by the CPU's socket and owner, if the snapshot has the topology.
#[derive(Debug, Default)]
pub(super) struct Gains {
    pub(super) usage: BTreeMap<Owner, Usage>,
    pub(super) on_socket: BTreeMap<(u32, Owner), Usage>,
}

impl Gains {
    /// The difference of two snapshots of one session with this plan.
    ///
    /// The enabled time of a multiplexed group's row covers only the group's own intervals. Here it
    /// becomes the sum over all groups that are multiplexed on the same CPU.
    pub(super) fn between(earlier: &Snapshot, later: &Snapshot, plan: &Plan) -> Self {
        let freed = later.freed.iter().map(|(key, row)| (key, row));
        let mut rows: Vec<(&UsageKey, &UsageRow)> = later.rows.iter().chain(freed).collect();
        // Most rows are already in order, which makes this sort fast.
        rows.sort_by_key(|(key, _)| *key);
        let mut before = earlier.rows.iter().peekable();
        let mut usage: Vec<(Owner, Usage)> = Vec::new();
        let mut on_socket: Vec<((u32, Owner), Usage)> = Vec::new();
        let mut owner_gains = OwnerGains::new(plan, later.topology.as_deref());
        for rows in rows.chunk_by(|(a, _), (b, _)| Owner::from(*a) == Owner::from(*b)) {
            owner_gains.clear();
            for (key, now) in rows {
                while before.next_if(|(before, _)| before < key).is_some() {}
                let same = before.peek().filter(|(before, _)| before == key);
                let delta = now.since(same.map(|(_, row)| *row));
                owner_gains.charge(key.cpu.into(), key.group.into(), &delta);
            }
            let owner = Owner::from(rows[0].0);
            let owner_start = on_socket.len();
            let sum = owner_gains.sum(|socket, group, counted| {
                let existing = on_socket[owner_start..]
                    .iter()
                    .position(|((existing, _), _)| *existing == socket);
                let at = owner_start + existing.unwrap_or(on_socket.len() - owner_start);
                if at == on_socket.len() {
                    on_socket.push(((socket, owner), vec![None; plan.groups.len()]));
                }
                let sum = on_socket[at].1[group].get_or_insert_with(GroupCounts::default);
                sum.add(counted);
            });
            usage.push((owner, sum));
        }
        Self {
            usage: usage.into_iter().collect(),
            on_socket: on_socket.into_iter().collect(),
        }
    }
}

/// The deltas of one owner at a time.
struct OwnerGains<'a> {
    plan: &'a Plan,
    topology: Option<&'a Topology>,
    /// The CPUs with rows of the owner, and the kind of their cores.
    cpus: Vec<(u32, Option<usize>)>,
    /// One row per counter group for each CPU in `cpus`.
    rows: Vec<Option<UsageRow>>,
    /// The groups that are multiplexed on each CPU.
    multiplexed: BTreeMap<u32, Vec<usize>>,
    /// The rows of the group that [`Self::sum`] is at.
    group_rows: Vec<CpuRow>,
    /// The estimates of `group_rows`.
    estimates: Vec<GroupCounts>,
}

impl<'a> OwnerGains<'a> {
    fn new(plan: &'a Plan, topology: Option<&'a Topology>) -> Self {
        Self {
            plan,
            topology,
            cpus: Vec::new(),
            rows: Vec::new(),
            multiplexed: BTreeMap::new(),
            group_rows: Vec::new(),
            estimates: Vec::new(),
        }
    }

    fn clear(&mut self) {
        self.cpus.clear();
        self.rows.clear();
    }

    /// Adds the delta of a row. The rows of one CPU must be added consecutively.
    fn charge(&mut self, cpu: u32, group: usize, delta: &UsageRow) {
        let Self {
            plan, multiplexed, ..
        } = self;
        let groups = plan.groups.len();
        if self.cpus.last().is_none_or(|(last, _)| *last != cpu) {
            self.cpus.push((cpu, plan.kind_of_core(cpu)));
            self.rows.resize(self.rows.len() + groups, None);
        }
        let at = self.rows.len() - groups;
        let rows = &mut self.rows[at..];
        let mut group_delta = *delta;
        if (plan.fixed()..groups).contains(&group) {
            let sharing_groups = multiplexed
                .entry(cpu)
                .or_insert_with(|| plan.multiplexed_groups(cpu).collect());
            for sharing in sharing_groups {
                rows[*sharing].get_or_insert(UsageRow::ZERO).enabled += delta.enabled;
            }
            group_delta.enabled = 0;
        }
        if let Some(row) = rows.get_mut(group) {
            // Sums wrap at 2^64 like the counters themselves. A delta has no generation.
            row.get_or_insert(UsageRow::ZERO).add(&group_delta);
        }
    }

    /// The sum over CPUs. If sockets are known, `on_socket` is called with the socket, the group
    /// and the counts of each CPU.
    fn sum(&mut self, mut on_socket: impl FnMut(u32, usize, &GroupCounts)) -> Usage {
        let groups = self.plan.groups.len();
        let mut usage = vec![None; groups];
        for (group, sum) in usage.iter_mut().enumerate() {
            let rows = self.rows.iter().skip(group).step_by(groups);
            let rows = self.cpus.iter().zip(rows);
            self.group_rows.clear();
            self.group_rows
                .extend(rows.filter_map(|((cpu, kind), row)| {
                    let (cpu, kind, row) = (*cpu, *kind, (*row)?);
                    Some(CpuRow { cpu, kind, row })
                }));
            group_counts::estimate(&self.group_rows, &mut self.estimates);
            for (row, counted) in self.group_rows.iter().zip(&self.estimates) {
                sum.get_or_insert_with(GroupCounts::default).add(counted);
                if let Some(topology) = self.topology {
                    // A CPU of no known socket counts as one of socket 0.
                    on_socket(topology.socket(row.cpu).unwrap_or(0), group, counted);
                }
            }
        }
        usage
    }
}
