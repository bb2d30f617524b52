//! What SPE sampled between two snapshots, summed over CPUs.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use probe_common::spe::{Class, LatencySum, PageKey, PageRow, Source, SpeRow};

use super::Owner;
use crate::pull::{Names, Snapshot, SpeCounts, SpeHealth};

/// Where an access was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Served {
    /// As the core's table says.
    By(Source),
    /// A number that no table explains.
    Number(u64),
    /// Not said: stores carry no source on most cores.
    NotSaid,
}

/// Samples of one owner by what was done and where it was served.
pub type SpeUsage = BTreeMap<(Class, Served), SpeCounts>;

/// What was sampled between two snapshots.
#[derive(Clone, Debug)]
pub struct SpeWindow {
    /// `CLOCK_MONOTONIC` at the earlier snapshot.
    pub start: Duration,
    /// Time between the snapshots.
    pub length: Duration,
    /// Gains by owner.
    pub usage: BTreeMap<Owner, SpeUsage>,
    /// The same by the socket of the CPU, where uncore events are counted.
    pub on_socket: BTreeMap<(u32, Owner), SpeUsage>,
    /// Gains by page; empty where none are kept.
    pub pages: Vec<(PageKey, PageRow)>,
    /// Names as of the later snapshot.
    pub names: Arc<Names>,
    /// The programs' account of themselves as of the later snapshot, since the session began.
    pub health: SpeHealth,
}

impl SpeWindow {
    /// The difference of two snapshots of one session; None where it does not sample.
    #[must_use]
    pub fn between(earlier: &Snapshot, later: &Snapshot) -> Option<Self> {
        let (before, now) = (earlier.spe.as_ref()?, later.spe.as_ref()?);
        let mut usage: BTreeMap<Owner, SpeUsage> = BTreeMap::new();
        let mut on_socket: BTreeMap<(u32, Owner), SpeUsage> = BTreeMap::new();
        for (key, counts) in &now.rows {
            let gain = gain(before.rows.get(key), counts);
            if gain.row.samples == 0 {
                continue;
            }
            let table = now.tables.get(&u32::from(key.cpu));
            let served = match key.access.source() {
                None => Served::NotSaid,
                Some(number) => table
                    .filter(|_| key.access.class() == Class::Load)
                    .and_then(|table| table.load(number))
                    .map_or(Served::Number(number), |origin| Served::By(origin.source)),
            };
            let owner = Owner {
                cgroup: key.cgroup,
                tgid: key.tgid,
            };
            let kind = (key.access.class(), served);
            let of_owner = usage.entry(owner).or_default();
            add(of_owner.entry(kind).or_default(), &gain);
            if let Some(topology) = &later.topology {
                // Where the machine does not tell, it is one socket.
                let socket = topology.socket(key.cpu.into()).unwrap_or(0);
                let of_owner = on_socket.entry((socket, owner)).or_default();
                add(of_owner.entry(kind).or_default(), &gain);
            }
        }
        let pages_before: HashMap<PageKey, PageRow> = before.pages.iter().copied().collect();
        let pages = now
            .pages
            .iter()
            .map(|(key, row)| (*key, page_gain(pages_before.get(key), row)))
            .filter(|(_, row)| row.samples > 0);
        Some(Self {
            start: earlier.at,
            length: later.at.saturating_sub(earlier.at),
            usage,
            on_socket,
            pages: pages.collect(),
            names: Arc::clone(&later.names),
            health: now.health.clone(),
        })
    }
}

/// Rows only grow. One that is smaller was freed and made anew in between: all of it is gain.
fn gain(earlier: Option<&SpeCounts>, now: &SpeCounts) -> SpeCounts {
    let Some(before) = earlier.filter(|before| before.row.samples <= now.row.samples) else {
        return *now;
    };
    let (row, old) = (&now.row, &before.row);
    SpeCounts {
        row: SpeRow {
            samples: row.samples - old.samples,
            walks: row.walks.wrapping_sub(old.walks),
            total: latency_gain(row.total, old.total),
            issue: latency_gain(row.issue, old.issue),
            translation: latency_gain(row.translation, old.translation),
            histogram: std::array::from_fn(|at| row.histogram[at].wrapping_sub(old.histogram[at])),
        },
        operations: now.operations - before.operations,
        variance: now.variance - before.variance,
    }
}

fn latency_gain(now: LatencySum, before: LatencySum) -> LatencySum {
    LatencySum {
        cycles: now.cycles.wrapping_sub(before.cycles),
        squares: now.squares.wrapping_sub(before.squares),
    }
}

/// A page that was dropped from the table and came back has fewer samples than before.
fn page_gain(earlier: Option<&PageRow>, now: &PageRow) -> PageRow {
    match earlier {
        Some(old)
            if old.samples <= now.samples
                && old.timed <= now.timed
                && old.total.cycles <= now.total.cycles
                && old.total.squares <= now.total.squares =>
        {
            PageRow {
                samples: now.samples - old.samples,
                timed: now.timed - old.timed,
                total: latency_gain(now.total, old.total),
            }
        }
        _ => *now,
    }
}

/// Adds one owner's samples to another's.
pub(crate) fn add(sum: &mut SpeCounts, counts: &SpeCounts) {
    let latency = |sum: &mut LatencySum, more: LatencySum| {
        sum.cycles = sum.cycles.wrapping_add(more.cycles);
        sum.squares = sum.squares.wrapping_add(more.squares);
    };
    let (row, more) = (&mut sum.row, &counts.row);
    row.samples = row.samples.wrapping_add(more.samples);
    row.walks = row.walks.wrapping_add(more.walks);
    latency(&mut row.total, more.total);
    latency(&mut row.issue, more.issue);
    latency(&mut row.translation, more.translation);
    for (sum, more) in row.histogram.iter_mut().zip(more.histogram) {
        *sum = sum.wrapping_add(more);
    }
    sum.operations += counts.operations;
    sum.variance += counts.variance;
}

#[cfg(test)]
pub(crate) mod tests {
    use probe_common::spe::SpeCpu;

    use super::*;
    use crate::load::spe::SpeHook;

    /// A window with these samples on sockets, and nothing else.
    pub(crate) fn sampled(on_socket: BTreeMap<(u32, Owner), SpeUsage>) -> SpeWindow {
        SpeWindow {
            start: Duration::ZERO,
            length: Duration::from_secs(1),
            usage: BTreeMap::new(),
            on_socket,
            pages: Vec::new(),
            names: Arc::clone(&crate::window::tests::empty().names),
            health: SpeHealth {
                hook: SpeHook::Fentry,
                period: 32_768,
                sum: SpeCpu::default(),
                longest: 0,
                rows: 0,
                sampler: BTreeMap::new(),
                aux_size: 8192,
                unlogged: 0,
                bpf_stats: None,
            },
        }
    }

    fn counts(samples: u64, cycles: u64) -> SpeCounts {
        let mut counts = SpeCounts::default();
        counts.row.samples = samples;
        counts.row.total.cycles = cycles;
        counts.row.histogram[3] = samples;
        counts.operations = 100.0 * f64::from(u32::try_from(samples).unwrap());
        counts
    }

    #[test]
    fn what_was_there_before_is_no_gain() {
        let gain = gain(Some(&counts(10, 100)), &counts(15, 160));
        assert_eq!(gain, counts(5, 60));
    }

    #[test]
    fn a_row_that_was_freed_in_between_is_all_gain() {
        assert_eq!(gain(Some(&counts(10, 100)), &counts(4, 40)), counts(4, 40));
        assert_eq!(gain(None, &counts(4, 40)), counts(4, 40));
    }

    #[test]
    fn sums_keep_every_field() {
        let mut sum = counts(1, 7);
        add(&mut sum, &counts(2, 30));
        assert_eq!(sum, counts(3, 37));
    }

    #[test]
    fn a_page_that_came_back_counts_anew() {
        let row = |samples, cycles| PageRow::from_words([samples, samples, cycles, 10 * cycles]);
        assert_eq!(page_gain(Some(&row(9, 90)), &row(12, 130)), row(3, 40));
        assert_eq!(page_gain(Some(&row(9, 90)), &row(2, 20)), row(2, 20));
    }
}
