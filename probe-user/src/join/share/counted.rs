//! Weights counted by the CPUs' counters.

use std::collections::{BTreeMap, BTreeSet};

use probe_common::CgroupId;

use super::{Method, SocketWeights, Weight, Weights};
use crate::{
    plan::{CountSource, PlannedWeight},
    window::{GroupCounts, Owner, RunningTime, Window},
};

impl Weights {
    /// The counts of a weight's counters in a window, by socket and owner.
    ///
    /// An owner whose counts are unknown for most of its time, since the counters were rotated out,
    /// is unseen. If unseen owners have more than half of the CPU time, the known counts explain
    /// less than half of the traffic, and the whole socket counts as rotated out.
    #[must_use]
    pub fn counted(planned: &PlannedWeight, window: &Window) -> Self {
        let mut sockets: BTreeMap<u32, SocketWeights> = BTreeMap::new();
        // Sockets with an owner that was counted.
        let mut seen: BTreeSet<u32> = BTreeSet::new();
        for ((socket, owner), usage) in &window.on_socket {
            let row = |place: CountSource| -> Option<(&GroupCounts, usize)> {
                let CountSource::Core { group, at } = place else {
                    return None;
                };
                Some((usage.get(group)?.as_ref()?, at))
            };
            let Some((all, at)) = row(planned.all) else {
                continue;
            };
            let of_socket = sockets.entry(*socket).or_default();
            of_socket.apart = planned.remote.is_some();
            let enabled = all.enabled;
            let time = if is_idle(*owner, window) { 0 } else { enabled };
            of_socket.time = of_socket.time.saturating_add(time);
            let Some(all) = estimate(all, at) else {
                of_socket.unseen.insert(*owner, time);
                continue;
            };
            if enabled > 0 {
                seen.insert(*socket);
            }
            let remote = planned
                .remote
                .and_then(row)
                .and_then(|(row, at)| estimate(row, at));
            of_socket.saturated |= [Some(all), remote]
                .iter()
                .flatten()
                .any(|weight| weight.weight == u64::MAX);
            let (local, remote) = match (planned.remote, planned.local) {
                // Without a count of remote accesses, each owner is assumed to access the memory of
                // all sockets in the same proportion.
                (None, _) => (all, all),
                (Some(_), true) => (all, remote.unwrap_or_default()),
                (Some(_), false) => split(all, remote.unwrap_or_default()),
            };
            of_socket.local.insert(*owner, local);
            of_socket.remote.insert(*owner, remote);
        }
        for (socket, of_socket) in &mut sockets {
            let unseen = of_socket
                .unseen
                .values()
                .fold(0, |sum: u64, it| sum.saturating_add(*it));
            let is_all_unseen = !of_socket.unseen.is_empty() && !seen.contains(socket);
            of_socket.rotated_out = is_all_unseen || unseen > of_socket.time / 2;
        }
        Self {
            method: Method::Counted {
                weight: planned.name.clone(),
                but: planned.but.clone(),
            },
            of: planned.of,
            by_memory: planned.local,
            sockets,
        }
    }
}

/// Splits all accesses into accesses to the memory of the own socket and of other sockets.
fn split(all: Weight, remote: Weight) -> (Weight, Weight) {
    let local = Weight {
        weight: all.weight.saturating_sub(remote.weight),
        samples: all.samples.saturating_sub(remote.samples),
        variance: all.variance + remote.variance,
        time: all.time,
    };
    let remote = Weight {
        weight: remote.weight.min(all.weight),
        samples: remote.samples.min(all.samples),
        ..remote
    };
    (local, remote)
}

/// Whether an owner's time is idle time. With hook `cgroup-switches` that includes the root
/// cgroup's time, which the hook cannot tell from idle.
pub(super) fn is_idle(owner: Owner, window: &Window) -> bool {
    owner.cgroup == CgroupId::IDLE || window.merged_idle && owner.cgroup == CgroupId::ROOT
}

/// The count estimated for the whole time, with the raw count; `None` if most of the time is
/// unknown.
fn estimate(row: &GroupCounts, at: usize) -> Option<Weight> {
    if row.enabled == 0 {
        return Some(Weight::default());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate of counts, rounded; one above 2^64 becomes u64::MAX, which is flagged"
    )]
    let weight = row.estimate(at)?.round() as u64;
    Some(Weight {
        weight,
        samples: row.counts[at],
        variance: row.covariance(at, at),
        time: RunningTime {
            enabled: row.enabled,
            running: row.running,
        },
    })
}

#[cfg(test)]
mod tests {
    use probe_common::UsageRow;

    use super::*;
    use crate::catalogue::MemoryTraffic;

    const MS: u64 = 1_000_000;

    /// A row of two counters. Times are in ms.
    fn row(counts: [u64; 2], enabled: u64, running: u64) -> GroupCounts {
        let mut row = UsageRow {
            enabled: enabled * MS,
            running: running * MS,
            ..UsageRow::ZERO
        };
        row.counts[..2].copy_from_slice(&counts);
        GroupCounts::of(&row)
    }

    fn planned(all: CountSource, remote: Option<CountSource>) -> PlannedWeight {
        PlannedWeight {
            name: "llc_read_misses".into(),
            of: MemoryTraffic::Reads,
            local: false,
            but: None,
            all,
            remote,
        }
    }

    fn weights(rows: &[(u32, u64, GroupCounts)], remote: bool) -> Weights {
        let at = |at| CountSource::Core { group: 0, at };
        let planned = planned(at(0), remote.then_some(at(1)));
        let mut window = crate::window::tests::empty();
        for (socket, cgroup, row) in rows {
            let owner = Owner {
                cgroup: CgroupId(*cgroup),
                tgid: 0,
            };
            window
                .on_socket
                .insert((*socket, owner), vec![Some(row.clone())]);
        }
        Weights::counted(&planned, &window)
    }

    fn plain(weights: &BTreeMap<Owner, Weight>) -> Vec<(u64, u64)> {
        let list = weights.iter();
        list.map(|(owner, weight)| (owner.cgroup.0, weight.weight))
            .collect()
    }

    #[test]
    fn local_is_what_is_not_remote() {
        let rows = [(0, 2, row([100, 30], 10, 10)), (1, 2, row([7, 9], 10, 10))];
        let apart = weights(&rows, true);
        assert_eq!(plain(&apart.sockets[&0].local), [(2, 70)]);
        assert_eq!(plain(&apart.sockets[&0].remote), [(2, 30)]);
        // The counters are read one after the other.
        assert_eq!(plain(&apart.sockets[&1].local), [(2, 0)]);
        let together = weights(&rows, false);
        assert_eq!(plain(&together.sockets[&0].local), [(2, 100)]);
        assert_eq!(plain(&together.sockets[&0].remote), [(2, 100)]);
    }

    #[test]
    fn multiplexed_counts_are_scaled() {
        let rows = [(0, 2, row([100, 0], 40, 10)), (0, 3, row([50, 0], 10, 10))];
        let weights = weights(&rows, false);
        let local = &weights.sockets[&0].local;
        assert_eq!(plain(local), [(2, 400), (3, 50)]);
        // Only real counts are samples, not estimated ones.
        let samples: Vec<u64> = local.values().map(|weight| weight.samples).collect();
        assert_eq!(samples, [100, 50]);
    }

    /// The traffic of a container that ran only while the weight was rotated out is unknown, not 0.
    #[test]
    fn an_owner_that_ran_while_rotated_out_is_unseen() {
        let idle = CgroupId::IDLE.0;
        let rows = [
            (0, 2, row([100, 0], 60, 10)),
            (0, 4, row([0, 0], 10, 0)),
            (0, idle, row([1, 0], 500, 10)),
            // It did not run at all.
            (0, 5, row([0, 0], 0, 0)),
            // An unseen owner has more than half of the time.
            (1, 2, row([9, 0], 10, 5)),
            (1, 3, row([0, 0], 11, 0)),
            // Only an unseen idle task ran.
            (2, idle, row([0, 0], 10, 0)),
            (2, 3, row([0, 0], 0, 0)),
            // An unseen owner has half of the time.
            (3, 2, row([9, 0], 10, 5)),
            (3, 3, row([0, 0], 10, 0)),
        ];
        let weights = weights(&rows, false);
        let first = &weights.sockets[&0];
        let unseen: Vec<_> = first
            .unseen
            .iter()
            .map(|(it, ns)| (it.cgroup.0, *ns))
            .collect();
        assert_eq!((unseen, first.time), (vec![(4, 10 * MS)], 70 * MS));
        let is_rotated_out = |socket| weights.sockets[&socket].rotated_out;
        assert_eq!([0, 1, 2, 3].map(is_rotated_out), [false, true, true, false]);
    }

    /// The hook that cannot tell the root cgroup from idle charges idle time to it.
    #[test]
    fn idle_time_has_no_traffic() {
        let root = CgroupId::ROOT.0;
        let rows = [(0, root, row([5, 0], 90, 90)), (0, 4, row([0, 0], 10, 0))];
        let rows: BTreeMap<_, _> = rows
            .map(|(socket, cgroup, row)| {
                let owner = Owner {
                    cgroup: CgroupId(cgroup),
                    tgid: 0,
                };
                ((socket, owner), vec![Some(row)])
            })
            .into();
        let planned = planned(CountSource::Core { group: 0, at: 0 }, None);
        let mut window = crate::window::tests::empty();
        window.on_socket = rows;
        for (merged_idle, time, out) in [(false, 100 * MS, false), (true, 10 * MS, true)] {
            window.merged_idle = merged_idle;
            let weights = Weights::counted(&planned, &window);
            let of_socket = &weights.sockets[&0];
            assert_eq!((of_socket.time, of_socket.rotated_out), (time, out));
        }
    }
}
