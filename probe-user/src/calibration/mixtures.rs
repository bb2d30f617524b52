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

/// The mixtures of some patterns.
pub(super) struct Mixtures<'a> {
    /// The counts of each for one unit of traffic, none below 0.
    patterns: Vec<&'a [f64]>,
    bases: Vec<Basis>,
}

/// As many patterns as events, which together determine how much each pattern moved.
struct Basis {
    patterns: Vec<usize>,
    events: Vec<usize>,
    /// By pattern: what it moved for each count of an event.
    inverse: Vec<Vec<f64>>,
}

impl<'a> Mixtures<'a> {
    pub(super) fn of(patterns: Vec<&'a [f64]>, events: usize) -> Self {
        let most = events.min(patterns.len());
        let of_events = subsets(events, most);
        let mut bases = Vec::new();
        for active in subsets(patterns.len(), most) {
            let same = of_events
                .iter()
                .filter(|events| events.len() == active.len());
            bases.extend(same.filter_map(|events| Basis::new(&patterns, &active, events)));
        }
        Self { patterns, bases }
    }

    /// What the mixtures within the bounds move; `None` where none is within them.
    pub(super) fn range(&self, bounds: &Bounds) -> Option<MixtureRange> {
        let mut found: Option<MixtureRange> = None;
        let mut visit = |active: &[usize], moved: &[f64]| {
            if !self.is_within(active, moved, bounds) {
                return;
            }
            let all: f64 = moved.iter().sum();
            let range = found.get_or_insert(MixtureRange {
                low: all,
                high: all,
            });
            range.low = range.low.min(all);
            range.high = range.high.max(all);
        };
        visit(&[], &[]);
        for basis in &self.bases {
            basis.vertices(bounds, &mut visit);
        }
        let invisible = |counts: &&[f64]| counts.iter().all(|count| *count == 0.0);
        let unbounded = self.patterns.iter().any(invisible);
        found.map(|range| MixtureRange {
            high: if unbounded { f64::INFINITY } else { range.high },
            ..range
        })
    }

    /// Whether the counts of a mixture are within the bounds, but for rounding.
    fn is_within(&self, active: &[usize], moved: &[f64], bounds: &Bounds) -> bool {
        bounds.iter().enumerate().all(|(event, (low, high))| {
            let counts = active.iter().map(|at| self.patterns[*at][event]);
            let count: f64 = counts.zip(moved).map(|(count, moved)| count * moved).sum();
            let rounding = 1e-9 * high;
            count >= low - rounding && count <= high + rounding
        })
    }
}

impl Basis {
    /// `None` if the events do not separate these patterns.
    fn new(patterns: &[&[f64]], active: &[usize], events: &[usize]) -> Option<Self> {
        let matrix: Vec<Vec<f64>> = (events.iter())
            .map(|event| active.iter().map(|at| patterns[*at][*event]).collect())
            .collect();
        let unit = |at: usize| -> Vec<f64> {
            (0..events.len())
                .map(|other| f64::from(u8::from(other == at)))
                .collect()
        };
        let columns: Vec<Vec<f64>> = (0..events.len())
            .map(|at| solve(&matrix, &unit(at)))
            .collect::<Option<_>>()?;
        let row = |pattern: usize| columns.iter().map(|column| column[pattern]).collect();
        Some(Self {
            patterns: active.to_vec(),
            events: events.to_vec(),
            inverse: (0..active.len()).map(row).collect(),
        })
    }

    /// The mixtures of these patterns alone in which each of the events is at a bound.
    fn vertices(&self, bounds: &Bounds, visit: &mut impl FnMut(&[usize], &[f64])) {
        let size = self.events.len();
        let (mut counts, mut moved) = (vec![0.0; size], vec![0.0; size]);
        for upper in 0..1_usize << size {
            for (place, event) in self.events.iter().enumerate() {
                let (low, high) = bounds[*event];
                counts[place] = if upper >> place & 1 == 1 { high } else { low };
            }
            for (moved, row) in moved.iter_mut().zip(&self.inverse) {
                *moved = row.iter().zip(&counts).map(|(by, count)| by * count).sum();
            }
            if moved.iter().all(|moved| *moved >= 0.0) {
                visit(&self.patterns, &moved);
            }
        }
    }
}

/// All subsets of the numbers below `count` with 1 to `most` members.
pub(super) fn subsets(count: usize, most: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = (0..count).map(|at| vec![at]).collect();
    let mut longest = 0;
    for _ in 1..most {
        let shorter = longest..all.len();
        longest = all.len();
        for at in shorter {
            let last = all[at].last().copied().unwrap_or_default();
            for next in last + 1..count {
                let longer = [all[at].as_slice(), &[next]].concat();
                all.push(longer);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(patterns: &[&[f64]], bounds: &Bounds) -> Option<MixtureRange> {
        Mixtures::of(patterns.to_vec(), bounds.len()).range(bounds)
    }

    #[test]
    fn subsets_are_all_and_once() {
        assert_eq!(
            subsets(3, 2),
            [
                vec![0],
                vec![1],
                vec![2],
                vec![0, 1],
                vec![0, 2],
                vec![1, 2]
            ]
        );
        assert_eq!(subsets(24, 3).len(), 24 + 276 + 2024);
        assert_eq!(subsets(2, 2).len(), 3);
        assert_eq!(subsets(0, 0), Vec::<Vec<usize>>::new());
    }

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
