//! Weights from SPE samples of loads that memory served. The memory's uncore counters count these
//! loads too.

use std::collections::BTreeMap;

use probe_common::spe::{Class, Source};

use super::{Method, SocketWeights, Weight, Weights};
use crate::{
    catalogue::MemoryTraffic,
    window::{MemLevel, Owner, SampleUsage},
};

/// With fewer samples of a socket, the error of its shares exceeds 10%.
const MIN_SAMPLES: u64 = 100;

impl Weights {
    /// Weights from the samples of a window
    /// ([`SampleWindow::on_socket`](crate::window::SampleWindow::on_socket)): loads served by the
    /// socket's own memory, and loads served by another socket. A socket with few samples has no
    /// weights.
    #[must_use]
    pub fn sampled(on_socket: &BTreeMap<(u32, Owner), SampleUsage>) -> Self {
        let mut sockets: BTreeMap<u32, SocketWeights> = BTreeMap::new();
        for ((socket, owner), usage) in on_socket {
            let of_socket = sockets.entry(*socket).or_default();
            of_socket.apart = true;
            for (kind, counts) in usage {
                let Some((Class::Load, MemLevel::By(source))) = kind.access else {
                    continue;
                };
                let weights = match source {
                    Source::Dram => &mut of_socket.local,
                    Source::Remote | Source::RemoteDram => &mut of_socket.remote,
                    _ => continue,
                };
                let weight: &mut Weight = weights.entry(*owner).or_default();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "an estimate of operations, rounded"
                )]
                let operations = counts.operations.round() as u64;
                let sum = weight.weight.checked_add(operations);
                of_socket.saturated |= sum.is_none() || operations == u64::MAX;
                weight.weight = sum.unwrap_or(u64::MAX);
                weight.samples = weight.samples.saturating_add(counts.samples);
            }
        }
        sockets.retain(|_, of_socket| {
            let weights = of_socket.local.values().chain(of_socket.remote.values());
            weights.map(|weight| weight.samples).sum::<u64>() >= MIN_SAMPLES
        });
        Self {
            method: Method::Spe,
            of: MemoryTraffic::Reads,
            by_memory: true,
            sockets,
        }
    }
}

#[cfg(test)]
mod tests {
    use probe_common::CgroupId;

    use super::*;
    use crate::{join::share::NoShare, snapshot::SampleCounts, window::SampleKind};

    fn samples(count: u64) -> SampleCounts {
        SampleCounts {
            samples: count,
            operations: 1000.0 * f64::from(u32::try_from(count).unwrap()),
            ..SampleCounts::default()
        }
    }

    #[test]
    fn only_loads_that_memory_served_are_weights() {
        let owner = |cgroup| Owner {
            cgroup: CgroupId(cgroup),
            tgid: 0,
        };
        let by = |source| SampleKind::spe(Class::Load, MemLevel::By(source));
        let mut on_socket = BTreeMap::new();
        on_socket.insert(
            (0, owner(7)),
            SampleUsage::from([
                (by(Source::L1d), samples(500)),
                (by(Source::Dram), samples(300)),
                (by(Source::Remote), samples(4)),
                (by(Source::RemoteDram), samples(1)),
                (
                    SampleKind::spe(Class::Load, MemLevel::Number(77)),
                    samples(9),
                ),
                (SampleKind::spe(Class::Store, MemLevel::Unknown), samples(9)),
            ]),
        );
        on_socket.insert(
            (0, owner(8)),
            SampleUsage::from([(by(Source::L2), samples(9))]),
        );
        let few = SampleUsage::from([(by(Source::Dram), samples(99))]);
        on_socket.insert((1, owner(7)), few);
        let weights = Weights::sampled(&on_socket);
        let weight = |count| Weight {
            weight: 1000 * count,
            samples: count,
            ..Weight::default()
        };
        let first = &weights.sockets[&0];
        assert_eq!(first.local, BTreeMap::from([(owner(7), weight(300))]));
        assert_eq!(first.remote, BTreeMap::from([(owner(7), weight(5))]));
        assert_eq!(weights.sockets.get(&1), None);
        // A socket without samples served by memory has no shares by this method.
        on_socket.retain(|(_, owner), _| owner.cgroup.0 == 8);
        assert_eq!(
            Weights::sampled(&on_socket).tells_of(0),
            Err(NoShare::NoWeight)
        );
    }
}
