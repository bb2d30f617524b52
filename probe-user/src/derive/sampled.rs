//! Values of sampled events: what each owner's samples stand for, and the addresses that they were
//! at, each with its 95% interval.

use std::{collections::BTreeMap, num::NonZeroU64};

use super::{
    Attributes, Cell, Counter, Counting, Estimate, Kind, Method, Metric, Reason, Report, Spread,
    Subject, Table, Value,
    spe::of_samples,
    statistics::{self, Interval},
};
use crate::{
    formula::NoValue,
    join::{Entity, Joined, Spot, SpotCounts},
    snapshot::{SampledCounts, SampledHealth},
    window::{Gained, LiveTime, SampledUsage, SampledWindow, float},
};

/// The metrics of sampled events: their indices in a report.
pub(super) struct SampledEvents<'a> {
    window: &'a SampledWindow,
    /// By event; none of memory accesses, which are shown by class and source.
    metrics: Vec<Option<u32>>,
    attributes: u32,
}

impl<'a> SampledEvents<'a> {
    pub(super) fn new(report: &mut Report, window: &'a SampledWindow) -> Self {
        let metric = |event: &SampledHealth| {
            let metric = Metric {
                name: format!("sampled_{}", event.name),
                help: format!("What the samples of {} stand for", event.name),
                unit: if event.clock { "ns" } else { "" }.to_owned(),
                kind: Kind::Counter,
                counting: Counting::Samples,
            };
            let shown = event.accesses.is_none();
            shown.then(|| report.add_metric(metric))
        };
        Self {
            metrics: window.events.iter().map(metric).collect(),
            attributes: report.add_attributes(Attributes {
                method: Method::Sampled,
                ..Attributes::default()
            }),
            window,
        }
    }

    /// Adds the events of one row, which `ran` in the window or not. Where none of its samples was
    /// taken its value may be more than 0: the interval says so.
    pub(super) fn add_row(
        &self,
        report: &mut Report,
        subject: u32,
        row: &Gained<SampledUsage>,
        ran: bool,
    ) {
        let metrics = (0_u8..).zip(&self.metrics);
        for (event, metric) in metrics.filter_map(|(event, metric)| Some((event, (*metric)?))) {
            let (delta, total) = (of_event(&row.delta, event), of_event(&row.total, event));
            let counter = |of: &SampledCounts, estimate, limited, start, time: Option<LiveTime>| {
                let mut estimate = Estimate {
                    live: time.map_or(1.0, LiveTime::live),
                    ..estimate
                };
                if limited && of.counted.is_none() {
                    estimate.spread = Spread::Unknown;
                }
                Counter {
                    start,
                    raw: of.counts.samples,
                    estimate,
                    time,
                }
            };
            let all = |of: &SampledCounts| {
                let sampled = || statistics::count(of.counts.operations, of.counts.variance);
                let known = |ns: NonZeroU64| Estimate::exact(float(ns.get()));
                of.counted.map_or_else(|| of_samples(sampled()), known)
            };
            let time = self.window.took_turns(event.into());
            let limited = self.window.was_limited(event.into());
            let estimate = match delta.counts.samples {
                0 if !ran => Err(Reason::NoValue(NoValue::DidNotRun)),
                _ if delta.counted.is_some() => Ok(all(&delta)),
                0 if limited => Err(Reason::NotMeasured),
                0 => self.none(event).map(of_samples),
                _ => Ok(all(&delta)),
            };
            let value = estimate.map(|estimate| {
                Value::Counter(counter(&delta, estimate, limited, report.start, time))
            });
            let is_known = total.counts.samples > 0 || total.counted.is_some();
            let total = is_known.then(|| {
                let limited = self.window.was_ever_limited(event.into());
                counter(&total, all(&total), limited, row.since, None)
            });
            let ids = [subject, metric, self.attributes];
            report.push(ids, value, total);
        }
    }
}

impl SampledEvents<'_> {
    /// The events of an owner of whom no sample was taken in the window.
    fn none(&self, event: u8) -> Result<Interval, Reason> {
        let at = usize::from(event);
        let health = &self.window.events[at];
        let turns = self.window.took_turns(at);
        if turns.is_some_and(|turns| turns.running == 0) {
            return Err(Reason::NoValue(NoValue::NeverRan(health.name.clone())));
        }
        let everyone = |of: &SampledUsage| of_event(of, event).counts;
        let now = everyone(&self.window.total.delta);
        if now.operations > 0.0 {
            // What one would have stood for, where periods vary: the mean by which each event finds
            // itself in a sample.
            return Ok(statistics::nothing(now.variance / now.operations));
        }
        let gained = self.window.events_gained.get(at).copied();
        let counted = float(gained.unwrap_or_default().counted);
        let live = turns.map_or(1.0, LiveTime::live);
        match health.period {
            _ if counted <= 0.0 => {
                let before = everyone(&self.window.total.total);
                // Nothing tells a machine without such events from a PMU that does not count them.
                match before.samples {
                    0 => Err(Reason::NotMeasured),
                    samples => Ok(statistics::nothing(before.operations / float(samples))),
                }
            }
            Some(period) => Ok(statistics::nothing(float(period) / live)),
            // All of them may be this owner's.
            None => Ok(Interval {
                high: counted / live,
                ..statistics::nothing(0.0)
            }),
        }
    }
}

/// The samples of an event, of all data sources.
fn of_event(usage: &SampledUsage, event: u8) -> SampledCounts {
    let mut sum = SampledCounts::default();
    for (_, counts) in usage.range((event, 0)..=(event, u8::MAX)) {
        sum.add(counts);
    }
    sum
}

/// A warning for each event of which samples were missed in a window, more than one in a hundred,
/// and for each that the kernel may have stopped.
pub(super) fn missed(window: &SampledWindow) -> Vec<String> {
    let events = window.events.iter().zip(&window.missed);
    let missed = events.filter(|(_, (missed, due))| missed * 100 > *due);
    let lines = missed.map(|(event, (missed, due))| {
        let SampledHealth { name, .. } = event;
        format!(
            "{name}: {missed} of {due} samples were due by the event's count and were not taken; \
             those that were stand for them too"
        )
    });
    let limited = window.events.iter().enumerate();
    let limited = limited.filter(|(at, _)| window.was_limited(*at));
    let limits = limited.map(|(_, event)| {
        format!(
            "{}: on some CPU its samples came near kernel.perf_event_max_sample_rate, at which the \
             kernel stops a counter until its next tick: its values may be too small, and have no \
             interval; sample less often",
            event.name
        )
    });
    lines.chain(limits).collect()
}

/// The columns of instructions, and of data pages.
const INSTRUCTIONS: [&str; 7] = [
    "owner", "event", "function", "module", "build_id", "share", "samples",
];
const PAGES: [&str; 5] = ["owner", "event", "page", "share", "samples"];

/// The addresses with most samples of each row and event, `shown` of each, and their shares of the
/// row's events: instructions, then data pages where there are any.
pub(super) fn hot(window: &SampledWindow, joined: &Joined, shown: usize) -> Vec<Table> {
    [false, true]
        .into_iter()
        .filter_map(|page| table(window, joined, shown, page))
        .collect()
}

fn table(window: &SampledWindow, joined: &Joined, shown: usize, page: bool) -> Option<Table> {
    let rows = joined.sampled.as_ref()?;
    let mut groups: BTreeMap<(u8, &Entity), Vec<(&Spot, &SpotCounts)>> = BTreeMap::new();
    for (spot, counts) in joined.spots.iter().filter(|(spot, _)| spot.page == page) {
        let group = groups.entry((spot.event, &spot.entity)).or_default();
        group.push((spot, counts));
    }
    if page && groups.is_empty() {
        return None;
    }
    let mut table = Table {
        name: if page { "hot_pages" } else { "hot" },
        columns: if page {
            PAGES.to_vec()
        } else {
            INSTRUCTIONS.to_vec()
        },
        rows: Vec::new(),
        counts: Vec::new(),
    };
    let mut kept = 0;
    // Of rows without an address in the table too.
    let all: u64 = rows
        .iter()
        .flat_map(|(_, row)| row.delta.values())
        .map(|counts| counts.counts.samples)
        .sum();
    let mut sorted: Vec<_> = groups
        .into_iter()
        .map(|((event, entity), spots)| {
            let of_entity = rows.of(entity).map(|row| of_event(&row.delta, event));
            (event, entity, of_entity.unwrap_or_default(), spots)
        })
        .collect();
    sorted.sort_by(|a, b| {
        let events = |it: &SampledCounts| it.counts.operations;
        a.0.cmp(&b.0).then(events(&b.2).total_cmp(&events(&a.2)))
    });
    for (event, entity, of_entity, mut spots) in sorted {
        let here = SpotCounts {
            samples: spots.iter().map(|(_, counts)| counts.samples).sum(),
            events: spots.iter().map(|(_, counts)| counts.events).sum(),
        };
        kept += here.samples;
        spots.sort_by(|a, b| b.1.events.total_cmp(&a.1.events).then(a.0.cmp(b.0)));
        for (spot, counts) in spots.into_iter().take(shown) {
            let mut share = share(*counts, here, &of_entity);
            if let Some(share) = &mut share
                && window.was_limited(event.into())
            {
                share.spread = Spread::Unknown;
            }
            let mut row = vec![
                Cell::Owner(Subject::Entity(entity.clone())),
                Cell::Text(window.events[usize::from(event)].name.clone()),
                Cell::Text(place(spot)),
            ];
            if !page {
                let module = spot.module.as_deref().unwrap_or_default();
                row.push(Cell::Text(module.to_owned()));
                row.push(Cell::Text(build_id(spot)));
            }
            row.extend([Cell::Estimate(share), Cell::Count(counts.samples)]);
            table.rows.push(row);
        }
    }
    if !page {
        table.counts = vec![("hot_samples", all.max(kept)), ("hot_samples_kept", kept)];
    }
    Some(table)
}

/// The share of a row's events that samples at one of its addresses stand for. Those of the row
/// that have an address in the table are `kept`: any other may have been there too, which the upper
/// end says. They are more than the row's own where samples found no room in the map of rows.
fn share(at: SpotCounts, kept: SpotCounts, of_entity: &SampledCounts) -> Option<Estimate> {
    let whole = of_entity.counts;
    let samples = whole.samples.max(kept.samples);
    let events = whole.operations.max(kept.events);
    let n = match whole.samples {
        0 => float(samples),
        _ => whole.effective(whole.operations),
    };
    // As independent as the whole row's, but no more than those that are there: one sample of a
    // long period says less than its part.
    let part = at.events / events;
    let n = if part > 0.0 {
        n.min(float(at.samples) / part)
    } else {
        n
    };
    let mut share = statistics::share(at.events, events, n)?;
    let lost = float(samples - kept.samples) / float(samples.max(1));
    share.high = (share.high + lost).min(1.0);
    Some(of_samples(share))
}

/// The function; of a place without one the address, in its module where that is known.
fn place(spot: &Spot) -> String {
    match (&spot.function, &spot.module, spot.tgid) {
        (Some(function), ..) => function.to_string(),
        (None, Some(_), 0) => format!("+{:#x}", spot.address),
        (None, None, 0) => format!("{:#x}", spot.address),
        (None, _, tgid) => format!("{:#x} of process {tgid}", spot.address),
    }
}

fn build_id(spot: &Spot) -> String {
    let bytes = spot.build_id.iter().flat_map(|id| id.iter());
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
