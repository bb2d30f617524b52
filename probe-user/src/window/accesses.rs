//! Memory accesses that events sampled, in the shape of SPE's: by what was done and where it was
//! served.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use probe_common::{
    sample::DataSource,
    spe::{Class, PageKey, PageRow},
};

use super::{
    Gained, Lines, Owner, SampledUsage, SampledWindow, Sampler, Served, SpeUsage, SpeWindow,
    Sum as _,
};
use crate::{
    event::Accesses,
    snapshot::{SampledHealth, Snapshot},
};

/// What those events of a window sampled that are of memory accesses; None where there are none.
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
    // Of loads also where a window has none of them: their totals go on.
    let chosen = |event: &SampledHealth| event.accesses == Some(Accesses::Tagged);
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
        // No share of a socket's traffic goes by them.
        on_socket: BTreeMap::new(),
        pages: pages(window),
        lines: Lines::default(),
        names: Arc::clone(&later.names),
        sampler: Sampler::Events {
            tagged,
            limited: accesses().any(|event| window.was_limited(event)),
            ever_limited: accesses().any(|event| window.was_ever_limited(event)),
            time: accesses()
                .filter_map(|event| window.took_turns(event))
                .min_by(|a, b| a.live().total_cmp(&b.live())),
        },
    })
}

/// The accesses of an owner, and the classes of which no number is known.
fn of_owner(
    sampled: &SampledUsage,
    of: impl Fn(u8) -> Option<Accesses>,
) -> (SpeUsage, BTreeSet<Class>) {
    let (mut usage, mut tagged) = (SpeUsage::new(), BTreeSet::new());
    for ((event, source), counts) in sampled {
        let Some(accesses) = of(*event) else {
            continue;
        };
        let kind = match DataSource(*source).said() {
            Some(said) => (said.class, said.source.map_or(Served::NotSaid, Served::By)),
            // Samples for which the map had no room.
            None => (Class::Other, Served::NotSaid),
        };
        if accesses == Accesses::Tagged {
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
    let pages = pages.into_iter();
    pages
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
            periods: 10 * samples,
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
        let source = |word| DataSource::of(word).0;
        // Loads of two kinds of core, stores, cycles, and what found no room.
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
        let tagged = Some(Accesses::Tagged);
        let window = SampledWindow {
            usage: BTreeMap::from([(owner, SampledUsage::from(usage))]),
            events: [tagged, tagged, Some(Accesses::Counted), None]
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
            ((Class::Load, Served::By(Source::L2)), 7),
            ((Class::Store, Served::NotSaid), 5),
            ((Class::Other, Served::NotSaid), 1),
        ];
        assert_eq!(samples, expected.into());
        let counts = |class| found.sampler.counts(class);
        assert!(!counts(Class::Load) && counts(Class::Store));
        // Of the page in both cgroups, but for the instruction.
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
