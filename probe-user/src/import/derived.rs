//! Readings to metrics.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{
    Counted, ImportError, Interval, Reading, Set,
    recognise::{Known, recognise},
};
use crate::{
    catalogue::{Catalogue, CountOf, Counts, Hardware, Metric, Place, PmuSpec},
    formula::{Absent, Implicit, NoValue, Sample, Value},
};

/// The metrics of an input.
#[derive(Debug)]
pub struct Derived<'a> {
    /// In the order of the catalogue; each metric at least once, with a value or without.
    pub rows: Vec<Row<'a>>,
    /// Events of the input that are no event of this platform, and why.
    pub unused: Vec<(String, String)>,
}

/// One value, or the reason why there is none.
#[derive(Debug)]
pub struct Row<'a> {
    /// Of what.
    pub metric: &'a Metric,
    /// Interval and scope of the input.
    pub set: Set,
    /// Socket, device, peer, part, filters; empty for a whole machine.
    pub place: String,
    /// The value.
    pub value: Result<Value, NoValue>,
}

/// Where a count belongs: the PMU, the part of the input, the place, the modifiers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// Index of the PMU.
    pmu: usize,
    set: Set,
    place: Place,
    modifiers: String,
}

#[derive(Default)]
struct Cell {
    counts: Vec<(String, Result<Sample, ()>)>,
    units: BTreeSet<String>,
    enabled: Option<f64>,
}

/// The metrics that these readings give on that machine.
///
/// # Errors
/// Not one event is known there.
pub fn derive<'a>(
    catalogue: &'a Catalogue,
    machine: &Hardware,
    readings: &[Reading],
) -> Result<Derived<'a>, ImportError> {
    let pmus: Vec<Arc<PmuSpec>> = catalogue
        .families()
        .filter(|family| family.holds_on(machine))
        .flat_map(|family| family.pmus.iter().cloned())
        .collect();
    let implicits = implicits(readings);
    let mut cells: BTreeMap<Key, Cell> = BTreeMap::new();
    let mut unused = Vec::new();
    let mut events = 0;
    for reading in readings
        .iter()
        .filter(|reading| implicit(reading).is_none())
    {
        events += 1;
        let known = match find(&reading.event, &pmus) {
            Ok(known) => known,
            Err(why) => {
                unused.push((reading.event.clone(), why));
                continue;
            }
        };
        for (pmu, known) in known {
            let count = match count(reading, known.count) {
                Ok(count) => count,
                Err(why) => {
                    unused.push((reading.event.clone(), why));
                    break;
                }
            };
            let key = Key {
                pmu,
                set: reading.set.clone(),
                place: known.place,
                modifiers: known.modifiers,
            };
            let cell = cells.entry(key).or_default();
            cell.units.extend(known.unit);
            cell.enabled = cell.enabled.or(reading.enabled);
            cell.counts.extend(count.map(|count| (known.event, count)));
        }
    }
    if let (true, Some((first, why))) = (cells.is_empty(), unused.first()) {
        return Err(ImportError::NothingKnown {
            count: events,
            first: first.clone(),
            why: why.clone(),
            platform: machine.platform,
        });
    }
    unused.sort();
    unused.dedup();
    let inputs: BTreeMap<&Key, Counts> = cells
        .keys()
        .map(|key| (key, assemble(key, &cells, &pmus[key.pmu], &implicits)))
        .collect();
    let metrics = catalogue.on(machine);
    let rows = metrics
        .into_iter()
        .flat_map(|metric| rows(metric, machine, &inputs, &pmus))
        .collect();
    Ok(Derived { rows, unused })
}

/// The rows of a metric: every place that has its events, or one that says what is missing.
fn rows<'a>(
    metric: &'a Metric,
    machine: &Hardware,
    inputs: &BTreeMap<&Key, Counts>,
    pmus: &[Arc<PmuSpec>],
) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    let mut nearest: Option<(usize, Row<'a>)> = None;
    for (key, counts) in inputs {
        if !Arc::ptr_eq(&pmus[key.pmu], &metric.pmu) {
            continue;
        }
        let row = Row {
            metric,
            set: key.set.clone(),
            place: place(key),
            value: metric.evaluate(machine, counts),
        };
        match &row.value {
            Err(NoValue::Missing(missing)) => {
                let better = nearest
                    .as_ref()
                    .is_none_or(|(best, _)| missing.len() < *best);
                if better {
                    nearest = Some((missing.len(), row));
                }
            }
            _ => rows.push(row),
        }
    }
    if rows.is_empty() {
        rows.push(match nearest {
            Some((_, row)) => row,
            None => Row {
                metric,
                set: Set::default(),
                place: String::new(),
                value: Err(match metric.valid_on(machine) {
                    Err(reason @ NoValue::NotOnChip { .. }) => reason,
                    _ => NoValue::Missing(metric.events().into_iter().map(str::to_owned).collect()),
                }),
            },
        });
    }
    rows
}

fn place(key: &Key) -> String {
    let place = key.place.to_string();
    match (key.modifiers.as_str(), place.is_empty()) {
        ("", _) => place,
        (modifiers, true) => format!(":{modifiers}"),
        (modifiers, false) => format!("{place} :{modifiers}"),
    }
}

/// The PMUs and events that a name stands for: one, or the same of several core families.
fn find(event: &str, pmus: &[Arc<PmuSpec>]) -> Result<Vec<(usize, Known)>, String> {
    let known = pmus.iter().enumerate();
    let known: Vec<(usize, Known)> = known
        .filter_map(|(at, pmu)| Some((at, recognise(event, pmu)?)))
        .collect();
    let (cores, uncore): (Vec<_>, Vec<_>) = known
        .into_iter()
        .partition(|(at, _)| pmus[*at].pattern.is_core());
    // `cycles` alone is the core's, although every uncore PMU has cycles too.
    if !cores.is_empty() {
        return Ok(cores);
    }
    // Families of the user's have PMUs of the catalogue's again: those are one PMU.
    let patterns = uncore.iter().map(|(at, _)| pmus[*at].pattern.to_string());
    let patterns: BTreeSet<String> = patterns.collect();
    match patterns.len() {
        0 => Err("no event of this platform".to_owned()),
        1 => Ok(uncore),
        _ => {
            let patterns: Vec<String> = patterns.into_iter().collect();
            Err(format!(
                "several PMUs have it ({}): write pmu/event/",
                patterns.join(", ")
            ))
        }
    }
}

/// The count in the catalogue's unit; `None` where the event could not be opened.
fn count(reading: &Reading, of: CountOf) -> Result<Option<Result<Sample, ()>>, String> {
    let value = match reading.count {
        Counted::Value(value) => value,
        Counted::NotCounted => return Ok(Some(Err(()))),
        Counted::NotSupported => return Ok(None),
    };
    let factor = match (reading.unit.as_str(), of, of.bytes()) {
        ("", _, _) | ("ns", CountOf::Ns, _) => 1.0,
        ("msec", CountOf::Ns, _) => 1e6,
        ("MiB", _, Some(bytes)) => 1_048_576.0 / f64::from(bytes),
        (unit, ..) => return Err(format!("its unit {unit} is not that of a count of {of}")),
    };
    Ok(Some(Ok(Sample {
        count: value * factor,
        live: reading.live,
    })))
}

/// The quantity that a line gives instead of a count.
fn implicit(reading: &Reading) -> Option<Implicit> {
    Implicit::named(&reading.event)
}

type Implicits = BTreeMap<Set, BTreeMap<Implicit, f64>>;

/// The quantities of each set. Where only time stamps tell the time, an interval is as long as
/// from the one before.
fn implicits(readings: &[Reading]) -> Implicits {
    let mut all = Implicits::new();
    let mut intervals: BTreeSet<Option<Interval>> = BTreeSet::new();
    for reading in readings {
        intervals.insert(reading.set.interval);
        if let (Some(implicit), Counted::Value(value)) = (implicit(reading), reading.count) {
            let set = all.entry(reading.set.clone()).or_default();
            set.insert(implicit, value);
        }
    }
    let mut before = 0;
    for Interval(end) in intervals.into_iter().flatten() {
        let set = Set {
            interval: Some(Interval(end)),
            scope: None,
        };
        let set = all.entry(set).or_default();
        let length = Duration::from_nanos(end.saturating_sub(before)).as_secs_f64();
        if !set.contains_key(&Implicit::DurationTime) {
            set.entry(Implicit::Seconds).or_insert(length);
        }
        before = end;
    }
    all
}

/// The counts of a place with those that hold for it too: cycles have no peer, and a PMU's cycle
/// counter takes no filter.
fn assemble(
    key: &Key,
    cells: &BTreeMap<Key, Cell>,
    pmu: &PmuSpec,
    implicits: &Implicits,
) -> Counts {
    let mut counts = Counts::scaled();
    let wider = |other: &Key| {
        let (narrow, wide) = (&key.place, &other.place);
        other.pmu == key.pmu
            && other.set == key.set
            && other.modifiers == key.modifiers
            && wide.socket == narrow.socket
            && wide.device == narrow.device
            && (wide.peer == narrow.peer || wide.peer.is_none())
            && (wide.part == narrow.part || wide.part.is_none())
            && (wide.filters == narrow.filters || wide.filters.is_empty())
    };
    let own = &cells[key];
    let mut add = |cell: &Cell| {
        for (event, sample) in &cell.counts {
            match sample {
                Ok(sample) => counts.add_sample(event, *sample),
                Err(()) => counts.absent(event, Absent::NeverRan),
            }
        }
    };
    add(own);
    let has: BTreeSet<&String> = own.counts.iter().map(|(event, _)| event).collect();
    for (_, cell) in cells
        .iter()
        .filter(|(other, _)| *other != key && wider(other))
    {
        let missing = cell.counts.iter().filter(|(event, _)| !has.contains(event));
        add(&Cell {
            counts: missing.cloned().collect(),
            ..Cell::default()
        });
    }
    // What is said of the whole input holds for each part of it.
    let sets = [
        Set::default(),
        Set {
            interval: key.set.interval,
            scope: None,
        },
        key.set.clone(),
    ];
    let time = |counts: &mut Counts, implicit, value: f64| match implicit {
        Implicit::Seconds => counts.set_time(value * 1e9),
        Implicit::DurationTime => counts.set_time(value),
        other => counts.set(other, value),
    };
    if pmu.pattern.has_socket()
        && let Some(enabled) = own.enabled
    {
        // One reader: its time is the PMU's.
        counts.set_time(enabled);
    }
    // perf prints duration_time for the first CPU or socket only.
    let anywhere = implicits.iter().find_map(|(set, values)| {
        (set.interval == key.set.interval).then(|| values.get(&Implicit::DurationTime))?
    });
    if let Some(nanos) = anywhere {
        counts.set_time(*nanos);
    }
    for set in &sets {
        for (implicit, value) in implicits.get(set).into_iter().flatten() {
            time(&mut counts, *implicit, *value);
        }
    }
    if let Some(ports) = key.place.ports(pmu) {
        counts.set(Implicit::NumPorts, f64::from(ports));
    }
    if let Ok(units) = u32::try_from(own.units.len())
        && units > 0
    {
        counts.set(Implicit::NumUnits, f64::from(units));
    }
    counts
}
