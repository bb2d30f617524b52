//! Counters whose rate is also a metric of its own: `cpus_used` is `task-clock` per second.

use std::collections::{HashMap, HashSet};

use super::{Run, line::RunLine};

/// Largest relative difference between two series that are the same by definition.
const SAME: f64 = 1e-6;

/// For each line of a subject, whether it is a counter and another line is its rate. With both, one
/// change would be found twice.
pub(super) fn counted_twice(run: &Run, all: &[&RunLine]) -> Vec<bool> {
    let values = |line: &&RunLine| -> Vec<(usize, f64)> {
        let shown = line.shown(&run.metrics[line.metric], &run.windows);
        shown.filter(|(_, value)| value.is_finite()).collect()
    };
    let values: Vec<Vec<(usize, f64)>> = all.iter().map(values).collect();
    let sum = |values: &[(usize, f64)]| values.iter().map(|(_, value)| value).sum::<f64>();
    let sums: Vec<f64> = values.iter().map(|values| sum(values)).collect();
    let is_counter = |at: usize| run.metrics[all[at].metric].is_counter;
    let is_same = |own: usize, rate: usize| {
        let factor = sums[own] / sums[rate];
        let same = |((window, own), (other, rate)): (&(usize, f64), &(usize, f64))| {
            window == other && (own - rate * factor).abs() <= SAME * own.abs()
        };
        differs(values[rate].iter().map(|(_, value)| *value))
            && factor > 0.0
            && factor.is_finite()
            && values[own].len() == values[rate].len()
            && values[own].iter().zip(&values[rate]).all(same)
    };
    let is_twice = |own: usize| {
        let mut rates = (0..all.len())
            .filter(|at| !is_counter(*at) && all[*at].qualifier == all[own].qualifier);
        is_counter(own) && rates.any(|rate| is_same(own, rate))
    };
    (0..all.len()).map(is_twice).collect()
}

/// Whether a series has two different values. A constant series proves nothing: every other
/// constant one may be its rate.
fn differs(values: impl Iterator<Item = f64>) -> bool {
    let mut values = values.filter(|value| value.is_finite());
    let Some(first) = values.next() else {
        return false;
    };
    values.any(|value| (value - first).abs() > SAME * first.abs())
}

impl Run {
    /// Indices of counters whose rate is a metric of its own, in all lines with different values.
    pub(super) fn metrics_counted_twice(&self) -> HashSet<usize> {
        let mut by_subject: HashMap<usize, Vec<&RunLine>> = HashMap::new();
        for line in &self.lines {
            by_subject.entry(line.subject).or_default().push(line);
        }
        let (mut twice, mut once) = (HashSet::new(), HashSet::new());
        for lines in by_subject.values() {
            for (line, is_twice) in lines.iter().zip(counted_twice(self, lines)) {
                if is_twice {
                    twice.insert(line.metric);
                } else if differs(line.values.iter().copied()) {
                    once.insert(line.metric);
                }
            }
        }
        &twice - &once
    }
}
