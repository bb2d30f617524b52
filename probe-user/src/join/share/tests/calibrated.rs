//! Shares by a calibration.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    calibration::{CalibratedTraffic, MadeOn, Pattern},
    join::share::calibrated::Sockets,
};

/// A stream has a refill for each count of traffic, and a miss for every fourth. A chase has a
/// refill and a miss for each.
fn calibration() -> CalibratedTraffic {
    let pattern = |name: &str, counts: [f64; 2]| Pattern {
        name: name.to_owned(),
        counts: counts.to_vec(),
    };
    CalibratedTraffic {
        metric: "cmem_read_bandwidth".to_owned(),
        events: vec!["misses".to_owned(), "refills".to_owned()],
        spreads: vec![0.0, 0.0],
        patterns: vec![pattern("stream", [0.25, 1.0]), pattern("chase", [1.0, 1.0])],
        remote: Vec::new(),
    }
}

fn counted(name: &str, of_socket: SocketWeights) -> Weights {
    Weights {
        method: Method::Counted {
            weight: name.into(),
            but: None,
        },
        ..sockets(vec![of_socket])
    }
}

fn both(misses: SocketWeights, refills: SocketWeights) -> [Weights; 2] {
    [counted("misses", misses), counted("refills", refills)]
}

fn shares(
    of: &CalibratedTraffic,
    weights: &[Weights],
    socket: u32,
    traffic: &Traffic,
) -> Option<Result<Shares, NoShare>> {
    rows(of, weights, socket, traffic, &[], |owner| owner)
}

/// As [`shares`], with owners that `ran` without counts, and the row of each owner.
fn rows<R: Ord>(
    of: &CalibratedTraffic,
    weights: &[Weights],
    socket: u32,
    traffic: &Traffic,
    ran: &[u64],
    row_of: impl Fn(Owner) -> R,
) -> Option<Result<Shares, NoShare>> {
    let made_on = MadeOn::ThisMachine;
    let ran = ran.iter().map(|it| owner(*it));
    let sockets = Sockets {
        own: socket,
        other: None,
    };
    super::super::calibrated::shares(of, made_on, weights, sockets, traffic, ran, row_of)
}

/// Owners 2 and 3 are one row, 4 and 5 another, 6 a third. Owners 5 and 6 ran without counts.
#[test]
fn owners_of_a_row_have_one_share() {
    // No mixture has the counts of owner 2 alone.
    let misses = local(&[(2, 600_000), (3, 400_000), (4, 1_000_000)]);
    let refills = local(&[(2, 400_000), (3, 3_600_000), (4, 1_000_000)]);
    let weights = both(misses, refills);
    let traffic = traffic(5_000_000);
    let row_of = |owner: Owner| owner.cgroup.0 / 2;
    let found = rows(&calibration(), &weights, 0, &traffic, &[3, 5, 6], row_of);
    let found = found.unwrap().unwrap();
    for (of, truth) in [(2, 4_000_000.0), (4, 1_000_000.0)] {
        let share = &found.owners[&owner(of)];
        let error = found.relative_error(share).unwrap();
        let off = (float(share.count) - truth).abs() / float(share.count);
        assert!(off <= error && error < 0.01, "{share:?}: {off}, {error}");
    }
    assert_eq!(found.owners.len(), 3);
    let why = found.owners[&owner(6)].why_incomplete;
    assert_eq!(why, Some(NoShare::NothingCounted));
}

fn traffic(measured: u64) -> Traffic {
    Traffic {
        measured,
        ..Traffic::default()
    }
}

/// A stream and a chase have the same misses, so one weight would give each half of the traffic.
#[test]
fn two_events_distinguish_patterns() {
    let misses = local(&[(2, 1_000_000), (3, 1_000_000)]);
    let refills = local(&[(2, 4_000_000), (3, 1_000_000)]);
    let found = shares(
        &calibration(),
        &both(misses, refills),
        0,
        &traffic(5_000_000),
    );
    let found = found.unwrap().unwrap();
    assert_eq!(found.measured(), 5_000_000);
    assert_eq!(found.method, Method::Calibrated(MadeOn::ThisMachine));
    for (owner, truth) in [(2, 4_000_000.0), (3, 1_000_000.0)] {
        let share = &found.owners[&super::owner(owner)];
        let error = found.relative_error(share).unwrap();
        let off = (float(share.count) - truth).abs() / float(share.count);
        assert!(off <= error && error < 0.01, "{share:?}: {off}, {error}");
    }
}

#[test]
fn unknown_shares_have_a_reason() {
    let misses = local(&[(2, 1_000), (3, 5_000), (4, 0)]);
    let mut refills = local(&[(2, 4_000), (3, 1_000), (4, 0)]);
    refills.unseen = unseen(&[(5, 1)]);
    let found = shares(&calibration(), &both(misses, refills), 0, &traffic(9_000));
    let found = found.unwrap().unwrap();
    let why = |owner| found.owners[&super::owner(owner)].why_incomplete;
    // No pattern has 5,000 misses with 1,000 refills. Owner 5 was not counted.
    assert_eq!(why(3), Some(NoShare::NoMixture));
    assert_eq!(why(5), Some(NoShare::OwnerUnseen));
    assert_eq!((why(4), found.owners[&owner(4)].count), (None, 0));
    assert_eq!(found.measured(), 9_000);
}

#[test]
fn a_calibration_that_contradicts_the_traffic_gives_no_shares() {
    let of = |measured| {
        let (misses, refills) = (local(&[(2, 250_000)]), local(&[(2, 1_000_000)]));
        shares(
            &calibration(),
            &both(misses, refills),
            0,
            &traffic(measured),
        )
        .unwrap()
    };
    assert!(of(1_000_000).is_ok());
    assert_eq!(of(500_000), Err(NoShare::MoreThanMoved));
    assert_eq!(of(2_000_000), Err(NoShare::Unexplained));
}

/// Weights of two sockets that count the accesses to each memory apart.
fn apart(name: &str, list: [(SocketWeights, SocketWeights); 2]) -> Weights {
    let of_sockets = list.map(|(local, remote)| SocketWeights {
        remote: remote.local,
        apart: true,
        ..local
    });
    Weights {
        method: counted(name, SocketWeights::default()).method,
        ..sockets(of_sockets.into())
    }
}

/// Owner 2 streams from its own memory, on socket 0. Owner 3 chases pointers in that memory from
/// socket 1, where a remote access counts as a local one, and streams from the memory of socket 1.
#[test]
fn remote_accesses_are_divided_by_remote_patterns() {
    let mut of = calibration();
    let weights = [
        apart(
            "misses",
            [
                (local(&[(2, 1_000_000)]), local(&[(2, 0)])),
                (local(&[(3, 500_000)]), local(&[(3, 1_000_000)])),
            ],
        ),
        apart(
            "refills",
            [
                (local(&[(2, 4_000_000)]), local(&[(2, 0)])),
                (local(&[(3, 2_000_000)]), local(&[(3, 1_000_000)])),
            ],
        ),
    ];
    let both = |of: &CalibratedTraffic, weights: &[Weights], own: u32, measured: u64| {
        let sockets = Sockets {
            own,
            other: Some(1 - own),
        };
        let ran = [2, 3, 9].map(owner).into_iter();
        let made_on = MadeOn::ThisMachine;
        let traffic = traffic(measured);
        super::super::calibrated::shares(of, made_on, weights, sockets, &traffic, ran, |it| it)
    };
    // It was calibrated on a machine with one socket.
    assert_eq!(both(&of, &weights, 0, 5_000_000), None);
    of.remote = calibration().patterns;
    for (own, truths) in [(0, [4_000_000, 1_000_000]), (1, [0, 2_000_000])] {
        let found = both(&of, &weights, own, truths.iter().sum())
            .unwrap()
            .unwrap();
        for (owner, truth) in [2, 3].map(owner).into_iter().zip(truths) {
            let share = &found.owners[&owner];
            let error = share.calibrated.all();
            let off = float(share.count.abs_diff(truth));
            // Owner 2 has no counts for memory 1, since it read only memory 0.
            assert_eq!(share.why_incomplete, None, "{own}: {owner:?}");
            assert!(
                off <= error.max(1.0) && error < 0.01 * 4e6,
                "{own}: {share:?} {truth}"
            );
        }
    }
    let found = both(&of, &weights, 0, 5_000_000).unwrap().unwrap();
    let why = found.owners[&owner(9)].why_incomplete;
    assert_eq!(
        why,
        Some(NoShare::NothingCounted),
        "it ran and has no counts"
    );
    // The idle task was not counted for no time.
    let mut with_idle = weights.clone();
    for event in &mut with_idle {
        let own = event.sockets.get_mut(&0).unwrap();
        own.unseen = unseen(&[(8, 0)]);
        let other = event.sockets.get_mut(&1).unwrap();
        other.local.insert(owner(8), Weight::default());
        other.remote.insert(owner(8), Weight::default());
    }
    assert_eq!(
        both(&of, &with_idle, 0, 10_000_000),
        Some(Err(NoShare::Unexplained))
    );
    // Multiplexed counts are partly those of the other socket.
    let mut in_turns = weights.clone();
    let weight = in_turns[0]
        .sockets
        .get_mut(&0)
        .unwrap()
        .local
        .get_mut(&owner(2));
    weight.unwrap().time = RunningTime {
        enabled: 10,
        running: 5,
    };
    assert_eq!(both(&of, &in_turns, 0, 5_000_000), None);
    // An owner that was not counted on the other socket may have moved anything.
    let mut some = weights.clone();
    for event in &mut some {
        let other = event.sockets.get_mut(&1).unwrap();
        other.local.remove(&owner(3));
        other.remote.remove(&owner(3));
        other.unseen = unseen(&[(3, 1)]);
    }
    let found = both(&of, &some, 0, 5_000_000).unwrap().unwrap();
    let why = found.owners[&owner(3)].why_incomplete;
    assert_eq!(why, Some(NoShare::OwnerUnseen));
    // These events do not tell which memory was accessed.
    let mut together = weights.clone();
    together[0].sockets.get_mut(&1).unwrap().apart = false;
    assert_eq!(both(&of, &together, 0, 5_000_000), None);
}

#[test]
fn a_calibration_needs_all_of_its_events() {
    let misses = [counted("misses", local(&[(2, 1)]))];
    assert_eq!(shares(&calibration(), &misses, 0, &traffic(1)), None);
    let mut out = local(&[(2, 1)]);
    out.rotated_out = true;
    let found = shares(&calibration(), &both(out, local(&[(2, 1)])), 0, &traffic(1));
    assert_eq!(found, Some(Err(NoShare::RotatedOut)));
}

proptest! {
    /// Shares, devices and the rest add up to the traffic, whatever was counted.
    #[test]
    fn nothing_is_lost(
        list in vec((0..1_u64 << 40, 0..1_u64 << 40), 1..10),
        measured in 0..1_u64 << 50,
        io in 0..1_u64 << 45,
        skew in 0..1_u64 << 40,
    ) {
        let of = |at: fn(&(u64, u64)) -> u64| -> Vec<(u64, u64)> {
            (1..).zip(list.iter().map(at)).collect()
        };
        let (misses, refills) = (of(|it| it.0), of(|it| it.1));
        let traffic = Traffic { measured, io, skew, ..Traffic::default() };
        let weights = both(local(&misses), local(&refills));
        if let Some(Ok(found)) = shares(&calibration(), &weights, 0, &traffic) {
            prop_assert_eq!(found.measured(), measured);
        }
    }
}
