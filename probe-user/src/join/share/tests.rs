//! Shares of known traffic, computed by hand.

mod between_sockets;
mod calibrated;
mod random;
mod turns;

use probe_common::CgroupId;

use super::*;
use crate::catalogue::MemoryTraffic;

fn owner(cgroup: u64) -> Owner {
    Owner {
        cgroup: CgroupId(cgroup),
        tgid: 0,
    }
}

fn weights(list: &[(u64, u64)]) -> BTreeMap<Owner, Weight> {
    let weight = |(cgroup, weight): &(u64, u64)| {
        let samples = *weight;
        (
            owner(*cgroup),
            Weight {
                weight: *weight,
                samples,
                ..Weight::default()
            },
        )
    };
    list.iter().map(weight).collect()
}

/// The method of a counted weight.
fn misses() -> Method {
    Method::Counted {
        weight: "llc_read_misses".into(),
        but: None,
    }
}

fn sockets(list: Vec<SocketWeights>) -> Weights {
    Weights {
        method: misses(),
        of: MemoryTraffic::Reads,
        by_memory: false,
        sockets: (0..).zip(list).collect(),
    }
}

fn local(list: &[(u64, u64)]) -> SocketWeights {
    SocketWeights {
        local: weights(list),
        ..SocketWeights::default()
    }
}

fn remote(list: &[(u64, u64)]) -> SocketWeights {
    SocketWeights {
        remote: weights(list),
        ..SocketWeights::default()
    }
}

fn counts(shares: &Shares) -> Vec<(u64, u64)> {
    let owners = shares.owners.iter();
    owners
        .map(|(owner, share)| (owner.cgroup.0, share.count))
        .collect()
}

/// Owners that ran for this long while the counters were rotated out.
fn unseen(list: &[(u64, u64)]) -> BTreeMap<Owner, u64> {
    let time = |(cgroup, time): &(u64, u64)| (owner(*cgroup), *time);
    list.iter().map(time).collect()
}

#[test]
fn the_last_counts_go_to_the_largest_fractions() {
    let traffic = Traffic {
        mismatch: MISMATCH,
        measured: 10,
        ..Traffic::default()
    };
    let weights = sockets(vec![local(&[(2, 1), (3, 1), (4, 4)])]);
    let shares = weights.cpu_reads(0, &traffic).unwrap();
    // The quotas are 1.67, 1.67 and 6.67: the first two ids get the remaining counts.
    assert_eq!(counts(&shares), [(2, 2), (3, 2), (4, 6)]);
}

/// An owner that read from both kinds of memory has the samples of both.
#[test]
fn reads_of_any_memory_weigh_together() {
    let socket = SocketWeights {
        remote: weights(&[(7, 30), (9, 70)]),
        apart: true,
        ..local(&[(7, 70), (8, 30)])
    };
    let weights = sockets(vec![socket]);
    let own = |of_remote| -> Vec<_> {
        let shares = weights.own(0, &traffic_of(1000), of_remote).unwrap();
        let owners = shares.owners.iter();
        let parts = owners.map(|(owner, part)| (owner.cgroup.0, part.count, part.samples));
        parts.collect()
    };
    assert_eq!(own(false), [(7, 500, 100), (8, 150, 30), (9, 350, 70)]);
    assert_eq!(own(true), [(7, 300, 30), (9, 700, 70)]);
}

/// The share has as many samples as counts.
#[test]
fn the_only_owner_of_a_device_has_all_its_traffic() {
    let shares = Shares::of_device(1_000, owner(7));
    assert_eq!(shares.method, Method::DeviceOwner);
    let part = shares.owners[&owner(7)];
    let known = (part.count, part.samples, part.uncertainty);
    assert_eq!((known, part.why_incomplete), ((1_000, 1_000, 0), None));
}

#[test]
fn owners_of_one_row_add_up() {
    let part = |count, samples, uncertainty, why_incomplete| OwnerShare {
        count,
        samples,
        uncertainty,
        why_incomplete,
        ..OwnerShare::default()
    };
    let mut sum = part(1, 2, 3, None);
    sum.add(&part(10, 20, u64::MAX, Some(NoShare::OwnerUnseen)));
    sum.add(&part(0, 0, 0, Some(NoShare::WithinMismatch)));
    // The first reason is kept.
    assert_eq!(sum, part(11, 22, u64::MAX, Some(NoShare::OwnerUnseen)));
}

#[test]
fn devices_come_first_and_have_no_owner() {
    let traffic = Traffic {
        mismatch: MISMATCH,
        measured: 1_000,
        io: 300,
        ..Traffic::default()
    };
    let weights = sockets(vec![local(&[(2, 3), (3, 1)])]);
    let shares = weights.cpu_reads(0, &traffic).unwrap();
    assert_eq!(
        (shares.io, counts(&shares)),
        (300, vec![(2, 525), (3, 175)])
    );
    // The counters of devices and of all reads are read one after the other, so devices may seem
    // to read more than the total.
    let traffic = Traffic {
        mismatch: MISMATCH,
        measured: 100,
        io: 101,
        ..Traffic::default()
    };
    assert_eq!(weights.cpu_reads(0, &traffic).unwrap().io, 100);
}

#[test]
fn without_a_weight_there_is_no_share() {
    let traffic = Traffic {
        mismatch: MISMATCH,
        measured: 10,
        ..Traffic::default()
    };
    assert_eq!(
        sockets(vec![]).cpu_reads(0, &traffic),
        Err(NoShare::NoWeight)
    );
    let out = SocketWeights {
        rotated_out: true,
        ..local(&[(2, 5)])
    };
    assert_eq!(
        sockets(vec![out.clone()]).cpu_reads(0, &traffic),
        Err(NoShare::RotatedOut)
    );
    // Counted without any access: the share is known to be 0.
    let nobody = sockets(vec![local(&[(2, 0)])])
        .cpu_reads(0, &traffic)
        .unwrap();
    assert_eq!(nobody.unattributed, 10);
    // Another socket with rotated-out counters takes part.
    let traffic = Traffic {
        mismatch: MISMATCH,
        from_sockets: [(1, 5)].into(),
        ..traffic
    };
    assert_eq!(
        sockets(vec![local(&[(2, 1)]), out]).cpu_reads(0, &traffic),
        Err(NoShare::RotatedOut)
    );
}

fn parts(list: &[(u64, u64)]) -> BTreeMap<Owner, OwnerShare> {
    let part = |(cgroup, count): &(u64, u64)| {
        let part = OwnerShare {
            count: *count,
            samples: *count,
            ..OwnerShare::default()
        };
        (owner(*cgroup), part)
    };
    list.iter().map(part).collect()
}

/// Two unseen owners have 15% of the CPU time. The shares of other owners may be too large by this
/// part, and the shares of unseen owners are unknown, not 0.
#[test]
fn an_unseen_owner_adds_to_the_error_of_others() {
    let mixed = SocketWeights {
        unseen: unseen(&[(4, 1_000), (5, 500), (6, 0)]),
        time: 10_000,
        ..local(&[(2, 300_000_000), (3, 100_000_000)])
    };
    let weights = sockets(vec![mixed]);
    let traffic = traffic_of(4_000_000);
    for shares in [
        weights.cpu_reads(0, &traffic),
        weights.own(0, &traffic, false),
    ] {
        let shares = shares.unwrap();
        assert_eq!(
            counts(&shares),
            [(2, 3_000_000), (3, 1_000_000), (4, 0), (5, 0), (6, 0)]
        );
        assert_eq!(shares.measured(), 4_000_000);
        let part = |cgroup| shares.owners[&owner(cgroup)];
        for seen in [2, 3] {
            let error = shares.relative_error(&part(seen)).unwrap();
            assert!(
                (error - hypot(0.15_f64, method::COUNTER_ERROR)).abs() < 1e-3,
                "{error}"
            );
            assert_eq!(part(seen).why_incomplete, None);
        }
        for (cgroup, uncertainty) in [(4, 400_000), (5, 200_000), (6, 0)] {
            assert_eq!(part(cgroup).uncertainty, uncertainty);
            assert_eq!(part(cgroup).why_incomplete, Some(NoShare::OwnerUnseen));
        }
        // A row of seen and unseen owners has both errors.
        let mut row = part(3);
        row.add(&part(4));
        assert_eq!((row.count, row.uncertainty), (1_000_000, 550_000));
        assert!(shares.relative_error(&row).unwrap() > 0.5);
    }
}

#[test]
fn fewer_samples_are_a_larger_error() {
    let shares = Shares {
        owners: parts(&[(2, 100), (3, 1_000_000), (4, 0)]),
        ..Shares::empty(misses())
    };
    let error = |cgroup| shares.relative_error(shares.owners.get(&owner(cgroup))?);
    assert!((error(2).unwrap() - hypot(0.1_f64, method::COUNTER_ERROR)).abs() < 1e-12);
    assert!(error(3) < error(2));
    assert_eq!((error(4), error(5)), (None, None));
    // Sampling has its own measured error.
    let by_samples = Shares {
        method: Method::Spe,
        ..shares.clone()
    };
    let part = &shares.owners[&owner(3)];
    let error = by_samples.relative_error(part).unwrap();
    assert!((error - hypot(0.001_f64, method::SAMPLE_ERROR)).abs() < 1e-12);
    assert!(error > shares.relative_error(part).unwrap());
}

/// One owner may have caused all or none of the traffic at a window's edges, 5% here. The standard
/// deviation of that is `1 / sqrt(3)` of it. A share of a tenth has three times this error, a share
/// of a half has it once.
#[test]
fn the_error_by_edges_is_larger_for_smaller_shares() {
    let traffic = Traffic {
        mismatch: MISMATCH,
        measured: 1_000_000_000_000,
        skew: 50_000_000_000,
        ..Traffic::default()
    };
    let parts = [
        (2, 100_000_000_000),
        (3, 500_000_000_000),
        (4, 400_000_000_000),
    ];
    let weights = sockets(vec![local(&parts)]);
    for shares in [
        weights.cpu_reads(0, &traffic),
        weights.own(0, &traffic, false),
    ] {
        let shares = shares.unwrap();
        let error = |cgroup| {
            shares
                .relative_error(&shares.owners[&owner(cgroup)])
                .unwrap()
        };
        let root = 3_f64.sqrt();
        assert!((error(2) - 0.15 / root).abs() < 1e-3, "{}", error(2));
        assert!((error(3) - 0.05 / root).abs() < 1e-3, "{}", error(3));
    }
    // A single owner caused all traffic.
    let alone = sockets(vec![local(&[(2, 7_000_000_000)])]);
    let shares = alone.cpu_reads(0, &traffic).unwrap();
    let error = shares.relative_error(&shares.owners[&owner(2)]).unwrap();
    assert!(error < 2.0 * method::COUNTER_ERROR, "{error}");
}

/// The mismatch of Grace's fabric.
const MISMATCH: u64 = 79;

fn traffic_of(measured: u64) -> Traffic {
    Traffic {
        mismatch: MISMATCH,
        measured,
        ..Traffic::default()
    }
}
