//! Traffic between sockets, which source and destination count differently.

use super::*;

/// The share of a cgroup and its error.
fn share(shares: &Shares, cgroup: u64) -> (u64, f64) {
    let part = &shares.owners[&owner(cgroup)];
    (part.count, shares.relative_error(part).unwrap())
}

fn traffic(measured: u64, sent: u64) -> Traffic {
    Traffic {
        mismatch: MISMATCH,
        measured,
        from_sockets: [(1, sent)].into(),
        ..Traffic::default()
    }
}

/// Weights: these local accesses on socket 0, and remote accesses of cgroup 7 on socket 1.
fn with_local(list: &[(u64, u64)]) -> Weights {
    sockets(vec![local(list), remote(&[(7, 5_000_000)])])
}

/// Only the other socket uses this socket's memory: the difference of the counts is unattributed.
#[test]
fn the_difference_of_source_and_destination_has_no_owner() {
    let more = with_local(&[])
        .cpu_reads(0, &traffic(1_079, 1_000))
        .unwrap();
    assert_eq!((counts(&more), more.unattributed), (vec![(7, 1_000)], 79));
    let less = with_local(&[]).cpu_reads(0, &traffic(968, 1_000)).unwrap();
    assert_eq!((counts(&less), less.unattributed), (vec![(7, 968)], 0));
}

/// In the example of writes in NVIDIA's tuning guide, the destination counts 3.3 % more. A small
/// container on the idle socket gets nothing of the difference, and its share is unknown.
#[test]
fn a_small_local_weight_does_not_get_the_difference() {
    let (measured, sent) = (993_278_696, 961_728_219);
    let shares = with_local(&[(2, 40)])
        .cpu_reads(0, &traffic(measured, sent))
        .unwrap();
    assert_eq!(shares.measured(), measured);
    assert_eq!(shares.unattributed, measured - sent);
    let small = shares.owners[&owner(2)];
    assert_eq!(
        (small.count, small.why_incomplete),
        (0, Some(NoShare::WithinMismatch))
    );
    let (count, error) = share(&shares, 7);
    assert_eq!(count, sent);
    assert!(
        (error - hypot(0.079_f64, method::COUNTER_ERROR)).abs() < 1e-3,
        "{error}"
    );
}

/// In the example of reads in NVIDIA's tuning guide, the source counts 7.9 % more than the
/// destination. All reads may be remote, so local reads are unknown.
#[test]
fn local_reads_are_unknown_if_the_source_counts_more() {
    let (measured, sent) = (33_542_984, 36_189_087);
    let shares = with_local(&[(2, 40), (3, 0)])
        .cpu_reads(0, &traffic(measured, sent))
        .unwrap();
    assert_eq!((share(&shares, 7).0, shares.unattributed), (measured, 0));
    let part = |cgroup| shares.owners[&owner(cgroup)];
    assert_eq!(
        (part(2).count, part(2).why_incomplete),
        (0, Some(NoShare::WithinMismatch))
    );
    // An owner without counted accesses has no traffic, which is certain.
    assert_eq!((part(3).count, part(3).why_incomplete), (0, None));
}

/// The local part is the rest after remote traffic and mismatch. If it is as large as the remote
/// part, its error is 15.8 %, twice the mismatch: the unattributed part, and as much of the remote
/// part, may be local. If the local part is a tenth of that, its error is ten times as large.
#[test]
fn the_error_of_local_shares_is_twice_the_remote_mismatch() {
    let local = [(2, 1_000_000_000), (3, 3_000_000_000)];
    let error_of = |rest: u64| {
        let traffic = traffic(1_079_000_000 + rest, 1_000_000_000);
        let shares = with_local(&local).cpu_reads(0, &traffic).unwrap();
        assert_eq!(shares.measured(), traffic.measured);
        assert_eq!(shares.unattributed, 79_000_000);
        let ((small, error), (large, same)) = (share(&shares, 2), share(&shares, 3));
        assert_eq!((small, large), (rest / 4, rest / 4 * 3));
        assert!((error - same).abs() < 1e-4);
        error
    };
    let expected = |mismatch: f64| hypot(mismatch, method::COUNTER_ERROR);
    assert!((error_of(1_000_000_000) - expected(0.158)).abs() < 1e-3);
    assert!((error_of(100_000_000) - expected(1.58)).abs() < 1e-3);
}

#[test]
fn without_remote_traffic_there_is_no_mismatch() {
    let shares = with_local(&[(2, 1_000_000_000)])
        .cpu_reads(0, &traffic(5_000, 0))
        .unwrap();
    assert_eq!(shares.unattributed, 0);
    let (count, error) = share(&shares, 2);
    assert_eq!(count, 5_000);
    assert!(error < 0.006, "{error}");
}

#[test]
fn the_rest_of_the_traffic_goes_to_the_sockets_own_containers() {
    let own = local(&[(2, 1), (3, 3)]);
    let other = SocketWeights {
        local: weights(&[(9, 100)]),
        ..remote(&[(2, 1), (8, 1)])
    };
    let shares = sockets(vec![own, other])
        .cpu_reads(0, &traffic(1_479, 1_000))
        .unwrap();
    assert_eq!(counts(&shares), [(2, 600), (3, 300), (8, 500)]);
    assert_eq!(shares.unattributed, 79);
}
