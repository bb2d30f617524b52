//! Memory accesses sampled by events, in the form of SPE's: by class of operation and memory level.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use probe_common::{
    sample::DataSource,
    spe::{Class, PageKey, PageRow},
};

use super::{
    CacheLines, Gained, MemLevel, Owner, SampleSource, SampledUsage, SampledWindow, SpeUsage,
    SpeWindow, Sum as _,
};
use crate::{
    event::AccessScaling,
    snapshot::{SampledHealth, Snapshot},
};

/// The samples of a window's memory-access events; None if it has no such events.
pub(super) fn of_events(
    window: &SampledWindow,
    earlier: &Snapshot,
    later: &Snapshot,
) -> Option<SpeWindow> {
    let of = |event: u8| window.events.get(usize::from(event))?.accesses;
    if window.events.iter().all(|event| event.accesses.is_none()) {
        return None;
    }
    let all = || window.events.iter().enumerate();
    let accesses = || {
        all()
            .filter(|(_, event)| event.accesses.is_some())
            .map(|(at, _)| at)
    };
    let mut usage: BTreeMap<Owner, SpeUsage> = BTreeMap::new();
    // Includes loads even if the window has none of them, since their totals continue.
    let chosen = |event: &SampledHealth| event.accesses == Some(AccessScaling::Tagged);
    let mut tagged = BTreeSet::new();
    tagged.extend(window.events.iter().any(chosen).then_some(Class::Load));
    for (owner, sampled) in &window.usage {
        let (of_owner, more) = of_owner(sampled, of);
        tagged.extend(more);
        usage.insert(*owner, of_owner);
    }
    let mut total = SpeUsage::new();
    usage.values().for_each(|of_owner| total.add_all(of_owner));
    Some(SpeWindow {
        start: earlier.at,
        length: later.at.saturating_sub(earlier.at),
        usage,
        total: Gained::first(total, earlier.at),
        // They are no weights of a socket's traffic.
        on_socket: BTreeMap::new(),
        pages: pages(window),
        lines: CacheLines::default(),
        names: Arc::clone(&later.names),
        sampler: SampleSource::Events {
            tagged,
            limited: accesses().any(|event| window.was_limited(event)),
            ever_limited: accesses().any(|event| window.was_ever_limited(event)),
            time: accesses()
                .filter_map(|event| window.multiplexed_time(event))
                .min_by(|a, b| a.running_ratio().total_cmp(&b.running_ratio())),
        },
    })
}

/// The accesses of an owner, and the classes without a known number of operations.
fn of_owner(
    sampled: &SampledUsage,
    of: impl Fn(u8) -> Option<AccessScaling>,
) -> (SpeUsage, BTreeSet<Class>) {
    let (mut usage, mut tagged) = (SpeUsage::new(), BTreeSet::new());
    for ((event, source), counts) in sampled {
        let Some(accesses) = of(*event) else {
            continue;
        };
        let kind = match DataSource(*source).decode() {
            Some(access) => (
                access.class,
                access.source.map_or(MemLevel::Unknown, MemLevel::By),
            ),
            // Samples that did not fit into the map.
            None => (Class::Other, MemLevel::Unknown),
        };
        if accesses == AccessScaling::Tagged {
            tagged.insert(kind.0);
        }
        usage.entry(kind).or_default().add(&counts.counts);
    }
    (usage, tagged)
}

/// Data pages by process.
fn pages(window: &SampledWindow) -> Vec<(PageKey, PageRow)> {
    let size = rustix::param::page_size() as u64;
    let mut pages: BTreeMap<(u32, u64), PageRow> = BTreeMap::new();
    for (key, counts) in window.addresses.iter().filter(|(key, _)| key.page) {
        let page = pages.entry((key.tgid, key.address / size)).or_default();
        page.samples += counts.samples;
        page.timed += counts.timed;
        page.cycles += counts.cycles;
    }
    pages
        .into_iter()
        .map(|((tgid, page), row)| {
            let tgid = tgid.into();
            (PageKey { page, tgid }, row)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use probe_common::{CgroupId, spe::Source};

    use super::*;
    use crate::snapshot::{AddressCounts, SampledAddress, SampledCounts, SampledHealth, SpeCounts};

    /// `PERF_MEM_OP_LOAD` with L2 hit, `PERF_MEM_OP_STORE`.
    const L2: u64 = 0x02 | 0x22 << 5;
    const STORE: u64 = 0x04;

    fn counts(samples: u64) -> SampledCounts {
        SampledCounts {
            counts: SpeCounts {
                samples,
                ..SpeCounts::default()
            },
            counted: None,
        }
    }

    #[test]
    fn events_of_accesses_have_spes_shape_and_others_are_left_out() {
        let owner = Owner {
            cgroup: CgroupId(7),
            tgid: 0,
        };
        let source = |word| DataSource::from_word(word).0;
        // Loads of two kinds of core, stores, cycles, and samples that did not fit into the map.
        let usage = [
            ((0, source(L2)), counts(3)),
            ((1, source(L2)), counts(4)),
            ((2, source(STORE)), counts(5)),
            ((3, 0), counts(100)),
            ((0, 0), counts(1)),
        ];
        let event = |accesses| SampledHealth {
            accesses,
            ..SampledHealth::default()
        };
        let page = |cgroup, tgid, page| SampledAddress {
            cgroup: CgroupId(cgroup),
            address: 3 * rustix::param::page_size() as u64,
            tgid,
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
        let tagged = Some(AccessScaling::Tagged);
        let window = SampledWindow {
            usage: BTreeMap::from([(owner, SampledUsage::from(usage))]),
            events: [tagged, tagged, Some(AccessScaling::Counted), None]
                .map(event)
                .into(),
            addresses: vec![
                (page(7, 9, true), row),
                (page(8, 9, true), row),
                (page(7, 9, false), row),
            ],
            ..SampledWindow::default()
        };
        let snapshot = crate::window::tests::snapshot([]);
        let found = of_events(&window, &snapshot, &snapshot).unwrap();
        let samples: BTreeMap<_, _> = found.usage[&owner]
            .iter()
            .map(|(kind, counts)| (*kind, counts.samples))
            .collect();
        let expected = [
            ((Class::Load, MemLevel::By(Source::L2)), 7),
            ((Class::Store, MemLevel::Unknown), 5),
            ((Class::Other, MemLevel::Unknown), 1),
        ];
        assert_eq!(samples, expected.into());
        let counts = |class| found.sampler.counts(class);
        assert!(!counts(Class::Load) && counts(Class::Store));
        // The page of both cgroups, without the instruction.
        let [(key, page)] = found.pages.as_slice() else {
            panic!("{:?}", found.pages);
        };
        assert_eq!((key.page, key.tgid), (3, 9));
        assert_eq!((page.samples, page.timed, page.cycles), (4, 2, 80));
        let others = SampledWindow {
            events: vec![event(None)],
            ..window
        };
        assert!(of_events(&others, &snapshot, &snapshot).is_none());
    }
}
