//! Tests of sample windows: rows that are freed and created again, and samples of SPE and of
//! events.

use std::sync::Arc;

use probe_common::{
    CgroupId, GROUP_COUNTERS, UsageRow,
    sample::DataSource,
    spe::{SpeAccess, SpeCpu},
};
use proptest::prelude::*;

use super::*;
use crate::snapshot::{MapMemory, SampledKey, SpeHook, SpeReading};
use crate::window::GroupCounts;

/// A window with these samples of SPE on sockets, and nothing else.
pub(crate) fn sampled_window(on_socket: BTreeMap<(u32, Owner), SampleUsage>) -> SampleWindow {
    SampleWindow {
        on_socket,
        spe: Some(Box::new(SpeHealth {
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
        ..SampleWindow::default()
    }
}

const KEY: SampledKey = SampledKey {
    cgroup: CgroupId(7),
    tgid: 0,
    origin: SampleOrigin::Spe {
        cpu: 0,
        access: SpeAccess::new(Class::Store, None),
    },
};

fn counts(samples: u32, made: u64) -> SampleCounts {
    let mut counts = SampleCounts {
        made,
        operations: 100.0 * f64::from(samples),
        variance: 100.0 * f64::from(samples),
        ..SampleCounts::default()
    };
    counts.samples = samples.into();
    counts.cycles = 900.0 * f64::from(samples);
    counts.histogram[3] = 100.0 * f64::from(samples);
    counts
}

/// A reading of SPE with these rows, and nothing else.
pub(crate) fn spe_reading(rows: HashMap<SampledKey, SampleCounts>) -> SampleReading {
    let spe = SpeReading {
        pages: Vec::new(),
        lines: Vec::new(),
        tables: Arc::default(),
        health: *sampled_window(BTreeMap::new()).spe.unwrap(),
    };
    SampleReading {
        rows,
        spe: Some(spe),
        ..SampleReading::default()
    }
}

fn snapshot(
    rows: HashMap<SampledKey, SampleCounts>,
    freed: Vec<(SampledKey, SampleCounts)>,
) -> Snapshot {
    let mut snapshot = crate::window::tests::snapshot([]);
    snapshot.samples = Some(SampleReading {
        freed,
        ..spe_reading(rows)
    });
    snapshot
}

/// The sum of an owner over the windows between these snapshots.
fn gained(snapshots: &[Snapshot]) -> SampleCounts {
    let mut sum = SampleCounts::default();
    for pair in snapshots.windows(2) {
        let window = SampleWindow::between(&pair[0], &pair[1]).unwrap();
        let deltas = window.usage.values().flat_map(BTreeMap::values);
        deltas.for_each(|delta| sum.add(delta));
    }
    sum
}

proptest! {
    /// Rows grow, are freed and are created again with smaller or larger counts, also more than
    /// once between two snapshots. The windows add up to everything that was sampled.
    #[test]
    fn rows_created_again_count_as_a_whole(
        steps in prop::collection::vec((1..1000_u32, any::<bool>(), any::<bool>()), 1..30),
        key in prop_oneof![Just(KEY), Just(event_key(7, 0, 0))],
    ) {
        let (mut now, mut made, mut sampled) = (0, 1, 0);
        let mut freed_rows = Vec::new();
        let mut snapshots = vec![snapshot(HashMap::new(), Vec::new())];
        for (delta, freed, shown) in steps {
            now += delta;
            sampled += delta;
            if shown {
                let rows = HashMap::from([(key, counts(now, made))]);
                snapshots.push(snapshot(rows, std::mem::take(&mut freed_rows)));
            }
            if freed {
                // A snapshot has the row among `rows` if it frees the row itself.
                if !shown {
                    freed_rows.push((key, counts(now, made)));
                }
                (now, made) = (0, made + 1);
            }
        }
        let rows = [(key, counts(now, made))].into_iter().filter(|_| now > 0);
        snapshots.push(snapshot(rows.collect(), freed_rows));
        prop_assert_eq!(gained(&snapshots), counts(sampled, 0));
    }

    /// A row that went back has a delta of 0, not its whole history.
    #[test]
    fn a_row_that_went_back_has_no_delta(before in 1..1000_u32, now in 0..1000_u32) {
        let reading = |samples| snapshot(HashMap::from([(KEY, counts(samples, 1))]), Vec::new());
        let delta = counts(now.saturating_sub(before), 0);
        prop_assert_eq!(gained(&[reading(before), reading(now)]), delta);
    }
}

/// A snapshot with samples of an event: each row's cgroup, samples and generation.
fn event_rows(rows: &[(u64, u64, u64)]) -> Snapshot {
    let row = |&(cgroup, samples, made): &(u64, u64, u64)| {
        let row = SampleCounts {
            samples,
            operations: f64::from(u32::try_from(10 * samples).unwrap()),
            made,
            ..SampleCounts::default()
        };
        (event_key(cgroup, 0, 0), row)
    };
    let mut snapshot = crate::window::tests::snapshot([]);
    snapshot.samples = Some(SampleReading {
        rows: rows.iter().map(row).collect(),
        ..SampleReading::default()
    });
    snapshot
}

fn event_key(cgroup: u64, event: u8, source: u8) -> SampledKey {
    SampledKey {
        cgroup: CgroupId(cgroup),
        tgid: 0,
        origin: SampleOrigin::Event { event, source },
    }
}

#[test]
fn deltas_are_increases_and_new_rows_count_as_a_whole() {
    let before = event_rows(&[(7, 100, 1), (8, 50, 1)]);
    let now = event_rows(&[(7, 130, 1), (8, 60, 5), (9, 4, 6)]);
    let window = SampleWindow::between(&before, &now).unwrap();
    let kind = SampleKind::event(0, None);
    let samples: Vec<u64> = window.usage.values().map(|it| it[&kind].samples).collect();
    assert_eq!(samples, [30, 60, 4]);
    let total = &window.total.delta[&kind];
    assert_eq!((total.samples, total.operations), (94, 940.0));
}

/// perf's data source of a load that hit L2, and of a store.
const L2: u64 = 0x02 | 0x22 << 5;
const STORE: u64 = 0x04;

#[test]
fn access_events_have_class_and_level_and_other_events_have_none() {
    let source = |word| DataSource::from_word(word).0;
    // Loads of two kinds of core, stores, cycles, and samples that did not fit into the map.
    let rows = [
        (0, source(L2), 3),
        (1, source(L2), 4),
        (2, source(STORE), 5),
        (3, 0, 100),
        (0, 0, 1),
    ];
    let rows = rows.map(|(event, source, samples)| {
        let row = SampleCounts {
            samples,
            ..SampleCounts::default()
        };
        (event_key(7, event, source), row)
    });
    let event = |accesses| SampledEventHealth {
        accesses,
        ..SampledEventHealth::default()
    };
    let page = |cgroup, page| {
        let key = SampledAddress {
            cgroup: CgroupId(cgroup),
            address: 3 * rustix::param::page_size() as u64,
            tgid: 9,
            event: 0,
            page,
            image: 0,
        };
        let row = AddressCounts {
            samples: 2,
            timed: 1,
            cycles: 40,
            ..AddressCounts::default()
        };
        (key, row)
    };
    let tagged = Some(AccessScaling::Tagged);
    let mut before = crate::window::tests::snapshot([]);
    before.samples = Some(SampleReading::default());
    let mut now = before.clone();
    now.samples = Some(SampleReading {
        rows: rows.into(),
        events: [tagged, tagged, Some(AccessScaling::Counted), None]
            .map(event)
            .into(),
        addresses: [page(7, true), page(8, true), page(7, false)].into(),
        ..SampleReading::default()
    });
    let window = SampleWindow::between(&before, &now).unwrap();
    let owner = Owner {
        cgroup: CgroupId(7),
        tgid: 0,
    };
    let samples: Vec<_> = window.usage[&owner]
        .iter()
        .map(|(kind, counts)| (*kind, counts.samples))
        .collect();
    let l2 = Some((Class::Load, MemLevel::By(Source::L2)));
    let expected = [
        (0, l2, 3),
        (0, Some((Class::Other, MemLevel::Unknown)), 1),
        (1, l2, 4),
        (2, Some((Class::Store, MemLevel::Unknown)), 5),
        (3, None, 100),
    ];
    let expected =
        expected.map(|(event, access, samples)| (SampleKind::event(event, access), samples));
    assert_eq!(samples, expected);
    assert_eq!(window.access_events().count(), 3);
    assert_eq!(window.tagged(), [Class::Load, Class::Other].into());
    // Both cgroups' samples of the page are summed. The instruction is no page.
    let [(key, page)] = window.pages.as_slice() else {
        panic!("{:?}", window.pages);
    };
    assert_eq!((key.page, key.tgid), (3, 9));
    assert_eq!((page.samples, page.timed, page.cycles), (4, 2, 80));
    // Loads are tagged even in a window without loads. Without access events there are no pages.
    let mut reading = now.samples.unwrap();
    reading.rows.clear();
    now.samples = Some(reading.clone());
    let window = SampleWindow::between(&before, &now).unwrap();
    assert_eq!(window.tagged(), [Class::Load].into());
    reading.events = vec![event(None)];
    now.samples = Some(reading);
    let window = SampleWindow::between(&before, &now).unwrap();
    assert_eq!((window.access_events().count(), window.pages.len()), (0, 0));
}

/// A window with 30 samples of one owner, taken by a clock event.
fn clock_window() -> (SampleWindow, Owner) {
    let [mut before, mut now] = [70, 100].map(|samples| event_rows(&[(7, samples, 1)]));
    for snapshot in [&mut before, &mut now] {
        snapshot.samples.as_mut().unwrap().events = vec![SampledEventHealth {
            name: "cpu-clock".to_owned(),
            clock: true,
            counts_as_it_samples: true,
            ..SampledEventHealth::default()
        }];
    }
    let window = SampleWindow::between(&before, &now).unwrap();
    let owner = *window.usage.keys().next().unwrap();
    (window, owner)
}

/// A total of counted time does not continue a total of samples.
#[test]
fn counted_time_and_samples_of_a_clock_are_different_sources() {
    let (sampled, owner) = clock_window();
    let mut counted = sampled.clone();
    let row = UsageRow {
        counts: [5; GROUP_COUNTERS],
        ..UsageRow::ZERO
    };
    let usage = [(owner, vec![Some(GroupCounts::of(&row))])].into();
    counted.add_clock(&usage, (0, 0));
    assert_ne!(sampled.sources(), counted.sources());
    let totals = |window: &SampleWindow| {
        let [event, clock] = [SampleKind::event(0, None), SampleKind::clock(0)];
        let total = |kind| window.total.total.get(&kind);
        (
            total(event).unwrap().samples,
            total(clock).unwrap().operations,
        )
    };
    let mut next = counted.clone();
    next.apply_totals(&sampled.totals());
    assert_eq!(totals(&next), (30, 5.0));
    next.apply_totals(&counted.totals());
    assert_eq!(totals(&next), (60, 10.0));
}

/// Totals can have kinds without samples in the window.
#[test]
fn a_class_is_tagged_if_totals_alone_have_it() {
    let mut window = SampleWindow {
        events: vec![EventWindow {
            health: SampledEventHealth {
                accesses: Some(AccessScaling::Tagged),
                ..SampledEventHealth::default()
            },
            ..EventWindow::default()
        }],
        ..SampleWindow::default()
    };
    let kind = SampleKind::event(0, Some((Class::Other, MemLevel::Unknown)));
    window.total.total.insert(kind, SampleCounts::default());
    assert_eq!(window.tagged(), [Class::Load, Class::Other].into());
}

/// The totals give the weight of a sample only while a window has no samples.
#[test]
fn the_weight_of_a_sample_comes_from_the_window_first() {
    let (class, level) = (Class::Load, MemLevel::Unknown);
    let kind = SampleKind {
        source: SampleSource::Event(0),
        access: Some((class, level)),
    };
    let usage = |operations: f64| {
        let sampled = SampleCounts {
            operations,
            ..counts(4, 1)
        };
        SampleUsage::from([(kind, sampled)])
    };
    let mut window = SampleWindow::default();
    window.total.total = usage(1200.0);
    assert_eq!(window.weight(), 300.0);
    window.total.delta = usage(800.0);
    assert_eq!(window.weight(), 200.0);
}
