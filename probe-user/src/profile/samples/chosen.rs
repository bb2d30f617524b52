//! What is kept of samples while they are read: sums, and those that are drawn.

use std::collections::{BTreeMap, BinaryHeap, HashMap};

use crate::recording::{SampleRow, Text};

/// Points of a picture: a browser draws so many in half a second.
pub const POINTS: usize = 12_000;

/// Sums; samples that have no room are in sums by region alone.
const SUMS: usize = 1 << 14;

/// Sums by region alone, beside those; samples that have no room are in one without a region.
const REGIONS: usize = 1 << 10;

/// What samples have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) region: Option<Text>,
    pub(super) phase: Option<Text>,
    pub(super) cgroup: Option<Text>,
    pub(super) pid: Option<u32>,
    pub(super) tid: Option<u32>,
}

/// What a sum has, in numbers of texts.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) comm: Option<Text>,
    pub(super) samples: u64,
    pub(super) timed: u64,
    pub(super) cycles: u64,
    pub(super) operations: BTreeMap<Option<Text>, u64>,
    pub(super) sources: BTreeMap<Option<Text>, u64>,
}

#[derive(Default)]
pub(super) struct Sums {
    places: HashMap<Key, usize>,
    pub(super) list: Vec<(Key, Counts)>,
    pub(super) merged: u64,
}

impl Sums {
    /// Adds a sample, and says to which sum.
    pub(super) fn add(&mut self, row: &SampleRow) -> usize {
        let whole = Key {
            region: row.region,
            phase: row.phase,
            cgroup: row.cgroup,
            pid: row.pid,
            tid: row.tid,
        };
        let of_region = Key {
            region: row.region,
            ..Key::default()
        };
        let has_room = |key: &Key, most| self.list.len() < most || self.places.contains_key(key);
        let key = if has_room(&whole, SUMS) {
            whole
        } else if has_room(&of_region, SUMS + REGIONS) {
            of_region
        } else {
            // Regions are programs' names: they may be too many too.
            Key::default()
        };
        self.merged += u64::from(key != whole);
        let at = *self.places.entry(key).or_insert_with(|| {
            self.list.push((key, Counts::default()));
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

/// A sample that may be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    /// By which it is chosen.
    lot: u64,
    pub(super) time: u64,
    pub(super) address: u64,
    pub(super) sum: usize,
    pub(super) latency: Option<u32>,
    pub(super) operation: Option<Text>,
    pub(super) source: Option<Text>,
}

/// Samples to draw: those whose numbers have the smallest lots. Each is as likely as any other, and
/// the same file gives the same ones.
#[derive(Default)]
pub(super) struct Chosen(pub(super) BinaryHeap<Candidate>);

impl Chosen {
    pub(super) fn add(&mut self, sample: u64, sum: usize, row: &SampleRow) {
        let lot = lot(sample);
        if self.0.len() == POINTS && self.0.peek().is_some_and(|most| most.lot <= lot) {
            return;
        }
        if self.0.len() == POINTS {
            self.0.pop();
        }
        self.0.push(Candidate {
            lot,
            time: row.time.unwrap_or_default(),
            address: row.address.unwrap_or_default(),
            sum,
            latency: row.latency,
            operation: row.operation,
            source: row.source,
        });
    }
}

/// A number that looks random: the finalizer of `SplitMix64` (Steele, Lea, Flood, OOPSLA 2014).
const fn lot(number: u64) -> u64 {
    let mut lot = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    lot = (lot ^ (lot >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    lot = (lot ^ (lot >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    lot ^ (lot >> 31)
}
