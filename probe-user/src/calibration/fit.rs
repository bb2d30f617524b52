//! The traffic per count of each event that explains the patterns of a calibration best.

use super::{mixtures::subsets, solve::solve};

/// The coefficients, by event and at least 0, whose weighted sum of each pattern's counts is
/// nearest to one unit of traffic (least squares). The result is exact: since there are few events,
/// it tries every set of events with a coefficient above 0. All are 0 if no event counts anything.
pub(super) fn traffic_per_event(patterns: &[&[f64]], events: usize) -> Vec<f64> {
    let nothing = vec![0.0; events];
    let mut best = (squared_error(patterns, &nothing), nothing);
    for active in (1..=events).flat_map(|size| subsets(events, size)) {
        let product = |a: usize, b: usize| -> f64 {
            patterns.iter().map(|counts| counts[a] * counts[b]).sum()
        };
        let matrix: Vec<Vec<f64>> = (active.iter())
            .map(|a| active.iter().map(|b| product(*a, *b)).collect())
            .collect();
        let sum = |a: &usize| -> f64 { patterns.iter().map(|counts| counts[*a]).sum() };
        let right: Vec<f64> = active.iter().map(sum).collect();
        let Some(solution) = solve(&matrix, &right) else {
            continue;
        };
        if solution.iter().any(|bytes| *bytes < 0.0) {
            continue;
        }
        let mut bytes = vec![0.0; events];
        for (event, of_event) in active.into_iter().zip(solution) {
            bytes[event] = of_event;
        }
        let error = squared_error(patterns, &bytes);
        if error < best.0 {
            best = (error, bytes);
        }
    }
    best.1
}

fn squared_error(patterns: &[&[f64]], bytes: &[f64]) -> f64 {
    let error = |counts: &&[f64]| 1.0 - weighted_sum(counts, bytes);
    patterns.iter().map(|counts| error(counts).powi(2)).sum()
}

/// The traffic that counts stand for by these coefficients.
pub(super) fn weighted_sum(counts: &[f64], bytes: &[f64]) -> f64 {
    counts.iter().zip(bytes).map(|(count, of)| count * of).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_event_is_fitted_to_two_patterns() {
        // The patterns move 64 and 256 bytes per count: the least squares of 1 - counts x bytes.
        let bytes = traffic_per_event(&[&[1.0 / 64.0], &[0.25 / 64.0]], 1);
        assert!((bytes[0] - 64.0 * 1.25 / 1.0625).abs() < 1e-6, "{bytes:?}");
    }

    #[test]
    fn an_event_that_only_adds_error_has_a_coefficient_of_0() {
        let bytes = traffic_per_event(&[&[1.0, 0.0], &[1.0, 5.0]], 2);
        assert_eq!(bytes, [1.0, 0.0]);
        assert_eq!(traffic_per_event(&[&[0.0]], 1), [0.0]);
    }

    proptest! {
        /// No small change of a coefficient explains the patterns better.
        #[test]
        fn no_coefficients_nearby_are_better(
            patterns in prop::collection::vec(prop::collection::vec(0.0_f64..2.0, 3), 1..8),
            event in 0..3_usize,
            change in prop::sample::select(vec![-1e-3, 1e-3]),
        ) {
            let all: Vec<&[f64]> = patterns.iter().map(Vec::as_slice).collect();
            let bytes = traffic_per_event(&all, 3);
            prop_assert!(bytes.iter().all(|it| *it >= 0.0));
            let mut other = bytes.clone();
            other[event] = (other[event] + change).max(0.0);
            let (best, near) = (squared_error(&all, &bytes), squared_error(&all, &other));
            prop_assert!(best <= near + 1e-9, "{bytes:?}: {best}, {other:?}: {near}");
        }
    }
}
