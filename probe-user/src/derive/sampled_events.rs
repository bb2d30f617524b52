//! Values of sampled events, with 95% intervals: the events that the samples of each owner
//! represent, and their shares by address.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Attributes, CounterSource, CounterValue, Estimate, MetricInfo, MetricKind, Reason, Report,
    ReportTable, Spread, Subject, TableCell, Value, ValueMethod,
    spe::sampled_estimate,
    statistics::{self, ConfidenceInterval},
};
use crate::{
    formula::NoValue,
    join::{Entity, Hotspot, HotspotCounts, Joined},
    snapshot::SampleCounts,
    window::{
        EventGain, EventWindow, Gained, RunningTime, SampleSource, SampleUsage, SampleWindow, float,
    },
};

/// The metrics of sampled events: their indices in a report.
pub(super) struct SampledEvents<'a> {
    window: &'a SampleWindow,
    /// By event; None for memory accesses: [`super::accesses`] shows these.
    metrics: Vec<Option<u32>>,
    attributes: u32,
}

impl<'a> SampledEvents<'a> {
    pub(super) fn new(report: &mut Report, window: &'a SampleWindow) -> Self {
        let metric = |EventWindow { health: event, .. }: &EventWindow| {
            let metric = MetricInfo {
                name: format!("sampled_{}", event.name),
                help: format!("{} by its samples", event.name),
                unit: if event.clock { "ns" } else { "" }.to_owned(),
                kind: MetricKind::Counter,
                counting: CounterSource::Samples,
            };
            let shown = event.accesses.is_none();
            shown.then(|| report.add_metric(metric))
        };
        Self {
            metrics: window.events.iter().map(metric).collect(),
            attributes: report.add_attributes(Attributes {
                method: ValueMethod::Sampled,
                ..Attributes::default()
            }),
            window,
        }
    }

    /// Adds the sampled events of one row. `ran`: whether the row's owner ran in the window. A row
    /// without samples may still have had events, so its interval has an upper end above 0.
    pub(super) fn add_row(
        &self,
        report: &mut Report,
        subject: u32,
        row: &Gained<SampleUsage>,
        ran: bool,
    ) {
        let metrics = (0_u8..).zip(&self.metrics);
        for (event, metric) in metrics.filter_map(|(event, metric)| Some((event, (*metric)?))) {
            let [delta, total] = [&row.delta, &row.total].map(|it| EventSum::new(it, event));
            let window = &self.window.events[usize::from(event)];
            let time = window.multiplexed_time();
            // Samples of a clock miss tasks that timers wake (`SampleWindow::add_clock`).
            let clock = window.health.clock;
            let biased = clock || window.gained.limited;
            let estimate = match delta.counts.samples {
                0 if !ran => Err(Reason::NoValue(NoValue::DidNotRun)),
                _ if delta.counted.is_some() => Ok(delta.estimate()),
                0 if biased => Err(Reason::NotMeasured),
                0 => self.without_samples(event).map(sampled_estimate),
                _ => Ok(delta.estimate()),
            };
            let value = estimate.map(|estimate| {
                let counter = delta.counter(estimate, biased, report.start, time);
                Value::Counter(counter)
            });
            let is_known = total.counts.samples > 0 || total.counted.is_some();
            let total = is_known.then(|| {
                let biased = clock || window.ever_limited;
                total.counter(total.estimate(), biased, row.since, None)
            });
            let ids = [subject, metric, self.attributes];
            report.push(ids, value, total);
        }
    }
}

/// The samples of an event, over all kinds of access.
struct EventSum {
    counts: SampleCounts,
    /// The counted time, if the event is a clock.
    counted: Option<f64>,
}

impl EventSum {
    fn new(usage: &SampleUsage, event: u8) -> Self {
        let (mut counts, mut counted) = (SampleCounts::default(), 0.0);
        for (kind, of_kind) in usage {
            if kind.source == SampleSource::Event(event) {
                counts.add(of_kind);
            } else if kind.source == SampleSource::Clock(event) {
                counted += of_kind.operations;
            }
        }
        Self {
            counts,
            counted: (counted > 0.0).then_some(counted),
        }
    }

    /// The number of events.
    fn estimate(&self) -> Estimate {
        let sampled = || statistics::count(self.counts.operations, self.counts.variance);
        self.counted
            .map_or_else(|| sampled_estimate(sampled()), Estimate::exact)
    }

    /// `biased`: samples are or may be missing.
    fn counter(
        &self,
        mut estimate: Estimate,
        biased: bool,
        start: Duration,
        time: Option<RunningTime>,
    ) -> CounterValue {
        estimate.running_ratio = time.map_or(1.0, RunningTime::running_ratio);
        if biased && self.counted.is_none() {
            estimate.spread = Spread::None;
        }
        CounterValue {
            start,
            raw: self.counts.samples,
            estimate,
            time,
        }
    }
}

impl SampledEvents<'_> {
    /// The number of events of an owner without a sample in the window.
    fn without_samples(&self, event: u8) -> Result<ConfidenceInterval, Reason> {
        let window = &self.window.events[usize::from(event)];
        let health = &window.health;
        let multiplexed = window.multiplexed_time();
        if multiplexed.is_some_and(|time| time.running == 0) {
            return Err(Reason::NoValue(NoValue::NeverRan(health.name.clone())));
        }
        let machine_counts = |usage: &SampleUsage| EventSum::new(usage, event).counts;
        let now = machine_counts(&self.window.total.delta);
        if now.operations > 0.0 {
            // If periods vary, this is the mean weight of the sample in which an event falls.
            return Ok(statistics::unsampled(now.variance / now.operations));
        }
        let counted = float(window.gained.counted);
        let running_ratio = multiplexed.map_or(1.0, RunningTime::running_ratio);
        match health.period {
            _ if counted <= 0.0 => {
                let before = machine_counts(&self.window.total.total);
                // A PMU that does not count the event looks like a machine without such events.
                match before.samples {
                    0 => Err(Reason::NotMeasured),
                    samples => Ok(statistics::unsampled(before.operations / float(samples))),
                }
            }
            Some(period) => Ok(statistics::unsampled(float(period) / running_ratio)),
            // All events may belong to this owner.
            None => Ok(ConfidenceInterval {
                high: counted / running_ratio,
                ..statistics::unsampled(0.0)
            }),
        }
    }
}

/// Warnings about events with more than 1% of their samples missed in the window, and about events
/// that the kernel may have throttled.
pub(super) fn warnings(window: &SampleWindow) -> Vec<String> {
    let missed =
        { window.events.iter() }.filter(|event| event.gained.missed * 100 > event.gained.due);
    let lines = missed.map(|event| {
        let EventGain { missed, due, .. } = event.gained;
        format!(
            "{}: by the event's count {due} samples were due; {missed} of them were not taken, and \
             the next ones stand for them too",
            event.health.name
        )
    });
    let limited = window.events.iter().filter(|event| event.gained.limited);
    let limits = limited.map(|event| {
        format!(
            "{}: on some CPU its samples came near kernel.perf_event_max_sample_rate, at which the \
             kernel stops a counter until its next tick: its values may be too small, and have no \
             interval; sample less often",
            event.health.name
        )
    });
    lines.chain(limits).collect()
}

/// Columns of the lists of instructions and of data pages.
const INSTRUCTIONS: [&str; 7] = [
    "owner", "event", "function", "module", "build_id", "share", "samples",
];
const PAGES: [&str; 5] = ["owner", "event", "page", "share", "samples"];

/// The tables of instructions and, if any, of data pages. They show, for each row and event, the
/// `shown` addresses with the most events, and their shares of the row's events.
pub(super) fn hottest(window: &SampleWindow, joined: &Joined, shown: usize) -> Vec<ReportTable> {
    [false, true]
        .into_iter()
        .filter_map(|of_pages| table(window, joined, shown, of_pages))
        .collect()
}

fn table(
    window: &SampleWindow,
    joined: &Joined,
    shown: usize,
    of_pages: bool,
) -> Option<ReportTable> {
    let rows = joined.samples.as_ref()?;
    let mut groups: BTreeMap<(u8, &Entity), Vec<(&Hotspot, &HotspotCounts)>> = BTreeMap::new();
    for (spot, counts) in joined
        .hotspots
        .iter()
        .filter(|(spot, _)| spot.page == of_pages)
    {
        let group = groups.entry((spot.event, &spot.entity)).or_default();
        group.push((spot, counts));
    }
    if of_pages && groups.is_empty() {
        return None;
    }
    let mut table = ReportTable {
        name: if of_pages { "hot_pages" } else { "hot" },
        columns: if of_pages {
            PAGES.to_vec()
        } else {
            INSTRUCTIONS.to_vec()
        },
        rows: Vec::new(),
        small_rows: BTreeSet::new(),
        counts: Vec::new(),
    };
    let mut kept_samples = 0;
    // The number of samples of all rows, including samples without a recorded address.
    let all: u64 = rows
        .iter()
        .flat_map(|(_, row)| &row.delta)
        .filter(|(kind, _)| matches!(kind.source, SampleSource::Event(_)))
        .map(|(_, counts)| counts.samples)
        .sum();
    let mut sorted: Vec<_> = groups
        .into_iter()
        .map(|((event, entity), spots)| {
            let row = rows.of(entity).map(|row| EventSum::new(&row.delta, event));
            let of_entity = row.map_or_else(SampleCounts::default, |row| row.counts);
            (event, entity, of_entity, spots)
        })
        .collect();
    // The command comes first, as in the rows.
    let is_command = |entity: &Entity| matches!(entity, Entity::Command(_));
    sorted.sort_by(|a, b| {
        (a.0.cmp(&b.0))
            .then(is_command(b.1).cmp(&is_command(a.1)))
            .then(b.2.operations.total_cmp(&a.2.operations))
    });
    for (event, entity, of_entity, mut spots) in sorted {
        let recorded = HotspotCounts {
            samples: spots.iter().map(|(_, counts)| counts.samples).sum(),
            events: spots.iter().map(|(_, counts)| counts.events).sum(),
        };
        kept_samples += recorded.samples;
        spots.sort_by(|a, b| b.1.events.total_cmp(&a.1.events).then(a.0.cmp(b.0)));
        for (spot, counts) in spots.into_iter().take(shown) {
            let mut share = share(*counts, recorded, &of_entity);
            if let Some(share) = &mut share
                && window.events[usize::from(event)].gained.limited
            {
                share.spread = Spread::None;
            }
            let mut row = vec![
                TableCell::Owner(Subject::Entity(entity.clone())),
                TableCell::Text(window.events[usize::from(event)].health.name.clone()),
                TableCell::Text(location(spot)),
            ];
            if !of_pages {
                let module = spot.module.as_deref().unwrap_or_default();
                row.push(TableCell::Text(module.to_owned()));
                row.push(TableCell::Text(build_id(spot)));
            }
            row.extend([TableCell::Estimate(share), TableCell::Count(counts.samples)]);
            table.rows.push(row);
        }
    }
    if !of_pages {
        table.counts = vec![
            ("hot_samples", all.max(kept_samples)),
            ("hot_samples_kept", kept_samples),
        ];
    }
    Some(table)
}

/// The share of a row's events at one of its addresses. `kept`: the row's samples with a recorded
/// address. Samples without one may have been at this address too, which widens the upper end. If
/// the map of owners was full, `kept` exceeds the samples of `whole`.
fn share(at: HotspotCounts, kept: HotspotCounts, whole: &SampleCounts) -> Option<Estimate> {
    let samples = whole.samples.max(kept.samples);
    let events = whole.operations.max(kept.events);
    let n = match whole.samples {
        0 => float(samples),
        _ => whole.effective(whole.operations),
    };
    // The effective sample size is that of the whole row, limited by the samples at this address:
    // one sample with a long period is a large part of the events, and still only one sample.
    let part = at.events / events;
    let n = if part > 0.0 {
        n.min(float(at.samples) / part)
    } else {
        n
    };
    let mut share = statistics::share(at.events, events, n)?;
    let lost = float(samples - kept.samples) / float(samples.max(1));
    share.high = (share.high + lost).min(1.0);
    Some(sampled_estimate(share))
}

/// The name of the function. If unknown: the address, relative to the module or of a process.
fn location(spot: &Hotspot) -> String {
    match (&spot.function, &spot.module, spot.tgid) {
        (Some(function), ..) => function.to_string(),
        (None, Some(_), 0) => format!("+{:#x}", spot.address),
        (None, None, 0) => format!("{:#x}", spot.address),
        (None, _, tgid) => format!("{:#x} of process {tgid}", spot.address),
    }
}

fn build_id(spot: &Hotspot) -> String {
    let bytes = spot.build_id.iter().flat_map(|id| id.iter());
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
