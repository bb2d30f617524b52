//! Computes metrics from readings.
//!
//! The work is linear in lines and values: an event's name is looked up once, however often it
//! occurs, and a metric is tried only where one of its events was counted.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    ImportError, Reading, ReadingSet,
    counted::{CountLine, FormulaInput, PlaceCounts},
    events::{CountedPlace, InputEvents, count},
    order::GroupOrder,
    time::{self, Quantities, QuantityValues},
};
use crate::{
    catalogue::{Catalogue, Hardware, Metric, PmuSpec},
    formula::{FormulaValue, Implicit, NoValue},
};

/// The metrics of an input.
#[derive(Debug)]
pub struct Derived<'a> {
    /// In the order of the catalogue; each metric at least once, with a value or without.
    pub rows: Vec<DerivedRow<'a>>,
    /// Names in the input that are not an event of this platform or that no metric needs, with the
    /// reason.
    pub unused: Vec<(String, String)>,
    /// Events that were counted several times: perf does so if they are in several groups.
    pub repeated: BTreeSet<String>,
    /// Metrics with events from several groups, since no group has them all.
    pub mixed: BTreeSet<&'a str>,
    /// Times of the input that contradict each other, in sentences.
    pub times: BTreeSet<String>,
    /// The work that was done, in steps.
    pub(super) work: StepCount,
}

/// One value, or the reason why there is none.
#[derive(Debug)]
pub struct DerivedRow<'a> {
    /// The metric.
    pub metric: &'a Metric,
    /// Interval and scope of the input.
    pub set: Arc<ReadingSet>,
    /// Socket, device, peer, part, filters, modifiers; empty for a whole machine.
    pub place: Arc<str>,
    /// The value.
    pub value: Result<FormulaValue, NoValue>,
    /// Whether the metric's definition has a threshold that the value has passed.
    pub over_threshold: bool,
}

/// Counts the steps of the work, so that a test can compare inputs of different lengths.
#[derive(Debug, Default)]
pub(super) struct StepCount(Cell<u64>);

impl StepCount {
    pub(super) fn step(&self) {
        self.0.set(self.0.get() + 1);
    }

    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.0.get()
    }
}

/// A part of the input: its counts and quantities by place.
struct InputPart {
    set: Arc<ReadingSet>,
    places: BTreeMap<usize, (PlaceCounts, QuantityValues)>,
}

/// The metrics that these readings give on the machine.
///
/// # Errors
/// No event is known on the machine.
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
    let metrics = catalogue.on(machine);
    let quantities = Quantities::from_readings(readings);
    let counted = || readings.iter().filter(|it| time::implicit(it).is_none());
    let events = InputEvents::from_readings(counted(), &pmus);
    let mut derived = Derived {
        rows: Vec::new(),
        unused: events.unused(&metrics, &pmus),
        repeated: BTreeSet::new(),
        mixed: BTreeSet::new(),
        times: quantities.contradictions().iter().cloned().collect(),
        work: StepCount::default(),
    };
    let mut order = GroupOrder::new(events.streams, events.texts.len());
    let input = PreparedInput {
        machine,
        pmus: &pmus,
        events: &events,
        quantities: &quantities,
    };
    let parts: Vec<InputPart> = lines_by_part(counted())
        .into_iter()
        .enumerate()
        .map(|(at, (set, lines))| input.part(at, set, &lines, &mut order, &mut derived))
        .collect();
    if parts.iter().all(|part| part.places.is_empty())
        && let Some((first, why)) = counted().find_map(|it| derived.why_unused(&it.event))
    {
        return Err(ImportError::NothingKnown {
            count: counted().count(),
            first,
            why,
            platform: machine.platform,
        });
    }
    let mut first_parts: Vec<Option<&InputPart>> = vec![None; events.places.len()];
    for part in parts.iter().rev() {
        part.places
            .keys()
            .for_each(|place| first_parts[*place] = Some(part));
    }
    for metric in metrics {
        input.add_rows(&mut derived, metric, &parts, &first_parts);
    }
    derived.mark_over_threshold();
    Ok(derived)
}

/// The lines of each part, in the order of the parts. Lines of a part are mostly consecutive.
fn lines_by_part<'a>(
    readings: impl Iterator<Item = &'a Reading>,
) -> Vec<(&'a ReadingSet, Vec<&'a Reading>)> {
    let mut known: BTreeMap<&ReadingSet, usize> = BTreeMap::new();
    let mut parts: Vec<(&ReadingSet, Vec<&Reading>)> = Vec::new();
    let mut last = 0;
    for reading in readings {
        if parts.get(last).is_none_or(|(set, _)| **set != reading.set) {
            last = *known.entry(&reading.set).or_insert(parts.len());
            if last == parts.len() {
                parts.push((&reading.set, Vec::new()));
            }
        }
        parts[last].1.push(reading);
    }
    parts.sort_by_key(|(set, _)| *set);
    parts
}

impl Derived<'_> {
    /// Marks the values that have passed a threshold, which may depend on other values of the same
    /// part and place.
    fn mark_over_threshold(&mut self) {
        if self.rows.iter().all(|row| row.metric.threshold.is_none()) {
            return;
        }
        let mut values: BTreeMap<_, BTreeMap<&str, f64>> = BTreeMap::new();
        let key = |row: &DerivedRow<'_>| (Arc::clone(&row.set), Arc::clone(&row.place));
        for row in &self.rows {
            let value = row.value.as_ref().ok().map(|it| it.value);
            let named = value.map(|value| (row.metric.name.as_str(), value));
            values.entry(key(row)).or_default().extend(named);
        }
        for row in self.rows.iter_mut().filter(|row| row.value.is_ok()) {
            let here = &values[&key(row)];
            row.over_threshold = row.metric.is_over_threshold(|name| here.get(name).copied());
        }
    }

    fn why_unused(&self, event: &str) -> Option<(String, String)> {
        let (event, why) = self.unused.iter().find(|(unused, _)| unused == event)?;
        Some((event.clone(), why.clone()))
    }
}

/// The input in the form that every metric uses.
struct PreparedInput<'a> {
    machine: &'a Hardware,
    pmus: &'a [Arc<PmuSpec>],
    events: &'a InputEvents<'a>,
    quantities: &'a Quantities,
}

impl PreparedInput<'_> {
    /// The counts of one part of the input.
    fn part(
        &self,
        part: usize,
        set: &ReadingSet,
        lines: &[&Reading],
        order: &mut GroupOrder,
        derived: &mut Derived<'_>,
    ) -> InputPart {
        let mut places: BTreeMap<usize, (PlaceCounts, QuantityValues)> = BTreeMap::new();
        for reading in lines {
            let Some(event) = self.events.ids.get(reading.event.as_str()) else {
                continue;
            };
            let text = &self.events.texts[*event];
            let (group, is_repeated) = order.group(part, text.stream, *event, reading);
            if is_repeated && !derived.repeated.contains(&reading.event) {
                derived.repeated.insert(reading.event.clone());
            }
            for target in text.targets.iter().flatten() {
                let sample = match count(reading, target.count) {
                    Ok(None) => continue,
                    Ok(Some(sample)) => sample.ok(),
                    Err(why) => {
                        if derived.why_unused(&reading.event).is_none() {
                            derived.unused.push((reading.event.clone(), why));
                        }
                        break;
                    }
                };
                let line = CountLine {
                    event: target.event,
                    group,
                    sample,
                    unit: target.unit,
                    enabled: reading.enabled,
                };
                let (counts, _) = places.entry(target.place).or_default();
                counts.add(&line, &derived.work);
            }
        }
        for (at, (counts, values)) in &mut places {
            let CountedPlace { pmu, place, .. } = &self.events.places[*at];
            let pmu = &self.pmus[*pmu];
            *values = self.quantities.for_counts(set, counts, pmu);
            derived
                .times
                .extend(self.quantities.disagree(set, counts, pmu));
            if let Some(ports) = place.ports(pmu) {
                values.insert(Implicit::NumPorts, f64::from(ports));
            }
        }
        InputPart {
            set: Arc::new(set.clone()),
            places,
        }
    }

    /// Adds the rows of a metric: one for every place with its events, or one that names what is
    /// missing. `first_parts` has the first part of the input with each place.
    fn add_rows<'a>(
        &self,
        derived: &mut Derived<'a>,
        metric: &'a Metric,
        parts: &[InputPart],
        first_parts: &[Option<&InputPart>],
    ) {
        let pmu = self
            .pmus
            .iter()
            .position(|pmu| Arc::ptr_eq(pmu, &metric.pmu));
        let id = |name: &str| {
            let key = (pmu?, name.to_owned());
            self.events.names.get(&key).copied()
        };
        let metric_events: Vec<usize> = metric.events().into_iter().filter_map(id).collect();
        let places =
            (0..self.events.places.len()).filter(|at| Some(self.events.places[*at].pmu) == pmu);
        let is_counted_at = |at: usize, event: &usize| self.events.events_of[at].contains(event);
        let has_event = |at: &usize| metric_events.iter().any(|event| is_counted_at(*at, event));
        let is_complete = |at: &usize| {
            let is_counted_within = |event: &usize| {
                self.events.within[*at]
                    .iter()
                    .any(|at| is_counted_at(*at, event))
            };
            let events = metric.formula.events();
            events
                .iter()
                .all(|name| id(name).is_some_and(|id| is_counted_within(&id)))
        };
        let names = metric.formula.events().iter();
        let events: Vec<(&str, usize)> = names
            .filter_map(|name| Some((name.as_str(), id(name)?)))
            .collect();
        let rows_before = derived.rows.len();
        let mut fewest_missing: Option<(usize, DerivedRow<'a>)> = None;
        let mut add =
            |derived: &mut Derived<'a>, part: &InputPart, place: usize, only_missing: bool| {
                let Some((_, values)) = part.places.get(&place) else {
                    return;
                };
                let counts: Vec<&PlaceCounts> = self.events.within[place]
                    .iter()
                    .filter_map(|at| part.places.get(at).map(|(counts, _)| counts))
                    .collect();
                let inputs = FormulaInput::new(&events, &counts, values, &derived.work);
                let row = DerivedRow {
                    metric,
                    set: Arc::clone(&part.set),
                    place: Arc::clone(&self.events.place_names[place]),
                    value: metric.evaluate(self.machine, &inputs),
                    over_threshold: false,
                };
                match &row.value {
                    Err(NoValue::Missing(missing)) => {
                        let is_better = fewest_missing
                            .as_ref()
                            .is_none_or(|(best, _)| missing.len() < *best);
                        if is_better {
                            fewest_missing = Some((missing.len(), row));
                        }
                    }
                    _ if only_missing => {}
                    value => {
                        if value.is_ok() && inputs.mixed {
                            derived.mixed.insert(&metric.name);
                        }
                        derived.rows.push(row);
                    }
                }
            };
        let valid = metric.valid_on(self.machine);
        // A place that can never be complete is tried once, to find what is missing.
        let (tried, lacking): (Vec<usize>, Vec<usize>) = places.partition(|at| {
            valid.is_ok() && has_event(at) && (is_complete(at) || metric.formula.is_conditional())
        });
        if !tried.is_empty() {
            for part in parts {
                for place in &tried {
                    add(derived, part, *place, false);
                }
            }
        }
        for place in lacking {
            if let Some(part) = first_parts[place]
                && (valid.is_ok() || derived.rows.len() == rows_before)
            {
                add(derived, part, place, valid.is_ok());
            }
        }
        if derived.rows.len() > rows_before {
            return;
        }
        derived.rows.push(match fewest_missing {
            Some((_, row)) => row,
            None => DerivedRow {
                metric,
                set: Arc::default(),
                place: "".into(),
                value: Err(match valid {
                    Err(reason @ NoValue::NotOnChip { .. }) => reason,
                    _ => NoValue::Missing(metric.events().into_iter().map(str::to_owned).collect()),
                }),
                over_threshold: false,
            },
        });
    }
}
