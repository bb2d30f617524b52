//! Computes the least and the most traffic that can have caused given event counts. The range
//! covers all mixtures of calibrated access patterns that have these counts.
//!
//! There are more patterns than events, so many mixtures have the same counts, and only the two
//! ends of the range are computed, by the dual linear program. Its unknowns are weights: the
//! traffic per count of each event.
//!
//! - Upper end: if the weighted counts of each pattern are at least its traffic, then this holds
//!   for every mixture. The upper end is the smallest sum of weighted counts by such weights.
//! - Lower end: likewise the largest sum by weights for which the weighted counts of each pattern
//!   are at most its traffic.
//!
//! The vertices of these programs do not depend on the counts, so they are found once. The result
//! is exact.

use super::{fit::weighted_sum, solve::solve};

/// Lower and upper bounds of an owner's counts, by event.
pub(super) type Bounds = [(f64, f64)];

/// The least and the most traffic of all mixtures whose counts are within the bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MixtureRange {
    pub(super) low: f64,
    /// Infinite if a pattern moves something and counts nothing.
    pub(super) high: f64,
}

impl MixtureRange {
    /// The range of the sum of two mixtures.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            low: self.low + other.low,
            high: self.high + other.high,
        }
    }
}

/// The part of a sum that may be due to rounding.
const ROUNDING: f64 = 1e-9;

/// The weights that bound the traffic of every mixture of some patterns.
#[derive(Default)]
pub(super) struct Mixtures {
    /// By these, the weighted counts of each pattern are at least what it moves.
    upper: Vec<Weights>,
    /// By these, the weighted counts of each pattern are at most what it moves.
    lower: Vec<Weights>,
    /// By these, the weighted counts of each pattern are at least 0.
    never_negative: Vec<Weights>,
}

impl Mixtures {
    /// `patterns`: the counts of each pattern for one unit of traffic, none below 0.
    pub(super) fn of(patterns: &[&[f64]], events: usize) -> Self {
        // Solutions are more precise in units in which the largest count of each event is 1.
        let units: Vec<f64> = (0..events)
            .map(|event| {
                let counts = patterns.iter().map(|counts| counts[event]);
                let largest = counts.fold(0.0, f64::max);
                if largest > 0.0 { largest } else { 1.0 }
            })
            .collect();
        let patterns: Vec<Vec<f64>> = (patterns.iter())
            .map(|counts| {
                counts
                    .iter()
                    .zip(&units)
                    .map(|(it, unit)| it / unit)
                    .collect()
            })
            .collect();
        let values = |weights: &[f64]| -> Vec<f64> {
            let values = patterns.iter().map(|counts| weighted_sum(counts, weights));
            values.collect()
        };
        // At a vertex as many constraints are active as there are events. A constraint is active
        // if a pattern's weighted counts equal its traffic, or if a weight is 0.
        let axes = (0..events).map(|event| axis(event, events));
        let constraints: Vec<Vec<f64>> = patterns.iter().cloned().chain(axes.clone()).collect();
        let active = |chosen: &[usize]| -> Vec<Vec<f64>> {
            chosen.iter().map(|at| constraints[*at].clone()).collect()
        };
        let mut mixtures = Self::default();
        for chosen in subsets(constraints.len(), events) {
            let is_pattern = |at: &usize| f64::from(u8::from(*at < patterns.len()));
            let right: Vec<f64> = chosen.iter().map(is_pattern).collect();
            let Some(weights) = solve(&active(&chosen), &right) else {
                continue;
            };
            let values = values(&weights);
            if values.iter().all(|value| *value >= 1.0 - ROUNDING) {
                mixtures.upper.push(Weights::new(&weights, &units));
            }
            if values.iter().all(|value| *value <= 1.0 + ROUNDING) {
                mixtures.lower.push(Weights::new(&weights, &units));
            }
        }
        // Extreme rays have one active constraint fewer, since their length is arbitrary.
        for chosen in subsets(constraints.len(), events.saturating_sub(1)) {
            let mut right = vec![0.0; chosen.len()];
            right.push(1.0);
            let direction = axes.clone().find_map(|axis| {
                let mut rows = active(&chosen);
                rows.push(axis);
                solve(&rows, &right)
            });
            for sign in [1.0, -1.0] {
                let weights = direction.iter().flatten().map(|it| sign * it);
                let weights: Vec<f64> = weights.collect();
                let rounding = |counts: &Vec<f64>| {
                    let parts = counts.iter().zip(&weights);
                    ROUNDING
                        * parts
                            .map(|(count, weight)| (count * weight).abs())
                            .sum::<f64>()
                };
                let mut least = values(&weights).into_iter().zip(&patterns);
                if least.all(|(value, counts)| value >= -rounding(counts)) {
                    mixtures.never_negative.push(Weights::new(&weights, &units));
                }
            }
        }
        mixtures
    }

    /// The range of the mixtures within the bounds; `None` if there are none.
    pub(super) fn range(&self, bounds: &Bounds) -> Option<MixtureRange> {
        let is_negative = |weights: &Weights| {
            let [_, most] = weights.ends(bounds);
            most < -ROUNDING * weights.size(bounds)
        };
        if self.never_negative.iter().any(is_negative) {
            return None;
        }
        let upper = self.upper.iter().map(|weights| weights.ends(bounds)[1]);
        let lower = self.lower.iter().map(|weights| weights.ends(bounds)[0]);
        let low = lower.fold(0.0, f64::max);
        Some(MixtureRange {
            low,
            high: upper.fold(f64::INFINITY, f64::min).max(low),
        })
    }
}

/// A factor of each event.
struct Weights(Vec<f64>);

impl Weights {
    /// The weights of raw counts, from those of counts in these units.
    fn new(scaled: &[f64], units: &[f64]) -> Self {
        Self(
            scaled
                .iter()
                .zip(units)
                .map(|(it, unit)| it / unit)
                .collect(),
        )
    }

    /// The least and the most that weighted counts within the bounds can be.
    fn ends(&self, bounds: &Bounds) -> [f64; 2] {
        let [mut least, mut most] = [0.0; 2];
        for (weight, (low, high)) in self.0.iter().zip(bounds) {
            let (low, high) = (weight * low, weight * high);
            least += low.min(high);
            most += low.max(high);
        }
        [least, most]
    }

    /// The sum of the absolute values of the weighted upper bounds, to which rounding is relative.
    fn size(&self, bounds: &Bounds) -> f64 {
        let parts = self.0.iter().zip(bounds);
        parts.map(|(weight, (_, high))| (weight * high).abs()).sum()
    }
}

/// Weights of 1 for this event and 0 for all others.
fn axis(event: usize, events: usize) -> Vec<f64> {
    let mut axis = vec![0.0; events];
    axis[event] = 1.0;
    axis
}

/// All subsets of the numbers below `count` with `size` members.
pub(super) fn subsets(count: usize, size: usize) -> Vec<Vec<usize>> {
    (0..size).fold(vec![Vec::new()], |shorter, _| {
        let longer = shorter.iter().flat_map(|subset| {
            let next = subset.last().map_or(0, |last| last + 1)..count;
            next.map(|next| [subset.as_slice(), &[next]].concat())
        });
        longer.collect()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(patterns: &[&[f64]], bounds: &Bounds) -> Option<MixtureRange> {
        Mixtures::of(patterns, bounds.len()).range(bounds)
    }

    #[test]
    fn every_subset_is_listed_once() {
        assert_eq!(subsets(3, 2), [[0, 1], [0, 2], [1, 2]]);
        assert_eq!(subsets(24, 3).len(), 2024);
        assert_eq!(subsets(2, 2).len(), 1);
        assert_eq!(subsets(2, 3), Vec::<Vec<usize>>::new());
        assert_eq!(subsets(2, 0), [Vec::<usize>::new()]);
    }

    fn assert_range(found: Option<MixtureRange>, low: f64, high: f64) {
        let found = found.unwrap();
        assert!((found.low - low).abs() <= 1e-6 * low.max(1.0), "{found:?}");
        assert!(
            found.high == high || (found.high - high).abs() <= 1e-6 * high,
            "{found:?}"
        );
    }

    #[test]
    fn one_event_has_the_range_of_its_patterns() {
        // A stream counts one line in four, a chase counts each line.
        let patterns: [&[f64]; 2] = [&[0.25 / 64.0], &[1.0 / 64.0]];
        assert_range(range(&patterns, &[(100.0, 100.0)]), 6400.0, 25_600.0);
        // The same with a counting error of 10%.
        assert_range(range(&patterns, &[(90.0, 110.0)]), 5760.0, 28_160.0);
        assert_range(range(&patterns, &[(0.0, 0.0)]), 0.0, 0.0);
    }

    #[test]
    fn a_second_event_distinguishes_patterns() {
        // The second event counts each line of both patterns.
        let patterns: [&[f64]; 2] = [&[0.25, 1.0], &[1.0, 1.0]];
        assert_range(
            range(&patterns, &[(25.0, 25.0), (100.0, 100.0)]),
            100.0,
            100.0,
        );
        // No mixture has more counts of the first event than of the second.
        assert_eq!(range(&patterns, &[(100.0, 100.0), (50.0, 50.0)]), None);
    }

    #[test]
    fn a_pattern_without_counts_has_no_upper_end() {
        let patterns: [&[f64]; 2] = [&[1.0], &[0.0]];
        assert_range(range(&patterns, &[(100.0, 100.0)]), 100.0, f64::INFINITY);
    }

    /// The least and the most that mixtures of at most two patterns move within the bounds of two
    /// events. It tries all pairs of patterns with both events at a bound, and all single patterns
    /// with one event at a bound.
    fn ends_of_pairs(patterns: &[&[f64]], bounds: &Bounds) -> (f64, f64) {
        let mut mixtures = Vec::new();
        for (at, a) in patterns.iter().enumerate() {
            for (event, (low, high)) in bounds.iter().enumerate() {
                mixtures.extend([low, high].map(|count| (*a, count / a[event], *a, 0.0)));
            }
            for b in &patterns[at + 1..] {
                let determinant = a[0] * b[1] - a[1] * b[0];
                for first in [bounds[0].0, bounds[0].1] {
                    for second in [bounds[1].0, bounds[1].1] {
                        let of_a = (first * b[1] - second * b[0]) / determinant;
                        let of_b = (second * a[0] - first * a[1]) / determinant;
                        mixtures.push((*a, of_a, *b, of_b));
                    }
                }
            }
        }
        let is_within = |(a, of_a, b, of_b): &(&[f64], f64, &[f64], f64)| {
            let inside = bounds.iter().enumerate().all(|(event, (low, high))| {
                let count = a[event] * of_a + b[event] * of_b;
                (low * (1.0 - 1e-6)..=high * (1.0 + 1e-6)).contains(&count)
            });
            *of_a >= 0.0 && *of_b >= 0.0 && inside
        };
        let moved = mixtures.into_iter().filter(is_within);
        let moved = moved.map(|(_, of_a, _, of_b)| of_a + of_b);
        moved.fold((f64::INFINITY, 0.0), |(low, high), it| {
            (low.min(it), high.max(it))
        })
    }

    /// The bounds of a mixture's counts with this relative error.
    fn bounds_around(patterns: &[&[f64]], mixture: &[f64], error: f64) -> Vec<(f64, f64)> {
        let counts = (0..patterns[0].len()).map(|event| -> f64 {
            let parts = patterns.iter().zip(mixture);
            parts.map(|(pattern, bytes)| pattern[event] * bytes).sum()
        });
        let bounds = counts.map(|count| (count * (1.0 - error), count * (1.0 + error)));
        bounds.collect()
    }

    proptest! {
        /// With two events, single patterns and pairs reach both ends: trying all of these finds
        /// the same ends.
        #[test]
        fn the_range_is_that_of_an_exhaustive_search(
            patterns in prop::collection::vec(prop::collection::vec(0.01_f64..2.0, 2), 1..8),
            mixture in prop::collection::vec(0.0_f64..1e6, 8),
            error in prop::sample::select(vec![0.0, 0.01, 0.3]),
        ) {
            let all: Vec<&[f64]> = patterns.iter().map(Vec::as_slice).collect();
            let bounds = bounds_around(&all, &mixture, error);
            let found = range(&all, &bounds).unwrap();
            let (low, high) = ends_of_pairs(&all, &bounds);
            prop_assert!((found.low - low).abs() <= 1e-4 * low.max(1.0), "{found:?} {low}");
            prop_assert!((found.high - high).abs() <= 1e-4 * high.max(1.0), "{found:?} {high}");
        }

        /// The traffic of any mixture is in the range of its counts.
        #[test]
        fn no_mixture_is_outside(
            patterns in prop::collection::vec(prop::collection::vec(0.01_f64..2.0, 3), 1..8),
            mixture in prop::collection::vec(0.0_f64..1e6, 8),
            error in prop::sample::select(vec![0.0, 0.01]),
        ) {
            let all: Vec<&[f64]> = patterns.iter().map(Vec::as_slice).collect();
            let bounds = bounds_around(&all, &mixture, error);
            let bytes: f64 = mixture[..all.len()].iter().sum();
            let found = range(&all, &bounds);
            prop_assert!(found.is_some());
            let found = found.unwrap();
            prop_assert!(found.low <= bytes * (1.0 + 1e-6) + 1e-6, "{found:?} {bytes}");
            prop_assert!(found.high >= bytes * (1.0 - 1e-6) - 1e-6, "{found:?} {bytes}");
        }
    }
}
