//! The traffic that counts can stand for: the range over all mixtures of calibrated patterns whose
//! events are the counted ones.
//!
//! Several patterns against few events have no unique mixture, so there is no best one here, only
//! the two ends. Each end is a vertex: as many patterns as there are events at a bound. There are
//! few events, so all vertices are tried; the result is exact.

use super::solve::solve;

/// Lower and upper bounds of an owner's counts, by event.
pub(super) type Bounds = [(f64, f64)];

/// What all mixtures of patterns within the bounds move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MixtureRange {
    pub(super) low: f64,
    /// Infinite where a pattern moves something and counts nothing.
    pub(super) high: f64,
}

/// What the mixtures within the bounds move; `None` where none is within them. `patterns` are the
/// counts of each for one unit of traffic, none below 0.
pub(super) fn range(patterns: &[&[f64]], bounds: &Bounds) -> Option<MixtureRange> {
    let mut found: Option<MixtureRange> = None;
    let mut visit = |mixture: &[(usize, f64)]| {
        if !is_within(patterns, mixture, bounds) {
            return;
        }
        let bytes: f64 = mixture.iter().map(|(_, bytes)| bytes).sum();
        let range = found.get_or_insert(MixtureRange {
            low: bytes,
            high: bytes,
        });
        range.low = range.low.min(bytes);
        range.high = range.high.max(bytes);
    };
    visit(&[]);
    let most = bounds.len().min(patterns.len());
    for active in subsets(patterns.len(), most) {
        for events in subsets(bounds.len(), active.len()) {
            if events.len() == active.len() {
                vertices(patterns, bounds, &active, &events, &mut visit);
            }
        }
    }
    let invisible = patterns
        .iter()
        .any(|counts| counts.iter().all(|count| *count == 0.0));
    found.map(|range| MixtureRange {
        high: if invisible { f64::INFINITY } else { range.high },
        ..range
    })
}

/// The mixtures of the active patterns alone in which each of these events is at a bound.
fn vertices(
    patterns: &[&[f64]],
    bounds: &Bounds,
    active: &[usize],
    events: &[usize],
    visit: &mut impl FnMut(&[(usize, f64)]),
) {
    let matrix: Vec<Vec<f64>> = (events.iter())
        .map(|event| active.iter().map(|at| patterns[*at][*event]).collect())
        .collect();
    for upper in 0..1_usize << events.len() {
        let at_bound = events.iter().enumerate().map(|(place, event)| {
            let (low, high) = bounds[*event];
            if upper >> place & 1 == 1 { high } else { low }
        });
        if let Some(bytes) = solve(&matrix, &at_bound.collect::<Vec<_>>())
            && bytes.iter().all(|bytes| *bytes >= 0.0)
        {
            let mixture: Vec<_> = active.iter().copied().zip(bytes).collect();
            visit(&mixture);
        }
    }
}

/// Whether the events of a mixture are within the bounds, but for rounding.
fn is_within(patterns: &[&[f64]], mixture: &[(usize, f64)], bounds: &Bounds) -> bool {
    bounds.iter().enumerate().all(|(event, (low, high))| {
        let count: f64 = (mixture.iter())
            .map(|(at, bytes)| patterns[*at][event] * bytes)
            .sum();
        let rounding = 1e-9 * high;
        count >= low - rounding && count <= high + rounding
    })
}

/// All subsets of the numbers below `of` with 1 to `most` members.
pub(super) fn subsets(of: usize, most: usize) -> impl Iterator<Item = Vec<usize>> {
    (1..1_usize << of)
        .filter(move |set| set.count_ones() as usize <= most)
        .map(move |set| (0..of).filter(|at| set >> at & 1 == 1).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn close(found: Option<MixtureRange>, low: f64, high: f64) {
        let found = found.unwrap();
        assert!((found.low - low).abs() <= 1e-6 * low.max(1.0), "{found:?}");
        assert!(
            found.high == high || (found.high - high).abs() <= 1e-6 * high,
            "{found:?}"
        );
    }

    #[test]
    fn one_event_has_the_range_of_its_patterns() {
        // A stream counts one line in four, a chase each.
        let patterns: [&[f64]; 2] = [&[0.25 / 64.0], &[1.0 / 64.0]];
        close(range(&patterns, &[(100.0, 100.0)]), 6400.0, 25_600.0);
        // By counting error.
        close(range(&patterns, &[(90.0, 110.0)]), 5760.0, 28_160.0);
        close(range(&patterns, &[(0.0, 0.0)]), 0.0, 0.0);
    }

    #[test]
    fn a_second_event_tells_them_apart() {
        // It counts each line of both.
        let patterns: [&[f64]; 2] = [&[0.25, 1.0], &[1.0, 1.0]];
        close(
            range(&patterns, &[(25.0, 25.0), (100.0, 100.0)]),
            100.0,
            100.0,
        );
        // No mixture counts more of the first than of the second.
        assert_eq!(range(&patterns, &[(100.0, 100.0), (50.0, 50.0)]), None);
    }

    #[test]
    fn bytes_that_no_event_counts_have_no_upper_end() {
        let patterns: [&[f64]; 2] = [&[1.0], &[0.0]];
        close(range(&patterns, &[(100.0, 100.0)]), 100.0, f64::INFINITY);
    }

    proptest! {
        /// What any mixture moves is in the range of its events.
        #[test]
        fn no_mixture_is_outside(
            patterns in prop::collection::vec(prop::collection::vec(0.01_f64..2.0, 3), 1..8),
            mixture in prop::collection::vec(0.0_f64..1e6, 8),
            error in prop::sample::select(vec![0.0, 0.01]),
        ) {
            let all: Vec<&[f64]> = patterns.iter().map(Vec::as_slice).collect();
            let bounds: Vec<(f64, f64)> = (0..3).map(|event| {
                let parts = all.iter().zip(&mixture);
                let count: f64 = parts.map(|(pattern, bytes)| pattern[event] * bytes).sum();
                (count * (1.0 - error), count * (1.0 + error))
            }).collect();
            let bytes: f64 = mixture[..all.len()].iter().sum();
            let found = range(&all, &bounds);
            prop_assert!(found.is_some());
            let found = found.unwrap();
            prop_assert!(found.low <= bytes * (1.0 + 1e-6) + 1e-6, "{found:?} {bytes}");
            prop_assert!(found.high >= bytes * (1.0 - 1e-6) - 1e-6, "{found:?} {bytes}");
        }
    }
}
