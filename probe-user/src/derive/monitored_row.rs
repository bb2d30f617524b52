//! A row's shares in the reads and writes of memories, next to the bytes that resctrl counted for
//! it. Resctrl counts reads and writes together, wherever the memory is.

use std::collections::{BTreeMap, BTreeSet};

/// A share, and the half width of its interval; None without an interval.
pub(crate) type ShareWidth = (f64, Option<f64>);

/// A row in a window. `P` is the memory of a share.
#[derive(Debug)]
pub(crate) struct MonitoredRow<P> {
    counts: Vec<Option<f64>>,
    /// By metric and memory.
    shares: BTreeMap<(usize, P), Option<ShareWidth>>,
}

impl<P> Default for MonitoredRow<P> {
    fn default() -> Self {
        Self {
            counts: Vec::new(),
            shares: BTreeMap::new(),
        }
    }
}

impl<P: Ord> MonitoredRow<P> {
    /// Adds what resctrl counted on a socket; `None` if unknown.
    pub(crate) fn add_count(&mut self, count: Option<f64>) {
        self.counts.push(count);
    }

    /// Adds a share with its interval. Shares of the same metric and memory may be added several
    /// times; at most one of them is known.
    pub(crate) fn add_share(
        &mut self,
        metric_and_memory: (usize, P),
        value: Option<f64>,
        interval: Option<(f64, f64)>,
    ) {
        let half = |value: f64| interval.map(|(low, high)| (high - value).max(value - low));
        let share = self.shares.entry(metric_and_memory).or_default();
        *share = value.map(|value| (value, half(value))).or(*share);
    }

    /// What resctrl counted; `None` unless each socket's count is known.
    pub(crate) fn counted(&self) -> Option<f64> {
        let all: Option<f64> = self.counts.iter().copied().sum();
        all.filter(|_| !self.counts.is_empty())
    }

    /// The sum of the shares; `None` unless `metrics` metrics have shares and all shares are known.
    /// Errors of the shares have the same causes, so their half widths add up.
    pub(crate) fn share(&self, metrics: usize) -> Option<ShareWidth> {
        let with_shares: BTreeSet<usize> = self.shares.keys().map(|(metric, _)| *metric).collect();
        if metrics == 0 || with_shares.len() != metrics {
            return None;
        }
        let mut shares = self.shares.values();
        shares.try_fold((0.0, Some(0.0)), |(sum, halves), share| {
            let (value, half) = (*share)?;
            let halves = halves.zip(half).map(|(a, b): (f64, f64)| a + b);
            Some((sum + value, halves))
        })
    }
}
