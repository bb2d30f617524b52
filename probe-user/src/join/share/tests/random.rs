//! Shares of random traffic: they add up to it, and no owner gets more than its quota.

use proptest::{collection::btree_map, prelude::*};

use super::*;

fn any_weights() -> impl Strategy<Value = BTreeMap<Owner, Weight>> {
    let weight = prop_oneof![
        Just(0),
        0..1_000_u64,
        any::<u32>().prop_map(u64::from),
        0..1_u64 << 60
    ];
    let weight = weight.prop_map(|weight| Weight {
        weight,
        samples: weight,
        ..Weight::default()
    });
    btree_map((1..40_u64).prop_map(owner), weight, 0..20)
}

fn any_socket() -> impl Strategy<Value = SocketWeights> {
    let unseen = btree_map((1..60_u64).prop_map(owner), 0..1_u64 << 40, 0..20);
    (any_weights(), any_weights(), unseen, 0..1_u64 << 40).prop_map(
        |(local, remote, unseen, seen)| SocketWeights {
            local,
            remote,
            apart: true,
            time: unseen.values().sum::<u64>() + seen,
            unseen,
            rotated_out: false,
            saturated: false,
        },
    )
}

fn any_traffic() -> impl Strategy<Value = Traffic> {
    let count = || prop_oneof![0..100_u64, 0..1_u64 << 62];
    let from = btree_map(1..4_u32, count(), 0..4);
    (count(), count(), count(), from).prop_map(|(measured, io, elsewhere, from_sockets)| Traffic {
        mismatch: MISMATCH,
        measured,
        skew: 0,
        io,
        from_sockets,
        elsewhere,
    })
}

proptest! {
    /// Shares, devices and the rest add up exactly to the measured traffic.
    #[test]
    fn nothing_is_lost(traffic in any_traffic(), list in prop::collection::vec(any_socket(), 4)) {
        let shares = sockets(list).cpu_reads(0, &traffic).unwrap();
        prop_assert_eq!(shares.measured(), traffic.measured);
    }

    /// Counts within the mismatch of another socket's traffic go to no owner.
    #[test]
    fn no_owner_gets_the_mismatch(
        traffic in any_traffic(),
        list in prop::collection::vec(any_socket(), 4),
    ) {
        let left = traffic.measured.saturating_sub(traffic.io);
        let sent: u128 = traffic.from_sockets.values().map(|count| u128::from(*count)).sum();
        let remote = u64::try_from(sent.min(u128::from(left))).unwrap();
        let shares = sockets(list).cpu_reads(0, &traffic).unwrap();
        prop_assert!(shares.unattributed >= fraction(remote, MISMATCH, 1000).min(left - remote));
    }

    /// In one division every owner gets its quota, or one count more; a zero weight gets nothing.
    #[test]
    fn every_owner_gets_its_quota(total in 0..1_u64 << 50, list in any_weights()) {
        let sum: u128 = list.values().map(|weight| u128::from(weight.weight)).sum();
        let socket = SocketWeights { local: list.clone(), ..SocketWeights::default() };
        let shares = sockets(vec![socket]).own(0, &traffic_of(total), false).unwrap();
        prop_assert_eq!(shares.measured(), total);
        if sum == 0 {
            prop_assert_eq!(shares.unattributed, total);
            return Ok(());
        }
        for (owner, weight) in list {
            let share = shares.owners[&owner].count;
            let due = u128::from(total) * u128::from(weight.weight) / sum;
            prop_assert!(u128::from(share) == due || u128::from(share) == due + 1);
            prop_assert!(weight.weight > 0 || share == 0);
        }
    }

    #[test]
    fn the_unit_of_the_weights_does_not_matter(
        total in 0..1_u64 << 50,
        list in btree_map(0..20_u64, 0..1_u64 << 30, 1..20),
        unit in 1..1_000_u64,
    ) {
        let list: Vec<_> = list.into_iter().collect();
        let scaled: Vec<_> = list.iter().map(|(cgroup, weight)| (*cgroup, weight * unit)).collect();
        let of = |list: &[(u64, u64)]| {
            counts(&sockets(vec![local(list)]).own(0, &traffic_of(total), false).unwrap())
        };
        prop_assert_eq!(of(&list), of(&scaled));
    }
}
