//! Values of sampled events: what each owner's samples stand for, and the addresses that they were
//! at, each with its 95% interval.

use std::collections::BTreeMap;

use super::{
    Attributes, Cell, Counter, Counting, Estimate, Kind, Method, Metric, Reason, Report, Subject,
    Table, Value, spe::of_samples, statistics,
};
use crate::{
    formula::NoValue,
    join::{Entity, Joined, Spot, SpotCounts},
    snapshot::{SampledCounts, SampledHealth},
    window::{Gained, SampledUsage, SampledWindow, float},
};

/// The metrics of sampled events: their indices in a report.
pub(super) struct SampledEvents<'a> {
    window: &'a SampledWindow,
    metrics: Vec<u32>,
    attributes: u32,
}

impl<'a> SampledEvents<'a> {
    pub(super) fn new(report: &mut Report, window: &'a SampledWindow) -> Self {
        let metric = |event: &SampledHealth| {
            report.add_metric(Metric {
                name: format!("sampled_{}", event.name),
                help: format!("What the samples of {} stand for", event.name),
                unit: if event.clock { "ns" } else { "" }.to_owned(),
                kind: Kind::Counter,
                counting: Counting::Samples,
            })
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
        for (event, metric) in (0_u8..).zip(&self.metrics) {
            let (delta, total) = (of_event(&row.delta, event), of_event(&row.total, event));
            // What a sample that was not taken would have stood for.
            let everyone = of_event(&self.window.total.total, event);
            let each = match everyone.counts.samples {
                0 => continue,
                samples => everyone.counts.operations / float(samples),
            };
            let counter = |counts: &SampledCounts, start| Counter {
                start,
                raw: counts.counts.samples,
                estimate: of_samples(match counts.counts.samples {
                    0 => statistics::nothing(each),
                    _ => statistics::count(counts.counts.operations, counts.counts.variance),
                }),
                time: None,
            };
            let value = match delta.counts.samples {
                0 if !ran => Err(Reason::NoValue(NoValue::DidNotRun)),
                _ => Ok(Value::Counter(counter(&delta, report.start))),
            };
            let total = (total.counts.samples > 0).then(|| counter(&total, row.since));
            let ids = [subject, *metric, self.attributes];
            report.push(ids, value, total);
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

/// A warning for each event of which samples were missed in a window: more than one in a hundred.
pub(super) fn missed(window: &SampledWindow) -> Vec<String> {
    let events = window.events.iter().zip(&window.missed);
    let missed = events.filter(|(_, (missed, due))| missed * 100 > *due);
    let lines = missed.map(|(event, (missed, due))| {
        let SampledHealth { name, .. } = event;
        format!(
            "{name}: {missed} of {due} samples were missed, as the kernel held them back; those \
             that were taken stand for what the event counted"
        )
    });
    lines.collect()
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
    let (mut all, mut kept) = (0, 0);
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
        let here: u64 = spots.iter().map(|(_, counts)| counts.samples).sum();
        kept += here;
        all += of_entity.counts.samples.max(here);
        spots.sort_by_key(|(spot, counts)| (std::cmp::Reverse(counts.periods), *spot));
        for (spot, counts) in spots.into_iter().take(shown) {
            let share = share(*counts, here, &of_entity);
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
        table.counts = vec![("hot_samples", all), ("hot_samples_kept", kept)];
    }
    Some(table)
}

/// The share of a row's events that samples at one of its addresses stand for. `kept` of the row's
/// samples have an address in the table: any other may have been there too, which the upper end
/// says.
fn share(at: SpotCounts, kept: u64, of_entity: &SampledCounts) -> Option<Estimate> {
    let whole = of_entity.counts;
    let samples = whole.samples.max(kept);
    let periods = of_entity.periods.max(at.periods);
    let n = match whole.samples {
        0 => float(samples),
        _ => whole.effective(whole.operations),
    };
    let mut share = statistics::share(float(at.periods), float(periods), n)?;
    let lost = float(samples - kept) / float(samples.max(1));
    share.high = (share.high + lost).min(1.0);
    Some(of_samples(share))
}

/// The function; of a place without one the address, in its module where that is known.
fn place(spot: &Spot) -> String {
    match (&spot.function, &spot.module, spot.tgid) {
        (Some(function), ..) => function.to_string(),
        (None, Some(_), _) => format!("+{:#x}", spot.address),
        (None, None, 0) => format!("{:#x}", spot.address),
        (None, None, tgid) => format!("{:#x} of process {tgid}", spot.address),
    }
}

fn build_id(spot: &Spot) -> String {
    let bytes = spot.build_id.iter().flat_map(|id| id.iter());
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::SpeCounts;

    fn counts(samples: u64) -> SampledCounts {
        SampledCounts {
            periods: 1000 * samples,
            counts: SpeCounts {
                samples,
                operations: 1000.0 * float(samples),
                variance: 1e6 * float(samples),
                ..SpeCounts::default()
            },
        }
    }

    #[test]
    fn what_was_not_kept_widens_the_upper_end() {
        let at = SpotCounts {
            samples: 40,
            periods: 40_000,
        };
        let whole = share(at, 100, &counts(100)).unwrap();
        assert!((whole.value - 0.4).abs() < 1e-12);
        let (low, high) = whole.interval.unwrap();
        assert!(
            (low - 0.3094).abs() < 1e-3 && (high - 0.4980).abs() < 1e-3,
            "{low} {high}"
        );
        // 20 of its 100 samples have no address.
        let (same, wider) = share(at, 80, &counts(100)).unwrap().interval.unwrap();
        assert!((same - low).abs() < 1e-12 && (wider - high - 0.2).abs() < 1e-12);
        assert_eq!(share(SpotCounts::default(), 0, &counts(0)), None);
    }

    #[test]
    fn missed_samples_are_told_from_one_in_a_hundred_on() {
        let event = |name: &str| SampledHealth {
            name: name.to_owned(),
            ..SampledHealth::default()
        };
        let window = SampledWindow {
            events: vec![event("cycles"), event("cpu-clock")],
            missed: vec![(1, 100), (20, 200)],
            ..SampledWindow::default()
        };
        let lines = missed(&window);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("cpu-clock: 20 of 200 samples were missed"));
    }
}
