//! Weights from the counters of the CPUs.

use std::collections::BTreeMap;

use probe_common::UsageRow;

use super::{Method, SocketWeights, Weight, Weights};
use crate::{
    load::{Place, PlannedWeight, WeightKind},
    window::Window,
};

impl Method {
    pub(super) fn of(kind: WeightKind) -> Self {
        match kind {
            WeightKind::LlcReadMisses => Self::LlcReadMisses,
            WeightKind::BusReads => Self::BusReads,
            WeightKind::WriteBacks => Self::WriteBacks,
        }
    }
}

impl Weights {
    /// What the counters of a weight counted in a window, by socket and owner.
    #[must_use]
    pub fn counted(planned: &PlannedWeight, window: &Window) -> Self {
        let mut sockets: BTreeMap<u32, SocketWeights> = BTreeMap::new();
        // Whether any of a socket's rows had its turn.
        let mut ran: BTreeMap<u32, bool> = BTreeMap::new();
        for ((socket, owner), usage) in &window.on_socket {
            let count = |place: Place| -> Option<Option<u64>> {
                let Place::Core { group, at } = place else {
                    return None;
                };
                let row = usage.get(group)?.as_ref()?;
                Some(estimate(row, at))
            };
            let Some(all) = count(planned.all) else {
                continue;
            };
            let of_socket = sockets.entry(*socket).or_default();
            of_socket.apart = planned.remote.is_some();
            *ran.entry(*socket).or_default() |= all.is_some();
            let Some(all) = all else {
                continue;
            };
            let remote = planned.remote.and_then(count).flatten();
            let remote = remote.unwrap_or(0).min(all);
            let weight = |count| Weight {
                weight: count,
                samples: count,
            };
            of_socket.local.insert(*owner, weight(all - remote));
            // Where they are not told apart, who reads much reads much from everywhere.
            let remote = if planned.remote.is_some() {
                remote
            } else {
                all
            };
            of_socket.remote.insert(*owner, weight(remote));
        }
        for (socket, ran) in ran {
            if let Some(of_socket) = sockets.get_mut(&socket) {
                of_socket.rotated_out = !ran;
            }
        }
        Self {
            method: Method::of(planned.kind),
            sockets,
        }
    }
}

/// The count for the whole time, of a counter that had its turn; `None` where it had none.
fn estimate(row: &UsageRow, at: usize) -> Option<u64> {
    let count = u128::from(*row.counts.get(at)?);
    if row.running == 0 {
        return (row.enabled == 0).then_some(0);
    }
    let enabled = u128::from(row.enabled.max(row.running));
    u64::try_from(count * enabled / u128::from(row.running)).ok()
}

#[cfg(test)]
mod tests {
    use probe_common::CgroupId;

    use super::*;
    use crate::window::Owner;

    fn row(counts: [u64; 2], enabled: u64, running: u64) -> UsageRow {
        let mut row = UsageRow {
            enabled,
            running,
            ..UsageRow::ZERO
        };
        row.counts[..2].copy_from_slice(&counts);
        row
    }

    fn weights(rows: &[(u32, u64, UsageRow)], remote: bool) -> Weights {
        let at = |at| Place::Core { group: 0, at };
        let planned = PlannedWeight {
            kind: WeightKind::LlcReadMisses,
            all: at(0),
            remote: remote.then_some(at(1)),
        };
        let mut window = crate::window::tests::empty();
        for (socket, cgroup, row) in rows {
            let owner = Owner {
                cgroup: CgroupId(*cgroup),
                tgid: 0,
            };
            window.on_socket.insert((*socket, owner), vec![Some(*row)]);
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
    fn turns_are_made_up_for_and_none_at_all_is_said() {
        let rows = [
            (0, 2, row([100, 0], 40, 10)),
            (0, 3, row([50, 0], 10, 10)),
            (0, 4, row([0, 0], 10, 0)),
            (1, 2, row([0, 0], 10, 0)),
        ];
        let weights = weights(&rows, false);
        assert_eq!(plain(&weights.sockets[&0].local), [(2, 400), (3, 50)]);
        assert!(!weights.sockets[&0].rotated_out);
        assert!(weights.sockets[&1].rotated_out);
    }
}
