//! Reduces samples while they are read: to sums, and to a random selection of points.

use std::collections::{BTreeMap, BinaryHeap, HashMap};

use crate::samples::{SampleRow, TextIndex};

/// Points of a picture: a browser draws this many in half a second.
pub const POINTS: usize = 12_000;

/// Most sums by all keys; further samples go to sums by region alone.
const MAX_SUMS: usize = 1 << 14;

/// Most sums by region alone; further samples go to one sum without a region.
const MAX_REGION_SUMS: usize = 1 << 10;

/// The group of a sample, by text indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct GroupKey {
    pub(super) region: Option<TextIndex>,
    pub(super) phase: Option<TextIndex>,
    pub(super) cgroup: Option<TextIndex>,
    pub(super) pid: Option<u32>,
    pub(super) tid: Option<u32>,
}

/// Sums of a group's samples, by text indices.
#[derive(Default)]
pub(super) struct PointSums {
    pub(super) comm: Option<TextIndex>,
    pub(super) samples: u64,
    pub(super) timed: u64,
    pub(super) cycles: u64,
    pub(super) operations: BTreeMap<Option<TextIndex>, u64>,
    pub(super) sources: BTreeMap<Option<TextIndex>, u64>,
}

#[derive(Default)]
pub(super) struct PointSumsByGroup {
    positions: HashMap<GroupKey, usize>,
    pub(super) list: Vec<(GroupKey, PointSums)>,
    pub(super) merged: u64,
}

impl PointSumsByGroup {
    /// Adds a sample. Returns the index of its sum.
    pub(super) fn add(&mut self, row: &SampleRow) -> usize {
        let whole = GroupKey {
            region: row.region,
            phase: row.phase,
            cgroup: row.cgroup,
            pid: row.pid,
            tid: row.tid,
        };
        let of_region = GroupKey {
            region: row.region,
            ..GroupKey::default()
        };
        let has_space =
            |key: &GroupKey, limit| self.list.len() < limit || self.positions.contains_key(key);
        let key = if has_space(&whole, MAX_SUMS) {
            whole
        } else if has_space(&of_region, MAX_SUMS + MAX_REGION_SUMS) {
            of_region
        } else {
            // Programs name regions, so even the sums by region may be too many.
            GroupKey::default()
        };
        self.merged += u64::from(key != whole);
        let at = *self.positions.entry(key).or_insert_with(|| {
            self.list.push((key, PointSums::default()));
            self.list.len() - 1
        });
        let counts = &mut self.list[at].1;
        if counts.samples == 0 && key == whole {
            counts.comm = row.comm;
        }
        counts.samples += 1;
        *counts.operations.entry(row.operation).or_default() += 1;
        if row.source.is_some() {
            *counts.sources.entry(row.source).or_default() += 1;
        }
        if let Some(cycles) = row.latency {
            counts.timed += 1;
            counts.cycles += u64::from(cycles);
        }
        at
    }
}

/// A sample that may be drawn, ordered by `priority`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    /// The samples with the smallest priorities are drawn.
    priority: u64,
    pub(super) time: u64,
    pub(super) address: u64,
    pub(super) sum: usize,
    pub(super) latency: Option<u32>,
    pub(super) operation: Option<TextIndex>,
    pub(super) source: Option<TextIndex>,
}

/// The sample points to draw: those with the smallest hashes of their numbers. Each sample is
/// equally likely, and the same file always gives the same points.
#[derive(Default)]
pub(super) struct PointSelection(pub(super) BinaryHeap<Candidate>);

impl PointSelection {
    pub(super) fn add(&mut self, sample: u64, sum: usize, row: &SampleRow) {
        let priority = priority(sample);
        if self.0.len() == POINTS && self.0.peek().is_some_and(|last| last.priority <= priority) {
            return;
        }
        if self.0.len() == POINTS {
            self.0.pop();
        }
        self.0.push(Candidate {
            priority,
            time: row.time.unwrap_or_default(),
            address: row.address.unwrap_or_default(),
            sum,
            latency: row.latency,
            operation: row.operation,
            source: row.source,
        });
    }
}

/// A pseudo-random number: the finalizer of `SplitMix64` (Steele, Lea, Flood, OOPSLA 2014).
const fn priority(number: u64) -> u64 {
    let mut priority = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    priority = (priority ^ (priority >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    priority = (priority ^ (priority >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    priority ^ (priority >> 31)
}
