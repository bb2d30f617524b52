//! Memory accesses that SPE sampled between two snapshots, summed over CPUs.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use probe_common::spe::{Class, PageKey, PageRow, Source};

use serde::{Deserialize, Serialize};

use super::{CacheLines, Gained, Owner, RunningTime, Sum as _};
use crate::snapshot::{Names, Snapshot, SpeCounts, SpeHealth};

/// The memory level that served an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MemLevel {
    /// Known by the core's data-source table.
    By(Source),
    /// A data-source number without a known meaning.
    Number(u64),
    /// Unknown: the record has no data source. Stores have none on most cores.
    Unknown,
}

/// Samples of one owner by class of operation and memory level.
pub type SpeUsage = BTreeMap<(Class, MemLevel), SpeCounts>;

/// Sampled memory accesses between two snapshots.
#[derive(Clone, Debug)]
pub struct SpeWindow {
    /// `CLOCK_MONOTONIC` at the earlier snapshot.
    pub start: Duration,
    /// Time between the snapshots.
    pub length: Duration,
    /// Deltas by owner.
    pub usage: BTreeMap<Owner, SpeUsage>,
    /// The whole machine: the sum of all owners.
    pub total: Gained<SpeUsage>,
    /// Deltas by the socket of the CPU and owner, if uncore events are counted.
    pub on_socket: BTreeMap<(u32, Owner), SpeUsage>,
    /// Deltas by page; empty if none are kept.
    pub pages: Vec<(PageKey, PageRow)>,
    /// Deltas by cache line; empty if none are kept.
    pub lines: CacheLines,
    /// Names as of the later snapshot.
    pub names: Arc<Names>,
    /// The source of the samples.
    pub sampler: SampleSource,
}

/// The source of sampled memory accesses.
#[derive(Clone, Debug)]
pub enum SampleSource {
    /// Arm's SPE, with the programs' accounting since the session began, as of the later snapshot.
    Spe(Box<SpeHealth>),
    /// Counter overflows. These have neither issue nor translation latencies.
    Events {
        /// Classes without a number of operations: the core chose the operations that it timed.
        tagged: BTreeSet<Class>,
        /// Whether the kernel may have stopped a counter in this window, since the sample rate came
        /// near its limit.
        limited: bool,
        /// Whether that may have happened since the session began.
        ever_limited: bool,
        /// The time of the event with the lowest running ratio, if any event is multiplexed.
        time: Option<RunningTime>,
    },
}

impl SampleSource {
    /// Whether samples of a class stand for a number of operations.
    #[must_use]
    pub fn counts(&self, class: Class) -> bool {
        match self {
            Self::Spe(_) => true,
            Self::Events { tagged, .. } => !tagged.contains(&class),
        }
    }

    /// The longest latency that a sample can have, in cycles.
    pub(crate) fn max_latency(&self) -> f64 {
        match self {
            Self::Spe(health) => health.max_latency.into(),
            // Weights are 64 bits wide, and clamped.
            Self::Events { .. } => u16::MAX.into(),
        }
    }
}

impl SpeWindow {
    /// The difference of two snapshots of one session; None if it does not sample.
    #[must_use]
    pub fn between(earlier: &Snapshot, later: &Snapshot) -> Option<Self> {
        let (before, now) = (earlier.spe.as_ref()?, later.spe.as_ref()?);
        let mut usage: BTreeMap<Owner, SpeUsage> = BTreeMap::new();
        let mut on_socket: BTreeMap<(u32, Owner), SpeUsage> = BTreeMap::new();
        let freed = now.freed.iter().map(|(key, counts)| (key, counts));
        for (key, counts) in now.rows.iter().chain(freed) {
            let delta = delta(before.rows.get(key), counts);
            let table = now.tables.get(&u32::from(key.cpu));
            let served = match key.access.source() {
                None => MemLevel::Unknown,
                Some(number) => table
                    .filter(|_| key.access.class() == Class::Load)
                    .and_then(|table| table.load(number))
                    .map_or(MemLevel::Number(number), |origin| {
                        MemLevel::By(origin.source)
                    }),
            };
            let owner = Owner {
                cgroup: key.cgroup,
                tgid: key.tgid,
            };
            let kind = (key.access.class(), served);
            let of_owner = usage.entry(owner).or_default();
            of_owner.entry(kind).or_default().add(&delta);
            // An owner that was sampled before keeps a row, as with counters.
            if delta.samples == 0 {
                continue;
            }
            if let Some(topology) = &later.topology {
                // A CPU of no known socket counts as one of socket 0.
                let socket = topology.socket(key.cpu.into()).unwrap_or(0);
                let of_owner = on_socket.entry((socket, owner)).or_default();
                of_owner.entry(kind).or_default().add(&delta);
            }
        }
        let pages_before: HashMap<PageKey, PageRow> = before.pages.iter().copied().collect();
        let pages = now
            .pages
            .iter()
            .map(|(key, row)| (*key, page_delta(pages_before.get(key), row)))
            .filter(|(_, row)| row.samples > 0);
        let mut total = SpeUsage::new();
        for of_owner in usage.values() {
            total.add_all(of_owner);
        }
        Some(Self {
            total: Gained::first(total, earlier.at),
            start: earlier.at,
            length: later.at.saturating_sub(earlier.at),
            usage,
            on_socket,
            pages: pages.collect(),
            lines: CacheLines::between(before, now),
            names: Arc::clone(&later.names),
            sampler: SampleSource::Spe(Box::new(now.health.clone())),
        })
    }
}

impl SpeWindow {
    /// Mean number of operations that a sample stands for.
    #[expect(clippy::cast_precision_loss, reason = "a period is below 2^53")]
    pub(crate) fn weight(&self) -> f64 {
        match &self.sampler {
            SampleSource::Spe(health) => health.period as f64,
            SampleSource::Events { .. } => {
                let all = self.total.total.values();
                let sum = |(samples, operations), counts: &SpeCounts| {
                    (samples + counts.samples, operations + counts.operations)
                };
                let (samples, operations) = all.fold((0, 0.0), sum);
                operations / samples.max(1) as f64
            }
        }
    }
}

/// The difference of two readings of a row. A row that was freed and created again counts as a
/// whole. Rows only grow: one that shrank counts nothing.
fn delta(earlier: Option<&SpeCounts>, now: &SpeCounts) -> SpeCounts {
    let same = earlier.filter(|earlier| earlier.made == now.made);
    now.since(&same.copied().unwrap_or_default())
}

/// The difference of two readings of a page. A page that was evicted and added again counts as a
/// whole.
fn page_delta(earlier: Option<&PageRow>, now: &PageRow) -> PageRow {
    let same = earlier.filter(|earlier| earlier.made == now.made);
    let before = same.copied().unwrap_or_default();
    PageRow {
        samples: now.samples.saturating_sub(before.samples),
        timed: now.timed.saturating_sub(before.timed),
        cycles: now.cycles.saturating_sub(before.cycles),
        made: 0,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use probe_common::{
        CgroupId,
        spe::{SpeAccess, SpeCpu, SpeKey},
    };
    use proptest::prelude::*;

    use super::*;
    use crate::snapshot::{MapMemory, SpeHook, SpeReading};

    /// A window with these samples on sockets, and nothing else.
    pub(crate) fn sampled(on_socket: BTreeMap<(u32, Owner), SpeUsage>) -> SpeWindow {
        SpeWindow {
            start: Duration::ZERO,
            length: Duration::from_secs(1),
            usage: BTreeMap::new(),
            total: Gained::default(),
            on_socket,
            pages: Vec::new(),
            lines: CacheLines::default(),
            names: Arc::clone(&crate::window::tests::empty().names),
            sampler: SampleSource::Spe(Box::new(SpeHealth {
                hook: SpeHook::Fentry,
                period: 32_768,
                max_latency: 4095,
                sum: SpeCpu::default(),
                longest: 0,
                rows: 0,
                freed_idle: 0,
                memory: MapMemory::default(),
                sampler: BTreeMap::new(),
                aux_size: 8192,
                unlogged: 0,
                bpf_stats: None,
            })),
        }
    }

    const KEY: SpeKey = SpeKey {
        cgroup: CgroupId(7),
        tgid: 0,
        cpu: 0,
        access: SpeAccess::new(Class::Store, None),
    };

    fn counts(samples: u32, made: u64) -> SpeCounts {
        let mut counts = SpeCounts {
            made,
            operations: 100.0 * f64::from(samples),
            variance: 100.0 * f64::from(samples),
            ..SpeCounts::default()
        };
        counts.samples = samples.into();
        counts.cycles = 900.0 * f64::from(samples);
        counts.histogram[3] = 100.0 * f64::from(samples);
        counts
    }

    fn snapshot(rows: HashMap<SpeKey, SpeCounts>, freed: Vec<(SpeKey, SpeCounts)>) -> Snapshot {
        let SampleSource::Spe(health) = sampled(BTreeMap::new()).sampler else {
            unreachable!("it is SPE's");
        };
        let mut snapshot = crate::window::tests::snapshot([]);
        snapshot.spe = Some(SpeReading {
            rows,
            freed,
            pages: Vec::new(),
            lines: Vec::new(),
            tables: Arc::default(),
            health: *health,
        });
        snapshot
    }

    /// The sum of an owner over the windows between these snapshots.
    fn gained(snapshots: &[Snapshot]) -> SpeCounts {
        let mut sum = SpeCounts::default();
        for pair in snapshots.windows(2) {
            let window = SpeWindow::between(&pair[0], &pair[1]).unwrap();
            let deltas = window.usage.values().flat_map(BTreeMap::values);
            deltas.for_each(|delta| sum.add(delta));
        }
        sum
    }

    proptest! {
        /// Rows grow, are freed and are created again with smaller or larger counts, also more than
        /// once between two snapshots: the windows add up to everything that was sampled.
        #[test]
        fn rows_made_anew_are_told_by_their_number(
            steps in prop::collection::vec((1..1000_u32, any::<bool>(), any::<bool>()), 1..30),
        ) {
            let (mut now, mut made, mut all) = (0, 1, 0);
            let mut freed_before = Vec::new();
            let mut snapshots = vec![snapshot(HashMap::new(), Vec::new())];
            for (delta, freed, shown) in steps {
                now += delta;
                all += delta;
                if shown {
                    let rows = HashMap::from([(KEY, counts(now, made))]);
                    snapshots.push(snapshot(rows, std::mem::take(&mut freed_before)));
                }
                if freed {
                    // The snapshot that frees a row is the last that has it.
                    if !shown {
                        freed_before.push((KEY, counts(now, made)));
                    }
                    (now, made) = (0, made + 1);
                }
            }
            let rows = [(KEY, counts(now, made))].into_iter().filter(|_| now > 0);
            snapshots.push(snapshot(rows.collect(), freed_before));
            prop_assert_eq!(gained(&snapshots), counts(all, 0));
        }

        /// A row that went back has a delta of 0, not its whole history.
        #[test]
        fn a_row_that_went_back_was_not_made_anew(before in 1..1000_u32, now in 0..1000_u32) {
            let at = |samples| snapshot(HashMap::from([(KEY, counts(samples, 1))]), Vec::new());
            let delta = counts(now.saturating_sub(before), 0);
            prop_assert_eq!(gained(&[at(before), at(now)]), delta);
        }

        #[test]
        fn pages_that_came_back_are_told_by_their_age(before in 1..1000_u64, now in 0..1000_u64) {
            let page = |samples, made| PageRow::from_words(&[samples, samples, 9 * samples, made]);
            prop_assert_eq!(page_delta(Some(&page(before, 5)), &page(now, 7)), page(now, 0));
            let delta = page(now.saturating_sub(before), 0);
            prop_assert_eq!(page_delta(Some(&page(before, 5)), &page(now, 5)), delta);
        }
    }
}
