//! Coverage: the true bytes are within the stated error as often as promised, also for an owner
//! unlike its neighbours.

mod coverage;

use test_support::Random;

use self::coverage::{
    Coverage, Kind, RUNS, TrueWindow, counts, draw, local, normal, one_event, only_event, patterns,
    three_owners,
};
use super::*;
use crate::calibration::Pattern;

#[test]
fn true_bytes_are_within_the_stated_errors() {
    for (calibrated, events) in [(one_event(), 1), (patterns(), 2)] {
        let count = calibrated.patterns.len();
        for kind in [Kind::Pure, Kind::Mixed, Kind::Unlike] {
            for (owners, only) in [(2, None), (2, Some(0)), (5, None), (5, Some(0)), (20, None)] {
                let found =
                    Coverage::of([&calibrated, &calibrated], owners, only, |owner, random| {
                        draw(kind, owner, count, random)
                    });
                let what = format!("{events} events, {kind:?}, {owners} owners, only {only:?}");
                found.assert(&what);
                // With one event few owners have a share.
                assert!(
                    found.stated >= if events == 1 { 40 } else { RUNS - 5 },
                    "{what}"
                );
                // With two events the errors are small.
                let median = found.errors[found.errors.len() / 2];
                assert!(events == 1 || median < 0.15, "{what}: {median}");
            }
        }
    }
}

/// Counts of multiplexed events are estimates with a variance.
#[test]
fn errors_cover_multiplexed_counts() {
    let calibrated = patterns();
    for part in [0.02, 0.1] {
        let found = Coverage::over_windows(&calibrated, None, |random| {
            let bytes = three_owners(&calibrated, random);
            let multiplexed = bytes.iter().map(|bytes| {
                let mut owner = counts(&calibrated, bytes, random);
                let EventCounts { counts, variances } = &mut owner.local;
                for (count, variance) in counts.iter_mut().zip(variances) {
                    let error = part * *count;
                    *variance = error.powi(2);
                    *count = (*count + error * normal(random)).max(0.0);
                }
                owner
            });
            TrueWindow::new(&bytes, multiplexed.collect())
        });
        found.assert(&format!("multiplexed within {part}"));
        assert!(found.stated > RUNS, "{found:?}");
    }
}

/// The traffic of devices has its own counter and is subtracted. If that traffic grows while both
/// counters are read one after the other, the difference is wrong by up to `apart`.
#[test]
fn errors_cover_growing_device_traffic() {
    let calibrated = patterns();
    let found = Coverage::over_windows(&calibrated, None, |random| {
        let bytes = three_owners(&calibrated, random);
        let counts = bytes.iter().map(|bytes| counts(&calibrated, bytes, random));
        let mut window = TrueWindow::new(&bytes, counts.collect());
        window.moved *= 1.0 + 0.0099 * (2.0 * random.uniform() - 1.0);
        window.apart = 0.01;
        window
    });
    found.assert("beside a ramp of DMA");
    assert!(found.stated > 2 * RUNS, "{found:?}");
}

/// The socket's counter is read before those of the CPUs. What one owner moves in between is in its
/// counts and not in the traffic.
#[test]
fn errors_cover_traffic_between_two_readings() {
    let calibrated = patterns();
    for apart in [0.002, 0.02] {
        let found = Coverage::over_windows(&calibrated, None, |random| {
            let bytes = three_owners(&calibrated, random);
            let counts = bytes.iter().map(|bytes| counts(&calibrated, bytes, random));
            let mut window = TrueWindow::new(&bytes, counts.collect());
            let mut left = random.uniform() * window.moved;
            let mover = window.truths.iter().position(|truth| {
                left -= truth;
                left < 0.0
            });
            let owner = mover.unwrap_or_default();
            let between = (apart * random.uniform() * window.moved).min(window.truths[owner]);
            window.truths[owner] -= between;
            window.moved -= between;
            window.apart = apart;
            window
        });
        found.assert(&format!("{apart} between two readings"));
        assert!(found.stated > RUNS, "{found:?}");
    }
}

/// All counts are 4% lower than by the calibration. Traffic that no mixture explains may belong to
/// any owner.
#[test]
fn unexplained_traffic_may_belong_to_any_owner() {
    let exact = CalibratedTraffic {
        spreads: vec![0.0],
        patterns: one_event().patterns.split_off(5),
        ..one_event()
    };
    let counts = |bytes: f64| {
        let count = 0.96 * exact.patterns[0].counts[0] * bytes;
        Some(local(vec![count], vec![0.0]))
    };
    for truths in [vec![1e12], vec![6e11, 4e11]] {
        let owners: Vec<_> = truths.iter().map(|truth| counts(*truth)).collect();
        let found = exact.estimate(&owners, 1e12, 0.0).unwrap();
        for (part, truth) in found.into_iter().zip(&truths) {
            let part = part.unwrap();
            let off = (part.traffic - truth).abs();
            assert!(off <= part.error.all() * (1.0 + 1e-9), "{part:?} {truth}");
        }
    }
}

/// The counts of the first event per byte drift away from the calibration, by up to 3% over the
/// windows. (With 5%, only 98.8% of the shares are within twice the error.)
#[test]
#[expect(clippy::cast_precision_loss, reason = "some hundred windows")]
fn errors_cover_drifting_counts() {
    let calibrated = patterns();
    for drift in [0.01, 0.03] {
        let mut window = 0;
        let found = Coverage::over_windows(&calibrated, None, |random| {
            window += 1;
            let mut truth = calibrated.clone();
            for pattern in &mut truth.patterns {
                pattern.counts[0] *= 1.0 + drift * f64::from(window) / RUNS as f64;
            }
            let bytes = three_owners(&calibrated, random);
            let counts = bytes.iter().map(|bytes| counts(&truth, bytes, random));
            TrueWindow::new(&bytes, counts.collect())
        });
        found.assert(&format!("counts that drift by {drift}"));
        assert!(found.stated > 2 * RUNS, "{found:?}");
    }
}

/// A pointer chase at 2 GB/s beside a stream at 18 GB/s.
#[test]
fn two_events_separate_a_chase_from_a_stream() {
    let mut random = Random(3);
    let calibrated = patterns();
    let [mut chase, mut stream] = [0, 1].map(|_| vec![0.0; calibrated.patterns.len()]);
    (chase[4], stream[0]) = (2e9, 18e9);
    let counted = [&chase, &stream].map(|bytes| counts(&calibrated, bytes, &mut random));
    let found = calibrated
        .estimate(&counted.clone().map(Some), 20e9, 0.0)
        .unwrap();
    let [chase, stream] = [0, 1].map(|owner| found[owner].unwrap());
    println!("{chase:?}, {stream:?}");
    assert!((chase.traffic - 2e9).abs() <= chase.error.all() && chase.error.all() < 0.5e9);
    assert!((stream.traffic - 18e9).abs() <= stream.error.all() && stream.error.all() < 1e9);
    // One event does not separate them.
    let counted = counted.map(|mut it| {
        it.local.counts.truncate(1);
        it.local.variances.truncate(1);
        Some(it)
    });
    let found = one_event().estimate(&counted, 20e9, 0.0).unwrap();
    assert_eq!(found[0], Err(NoPart::TooWide));
}

/// With a single cause, only the part of the error for that cause is above 0.
#[test]
fn the_error_is_divided_by_cause() {
    let one_pattern = |spread: f64| CalibratedTraffic {
        spreads: vec![spread],
        patterns: one_event().patterns.split_off(5),
        ..one_event()
    };
    let known = one_pattern(0.0);
    let error = |calibrated: &CalibratedTraffic, bytes: f64, apart: f64, variance: f64| {
        let counts = calibrated.patterns[0].counts[0] * bytes;
        let owner = |counts: f64| Some(local(vec![counts], vec![variance]));
        let owners = [owner(counts), owner(counts)];
        let found = calibrated.estimate(&owners, 2.0 * bytes, apart).unwrap();
        let PartError {
            skew,
            counting,
            calibration,
            mixture,
            residual: _,
        } = found[0].unwrap().error;
        [skew, counting, calibration, mixture].map(|it| it / bytes)
    };
    let is_only = |errors: [f64; 4], cause: usize, expected: f64| {
        for (at, error) in errors.into_iter().enumerate() {
            let expected = if at == cause { expected } else { 0.0 };
            assert!((error - expected).abs() < 0.002, "{at}: {errors:?}");
        }
    };
    is_only(error(&known, 1e12, 0.0, 0.0), 0, 0.0);
    // Two standard deviations of 10% of the counts, and of 3%.
    let counts = known.patterns[0].counts[0] * 1e12;
    is_only(error(&known, 1e12, 0.0, (0.1 * counts).powi(2)), 1, 0.2);
    is_only(error(&one_pattern(0.03), 1e12, 0.0, 0.0), 2, 0.06);
    let mut unlike = known.clone();
    let mut twice = unlike.patterns[0].clone();
    twice.counts[0] *= 0.8;
    unlike.patterns.push(twice);
    // Each owner may have moved from this many bytes to 1.25 times as many, but both together
    // moved only the least.
    let errors = error(&unlike, 1e12, 0.0, 0.0);
    assert!(
        errors[3] < 0.002,
        "no more was moved than the least: {errors:?}"
    );
    // With skew, both together may have moved more or less. This owner may also have moved what
    // only one of the two windows contains: two standard deviations of that, for half of the
    // traffic.
    let errors = error(&unlike, 1e12, 0.1e12, 0.0);
    let expected = hypot(0.1, 0.1 / 3_f64.sqrt());
    assert!((errors[0] - expected).abs() < 0.01, "{errors:?}");
}

/// An owner gets no share if it moves half of the socket's bytes or more in a pattern that was not
/// calibrated. (A small owner whose counts look like a mixture of patterns is not detected.)
#[test]
fn an_owner_of_an_uncalibrated_pattern_has_no_share() {
    let calibrated = patterns();
    for (what, misses, refills) in [
        // Stores that bypass the caches.
        ("no counts", 0.0, 0.0),
        ("few counts", 0.02, 0.1),
        ("many counts", 4.0, 6.0),
        ("more misses than refills", 1.5, 0.2),
    ] {
        let mut truth = patterns();
        truth.patterns.push(Pattern {
            name: what.to_owned(),
            counts: vec![misses / 64.0, refills / 64.0],
        });
        let found = Coverage::of([&calibrated, &truth], 3, Some(0), |owner, random| {
            let mut bytes = draw(Kind::Pure, owner, 6, random);
            bytes.push(0.0);
            if owner == 0 {
                bytes.fill(0.0);
                bytes[6] = 2e10 * (1.0 + random.uniform());
            }
            bytes
        });
        assert_eq!(found.stated, 0, "{what}");
        assert_eq!(found.reasons.len() + found.unknown, RUNS, "{what}");
    }
}

/// If a calibrated pattern moves bytes without counts, any owner may have moved what others did
/// not.
#[test]
fn errors_cover_bytes_that_no_event_counts() {
    let mut calibrated = patterns();
    calibrated.patterns.push(Pattern {
        name: "non-temporal-store".to_owned(),
        counts: vec![0.0, 0.0],
    });
    let found = Coverage::of([&calibrated, &calibrated], 3, None, |owner, random| {
        draw(Kind::Pure, owner, 7, random)
    });
    found.assert("with stores that nothing counts");
}

#[test]
fn without_traffic_or_owners_there_is_no_part() {
    let calibrated = patterns();
    assert_eq!(
        calibrated.estimate(&[], 1e9, 0.0),
        Err(NoEstimate::Unexplained)
    );
    let idle = Some(local(vec![0.0; 2], vec![0.0; 2]));
    let still = calibrated.estimate(std::slice::from_ref(&idle), 0.0, 0.0);
    assert_eq!(still, Ok(vec![Err(NoPart::NoCounts)]));
    // The owner that was not counted may have moved all of it.
    let unseen = calibrated.estimate(&[idle.clone(), None], 1e9, 0.0);
    assert_eq!(unseen, Ok(vec![Err(NoPart::NoCounts), Err(NoPart::Unseen)]));
    // The only owner has no counts.
    let found = calibrated.estimate(&[idle], 1e9, 0.0);
    assert_eq!(found, Err(NoEstimate::Unexplained));
}

/// Remote patterns of the same events: a remote read is counted twice as often.
fn two_sockets(mut calibrated: CalibratedTraffic) -> CalibratedTraffic {
    calibrated.remote = calibrated.patterns.clone();
    for pattern in &mut calibrated.remote {
        pattern.counts.iter_mut().for_each(|it| *it *= 2.0);
    }
    calibrated
}

/// Each owner runs on both sockets, with other patterns on each.
#[test]
fn errors_cover_accesses_from_two_sockets() {
    for (what, calibrated, least) in [
        // An event that counts each line, prefetched ones too, as `OCR.READS_TO_CORE` does.
        ("lines", only_event(1), 2 * RUNS),
        ("misses", one_event(), 0),
        ("both", patterns(), 2 * RUNS),
    ] {
        let calibrated = two_sockets(calibrated);
        let remote = CalibratedTraffic {
            patterns: calibrated.remote.clone(),
            ..calibrated.clone()
        };
        let found = Coverage::over_windows(&calibrated, None, |random| {
            let [own, other] = [0, 1].map(|_| three_owners(&calibrated, random));
            let both = || own.iter().zip(&other);
            let counted = both().map(|(own, other)| OwnerCounts {
                remote: Some(counts(&remote, other, random).local),
                ..counts(&calibrated, own, random)
            });
            let counted = counted.collect();
            let bytes = both().map(|(own, other)| [own.clone(), other.clone()].concat());
            TrueWindow::new(&bytes.collect::<Vec<_>>(), counted)
        });
        found.assert(&format!("from two sockets, {what}"));
        assert!(found.stated > least, "{what}: {found:?}");
    }
}

/// A chase by the other socket's CPUs beside a stream by the own ones.
#[test]
fn remote_counts_stand_for_remote_patterns() {
    let calibrated = two_sockets(patterns());
    let lines = |misses: f64, refills: f64| EventCounts {
        counts: vec![misses, refills],
        variances: vec![0.0; 2],
    };
    let none = || lines(0.0, 0.0);
    let owner = |local, remote| {
        Some(OwnerCounts {
            local,
            remote: Some(remote),
        })
    };
    let owners = [
        owner(none(), lines(2e6 / 32.0, 2e6 / 32.0)),
        owner(lines(0.35 * 6e6 / 64.0, 6e6 / 64.0), none()),
    ];
    let found = calibrated.estimate(&owners, 8e6, 0.0).unwrap();
    for (part, truth) in found.into_iter().zip([2e6, 6e6]) {
        let part = part.unwrap();
        let off = (part.traffic - truth).abs();
        assert!(
            off <= part.error.all() && part.error.all() < 0.2 * truth,
            "{part:?} {truth}"
        );
    }
}
