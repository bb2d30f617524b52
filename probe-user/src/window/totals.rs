//! Totals since counting began, with the deltas of a window ([`Gained`]).

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{SampleUsage, Usage};
use crate::snapshot::UncoreReading;

/// The delta of a window, and the total since counting began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Gained<T> {
    /// The delta in the window. A saved state has only the totals.
    #[serde(skip)]
    pub delta: T,
    /// The sum of all windows since `since`.
    pub total: T,
    /// `CLOCK_MONOTONIC` at the start of the first window.
    pub since: Duration,
}

/// The totals of a window, without the totals of its rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Totals<'a> {
    /// [`Window::began`](super::Window::began)
    pub(crate) began: Duration,
    /// [`Window::boot_time`](super::Window::boot_time)
    pub(crate) boot_time: Duration,
    /// The counts of the machine.
    pub(crate) total: Cow<'a, Gained<Usage>>,
    /// The machine's uncore counters.
    pub(crate) uncore: Cow<'a, [UncoreTotal]>,
    /// The machine's samples.
    pub(crate) samples: Option<SampleTotals<'a>>,
}

/// The totals of a window's samples, without the totals of its rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SampleTotals<'a> {
    /// [`SampleWindow::sources`](super::SampleWindow::sources)
    pub(crate) sources: Vec<String>,
    /// [`EventWindow::ever_limited`](super::EventWindow::ever_limited) of each event.
    pub(crate) limited: Vec<bool>,
    /// The samples of the machine.
    pub(crate) total: Cow<'a, Gained<SampleUsage>>,
}

/// Counts that can be added up.
pub trait Sum: Clone {
    /// Zero counts of the same events.
    #[must_use]
    fn nothing(&self) -> Self;

    /// Adds the counts of another window or owner.
    fn add_all(&mut self, other: &Self);
}

impl<T: Sum> Gained<T> {
    /// The counts of the first window, which began at `since`: its total is its delta.
    pub(crate) fn first(delta: T, since: Duration) -> Self {
        Self {
            total: delta.clone(),
            delta,
            since,
        }
    }

    /// Continues the total of the previous window.
    pub(crate) fn continue_from(&mut self, before: &Self) {
        self.total.add_all(&before.total);
        self.since = before.since;
    }
}

impl Sum for Usage {
    fn nothing(&self) -> Self {
        vec![None; self.len()]
    }

    fn add_all(&mut self, other: &Self) {
        for (sum, row) in self.iter_mut().zip(other) {
            if let Some(row) = row {
                sum.get_or_insert_default().add(row);
            }
        }
    }
}

impl Sum for SampleUsage {
    fn nothing(&self) -> Self {
        Self::new()
    }

    fn add_all(&mut self, other: &Self) {
        for (kind, counts) in other {
            self.entry(*kind).or_default().add(counts);
        }
    }
}

/// The total of an uncore event on a socket, summed over the instances of its PMU. An instance adds
/// nothing in a window in which it could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UncoreTotal {
    /// Index into [`crate::plan::Plan::uncore`].
    pub at: usize,
    /// Socket, as [`crate::machine::topology::Topology`] numbers them.
    pub socket: u32,
    /// `CLOCK_MONOTONIC` at the start of the first window in which it was read.
    pub since: Duration,
    /// Raw count.
    pub raw: u64,
    /// Sum of the windows' estimates.
    pub estimate: f64,
    /// The variance of `estimate`.
    pub variance: f64,
    /// Nanoseconds enabled, summed over all instances.
    pub enabled: u64,
    /// Nanoseconds on the PMU, summed over all instances.
    pub running: u64,
}

/// The totals after a window with these deltas, in the order of events and sockets.
pub(super) fn uncore(
    readings: &[UncoreReading],
    start: Duration,
    before: &[UncoreTotal],
) -> Vec<UncoreTotal> {
    let before = before
        .iter()
        .map(|total| ((total.at, total.socket), *total));
    let mut totals: BTreeMap<(usize, u32), UncoreTotal> = before.collect();
    for reading in readings {
        let Some((count, estimate)) = reading.count.zip(reading.estimate()) else {
            continue;
        };
        let (at, socket) = (reading.at, reading.socket);
        let total = totals.entry((at, socket)).or_insert(UncoreTotal {
            at,
            socket,
            since: start,
            raw: 0,
            estimate: 0.0,
            variance: 0.0,
            enabled: 0,
            running: 0,
        });
        total.raw = total.raw.wrapping_add(count);
        total.estimate += estimate;
        total.variance += reading.error().powi(2);
        total.enabled += reading.enabled.max(reading.running);
        total.running += reading.running;
    }
    totals.into_values().collect()
}
