//! Coverage: true bytes are within the stated error as often as an error bar says, also for an
//! owner unlike its neighbours.

mod coverage;

use test_support::Random;

use self::coverage::{
    Coverage, Kind, RUNS, TrueWindow, counts, draw, normal, one_event, patterns, three_owners,
};
use super::*;
use crate::calibration::Pattern;

#[test]
fn errors_hold_what_they_say() {
    for (of, events) in [(one_event(), 1), (patterns(), 2)] {
        let count = of.patterns.len();
        for kind in [Kind::Pure, Kind::Mixed, Kind::Unlike] {
            for (owners, only) in [(2, None), (2, Some(0)), (5, None), (5, Some(0)), (20, None)] {
                let found = Coverage::of([&of, &of], owners, only, |owner, random| {
                    draw(kind, owner, count, random)
                });
                let what = format!("{events} events, {kind:?}, {owners} owners, only {only:?}");
                found.assert(&what);
                // With one event few owners have a share.
                assert!(
                    found.stated >= if events == 1 { 40 } else { RUNS - 5 },
                    "{what}"
                );
                // Two events leave little open.
                let median = found.errors[found.errors.len() / 2];
                assert!(events == 1 || median < 0.15, "{what}: {median}");
            }
        }
    }
}

/// Counts of multiplexed events are estimates, with a variance that says how good they are.
#[test]
fn errors_hold_with_multiplexed_counts() {
    let of = patterns();
    for part in [0.02, 0.1] {
        let found = Coverage::over_windows(&of, None, |random| {
            let bytes = three_owners(&of, random);
            let multiplexed = bytes.iter().map(|bytes| {
                let mut owner = counts(&of, bytes, random);
                for (count, variance) in owner.counts.iter_mut().zip(&mut owner.variances) {
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

/// Devices' traffic is counted apart, and subtracted. While it grows, the two counters are read at
/// different times: what is left is off by as much as may be apart.
#[test]
fn errors_hold_while_device_traffic_grows() {
    let of = patterns();
    let found = Coverage::over_windows(&of, None, |random| {
        let bytes = three_owners(&of, random);
        let counts = bytes.iter().map(|bytes| counts(&of, bytes, random));
        let mut window = TrueWindow::new(&bytes, counts.collect());
        window.moved *= 1.0 + 0.0099 * (2.0 * random.uniform() - 1.0);
        window.apart = 0.01;
        window
    });
    found.assert("beside a ramp of DMA");
    assert!(found.stated > 2 * RUNS, "{found:?}");
}

/// The socket's counter is read before those of the CPUs: what one owner moves in between is in its
/// counts and not in the traffic.
#[test]
fn errors_hold_with_what_is_moved_between_two_readings() {
    let of = patterns();
    for apart in [0.002, 0.02] {
        let found = Coverage::over_windows(&of, None, |random| {
            let bytes = three_owners(&of, random);
            let counts = bytes.iter().map(|bytes| counts(&of, bytes, random));
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

/// Counts that are all lower than the calibration says: what no mixture explains may be anyone's.
#[test]
fn what_is_unexplained_may_be_anyones() {
    let exact = CalibratedTraffic {
        spreads: vec![0.0],
        patterns: one_event().patterns.split_off(5),
        ..one_event()
    };
    let counts = |bytes: f64| {
        Some(OwnerCounts {
            counts: vec![0.96 * exact.patterns[0].counts[0] * bytes],
            variances: vec![0.0],
        })
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

/// What the first event counts for a byte drifts away from the calibration, by up to 3% over the
/// windows. (By 5%, 98.8% of the shares are within twice the error.)
#[test]
#[expect(clippy::cast_precision_loss, reason = "some hundred windows")]
fn errors_hold_while_counts_drift() {
    let of = patterns();
    for drift in [0.01, 0.03] {
        let mut window = 0;
        let found = Coverage::over_windows(&of, None, |random| {
            window += 1;
            let mut truth = of.clone();
            for pattern in &mut truth.patterns {
                pattern.counts[0] *= 1.0 + drift * f64::from(window) / RUNS as f64;
            }
            let bytes = three_owners(&of, random);
            let counts = bytes.iter().map(|bytes| counts(&truth, bytes, random));
            TrueWindow::new(&bytes, counts.collect())
        });
        found.assert(&format!("counts that drift by {drift}"));
        assert!(found.stated > 2 * RUNS, "{found:?}");
    }
}

/// The document's case: a pointer chase at 2 GB/s beside a stream at 18 GB/s.
#[test]
fn a_chase_beside_a_stream() {
    let mut random = Random(3);
    let of = patterns();
    let [mut chase, mut stream] = [0, 1].map(|_| vec![0.0; of.patterns.len()]);
    (chase[4], stream[0]) = (2e9, 18e9);
    let counted = [&chase, &stream].map(|bytes| counts(&of, bytes, &mut random));
    let found = of.estimate(&counted.clone().map(Some), 20e9, 0.0).unwrap();
    let [chase, stream] = [0, 1].map(|owner| found[owner].unwrap());
    println!("{chase:?}, {stream:?}");
    assert!((chase.traffic - 2e9).abs() <= chase.error.all() && chase.error.all() < 0.5e9);
    assert!((stream.traffic - 18e9).abs() <= stream.error.all() && stream.error.all() < 1e9);
    // One event does not separate them.
    let counted = counted.map(|mut it| {
        it.counts.truncate(1);
        it.variances.truncate(1);
        Some(it)
    });
    let found = one_event().estimate(&counted, 20e9, 0.0).unwrap();
    assert_eq!(found[0], Err(NoPart::TooWide));
}

/// Each cause alone makes the part of the error that has its name.
#[test]
fn the_error_is_divided_by_cause() {
    let one_pattern = |spread: f64| CalibratedTraffic {
        spreads: vec![spread],
        patterns: one_event().patterns.split_off(5),
        ..one_event()
    };
    let known = one_pattern(0.0);
    let error = |of: &CalibratedTraffic, bytes: f64, apart: f64, variance: f64| {
        let counts = of.patterns[0].counts[0] * bytes;
        let owner = |counts: f64| {
            Some(OwnerCounts {
                counts: vec![counts],
                variances: vec![variance],
            })
        };
        let owners = [owner(counts), owner(counts)];
        let found = of.estimate(&owners, 2.0 * bytes, apart).unwrap();
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
    // From as many bytes to 1.25 times as many; the other owner has the rest of the sum.
    let errors = error(&unlike, 1e12, 0.0, 0.0);
    assert!(
        errors[3] < 0.002,
        "no more was moved than the least: {errors:?}"
    );
    // With skew it may be more or less, and this owner may have moved what was counted in one
    // window only: two deviations of that, for half of the traffic.
    let errors = error(&unlike, 1e12, 0.1e12, 0.0);
    let expected = hypot(0.1, 0.1 / 3_f64.sqrt());
    assert!((errors[0] - expected).abs() < 0.01, "{errors:?}");
}

/// An owner that moves half of the socket's bytes or more, and does what no pattern has, gets no
/// share. A small owner whose counts look like a mixture of patterns is not detected.
#[test]
fn a_pattern_outside_of_the_file() {
    let of = patterns();
    for (what, misses, refills) in [
        // Stores that pass by the caches.
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
        let found = Coverage::of([&of, &truth], 3, Some(0), |owner, random| {
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

/// A pattern of the file that moves bytes and counts nothing: whoever runs it, the traffic that
/// others leave may be its.
#[test]
fn bytes_that_no_event_counts() {
    let mut of = patterns();
    of.patterns.push(Pattern {
        name: "non-temporal-store".to_owned(),
        counts: vec![0.0, 0.0],
    });
    let found = Coverage::of([&of, &of], 3, None, |owner, random| {
        draw(Kind::Pure, owner, 7, random)
    });
    found.assert("with stores that nothing counts");
}

#[test]
fn no_traffic_and_no_owners() {
    let of = patterns();
    assert_eq!(of.estimate(&[], 1e9, 0.0), Err(NoEstimate::Unexplained));
    let idle = Some(OwnerCounts {
        counts: vec![0.0, 0.0],
        variances: vec![0.0, 0.0],
    });
    let still = of.estimate(std::slice::from_ref(&idle), 0.0, 0.0);
    assert_eq!(still, Ok(vec![Err(NoPart::NoCounts)]));
    // It may all be of an owner that was not counted.
    let unseen = of.estimate(&[idle.clone(), None], 1e9, 0.0);
    assert_eq!(unseen, Ok(vec![Err(NoPart::NoCounts), Err(NoPart::Unseen)]));
    // The only owner has no counts.
    let found = of.estimate(&[idle], 1e9, 0.0);
    assert_eq!(found, Err(NoEstimate::Unexplained));
}
