//! Samples at overflows of events, between two snapshots.

use std::collections::BTreeMap;

use probe_common::{
    sample::DataSource,
    spe::{Class, PageKey, PageRow},
};

use super::{EventGain, EventWindow, MemLevel, RunningTime, SampleWindow};
use crate::snapshot::{
    AddressCounts, GrowingRow as _, SampleReading, SampledAddress, SampledEventHealth,
};

impl SampleWindow {
    /// Adds the accounting and the addresses of events between two readings.
    pub(super) fn add_events(&mut self, before: &SampleReading, now: &SampleReading) {
        let events = now.events.iter().enumerate();
        self.events = events
            .map(|(at, event)| EventWindow {
                health: event.clone(),
                ever_limited: event.limited > 0,
                gained: before
                    .events
                    .get(at)
                    .map_or_else(EventGain::default, |before| gained(before, event)),
            })
            .collect();
        self.addresses = addresses(before, now);
        self.places.clone_from(&now.places);
        self.names = now.names;
        if self.access_events().next().is_some() {
            self.pages = pages(&self.addresses);
        }
    }
}

/// Class and memory level of an access.
pub(super) fn access(source: DataSource) -> (Class, MemLevel) {
    match source.decode() {
        Some(access) => {
            let level = access.source.map_or(MemLevel::Unknown, MemLevel::By);
            (access.class, level)
        }
        // Samples that did not fit into the map.
        None => (Class::Other, MemLevel::Unknown),
    }
}

/// Data pages by process.
fn pages(addresses: &[(SampledAddress, AddressCounts)]) -> Vec<(PageKey, PageRow)> {
    let size = rustix::param::page_size() as u64;
    let mut pages: BTreeMap<(u32, u64), PageRow> = BTreeMap::new();
    for (key, counts) in addresses.iter().filter(|(key, _)| key.page) {
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

fn addresses(before: &SampleReading, now: &SampleReading) -> Vec<(SampledAddress, AddressCounts)> {
    let all = now.addresses.iter();
    let gained = all.map(|(key, counts)| (*key, counts.since(before.addresses.get(key))));
    let mut gained: Vec<_> = gained.filter(|(_, counts)| counts.samples > 0).collect();
    gained.sort_unstable_by_key(|(key, _)| *key);
    gained
}

fn gained(before: &SampledEventHealth, now: &SampledEventHealth) -> EventGain {
    let missed = now.missed.saturating_sub(before.missed);
    EventGain {
        counted: now.counted.saturating_sub(before.counted),
        time: RunningTime {
            enabled: now.enabled.saturating_sub(before.enabled),
            running: now.running.saturating_sub(before.running),
        },
        limited: now.limited > before.limited,
        missed,
        due: missed + now.sum.samples.saturating_sub(before.sum.samples),
    }
}
