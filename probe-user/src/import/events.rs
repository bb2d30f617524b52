//! The events of an input: the meaning of each printed name, and the place of its counts.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map},
    sync::Arc,
};

use super::{
    CountedValue, Reading, order,
    recognise::{RecognisedEvent, recognise},
};
use crate::{
    catalogue::{CountOf, Metric, MetricPlace, PmuSpec},
    formula::EventCount,
};

/// The PMU of software events.
const SOFTWARE: &str = "software";

/// The place of counts, the same in every part of the input: PMU, place, modifiers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CountedPlace {
    /// Index of the PMU.
    pub(super) pmu: usize,
    pub(super) place: MetricPlace,
    pub(super) modifiers: String,
}

impl CountedPlace {
    fn from_known(pmu: usize, known: &RecognisedEvent) -> Self {
        Self {
            pmu,
            place: known.place.clone(),
            modifiers: known.modifiers.clone(),
        }
    }

    /// Whether counts of a wider place also apply to this one: cycles have no peer, and a PMU's
    /// cycle counter takes no filter.
    fn is_within(&self, wide: &Self) -> bool {
        let (narrow, place) = (&self.place, &wide.place);
        wide.pmu == self.pmu
            && wide.modifiers == self.modifiers
            && place.socket == narrow.socket
            && place.device == narrow.device
            && (place.peer == narrow.peer || place.peer.is_none())
            && (place.part == narrow.part || place.part.is_none())
            && (place.filters == narrow.filters || place.filters.is_empty())
    }

    /// The number of terms that narrow the place.
    fn narrowness(&self) -> usize {
        let MetricPlace {
            peer,
            part,
            filters,
            ..
        } = &self.place;
        usize::from(peer.is_some()) + usize::from(part.is_some()) + filters.len()
    }
}

impl std::fmt::Display for CountedPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = self.place.to_string();
        match (self.modifiers.as_str(), place.is_empty()) {
            ("", _) => f.write_str(&place),
            (modifiers, true) => write!(f, ":{modifiers}"),
            (modifiers, false) => write!(f, "{place} :{modifiers}"),
        }
    }
}

/// The meanings of a printed event: indices of PMUs, each with the event there.
type Meanings = Vec<(usize, RecognisedEvent)>;

/// The meaning of a printed event: indices of its place, its event and its unit.
pub(super) struct Meaning {
    pub(super) place: usize,
    pub(super) event: usize,
    pub(super) unit: Option<usize>,
    pub(super) count: CountOf,
}

/// A printed event.
pub(super) struct PrintedEvent<'a> {
    text: &'a str,
    pub(super) targets: Result<Vec<Meaning>, String>,
    /// The index of the stream of events with the same printed PMU.
    pub(super) stream: usize,
}

/// The events of an input.
pub(super) struct InputEvents<'a> {
    pub(super) texts: Vec<PrintedEvent<'a>>,
    /// The index of each printed event in `texts`.
    pub(super) ids: HashMap<&'a str, usize>,
    pub(super) streams: usize,
    pub(super) places: Vec<CountedPlace>,
    /// The names of the places.
    pub(super) place_names: Vec<Arc<str>>,
    /// By place: the places with counts that apply to it. Itself first, then wider ones, the
    /// narrowest first.
    pub(super) within: Vec<Vec<usize>>,
    /// By place: its events.
    pub(super) events_of: Vec<BTreeSet<usize>>,
    /// Indices of events by PMU and name.
    pub(super) names: BTreeMap<(usize, String), usize>,
}

impl<'a> InputEvents<'a> {
    pub(super) fn from_readings(
        readings: impl Iterator<Item = &'a Reading>,
        pmus: &[Arc<PmuSpec>],
    ) -> Self {
        let mut ids: HashMap<&str, usize> = HashMap::new();
        let mut known: Vec<(&str, Result<Meanings, String>)> = Vec::new();
        for reading in readings {
            if let hash_map::Entry::Vacant(new) = ids.entry(&reading.event) {
                new.insert(known.len());
                known.push((&reading.event, find_meanings(&reading.event, pmus)));
            }
        }
        let all = known
            .iter()
            .filter_map(|(_, known)| known.as_ref().ok())
            .flatten();
        let unique: BTreeSet<CountedPlace> = all
            .map(|(pmu, known)| CountedPlace::from_known(*pmu, known))
            .collect();
        let places: Vec<CountedPlace> = unique.into_iter().collect();
        let (mut names, mut units) = (BTreeMap::new(), BTreeMap::new());
        let mut events_of = vec![BTreeSet::new(); places.len()];
        let mut target = |(pmu, known): (usize, RecognisedEvent)| {
            // Every place is in the list, which is sorted.
            let place = places
                .binary_search(&CountedPlace::from_known(pmu, &known))
                .unwrap_or_default();
            let next = names.len();
            let event = *names.entry((pmu, known.event)).or_insert(next);
            events_of[place].insert(event);
            let next = units.len();
            Meaning {
                place,
                event,
                unit: known.unit.map(|unit| *units.entry(unit).or_insert(next)),
                count: known.count,
            }
        };
        let mut streams: BTreeMap<&str, usize> = BTreeMap::new();
        let texts = known.into_iter().map(|(text, known)| {
            let next = streams.len();
            PrintedEvent {
                text,
                targets: known.map(|known| known.into_iter().map(&mut target).collect()),
                stream: *streams.entry(order::pmu(text)).or_insert(next),
            }
        });
        let texts = texts.collect();
        let within = |(at, place): (usize, &CountedPlace)| {
            let mut wide: Vec<usize> = places
                .iter()
                .enumerate()
                .filter(|(other, wide)| *other != at && place.is_within(wide))
                .map(|(other, _)| other)
                .collect();
            wide.sort_by_key(|other| std::cmp::Reverse(places[*other].narrowness()));
            std::iter::once(at).chain(wide).collect()
        };
        let place_names = places.iter().map(|place| place.to_string().into());
        Self {
            texts,
            ids,
            streams: streams.len(),
            place_names: place_names.collect(),
            within: places.iter().enumerate().map(within).collect(),
            places,
            events_of,
            names,
        }
    }

    /// The printed names that are no event, or an event that no metric needs, each with the reason,
    /// sorted.
    pub(super) fn unused(
        &self,
        metrics: &[&Metric],
        pmus: &[Arc<PmuSpec>],
    ) -> Vec<(String, String)> {
        let unknown = self.texts.iter().filter_map(|text| {
            let why = match &text.targets {
                Err(why) => why.clone(),
                Ok(targets) => {
                    let mut names = targets.iter().filter_map(|target| {
                        let mut names = self.names.iter();
                        names.find(|(_, event)| **event == target.event)
                    });
                    let ((pmu, name), _) = names.next()?;
                    let spec = &pmus[*pmu];
                    let of_metric = |metric: &&Metric| {
                        let mut io = metric.io.iter().map(|(_, event)| event.as_str());
                        Arc::ptr_eq(&metric.pmu, spec) && metric.events().contains(&name.as_str())
                            || io.any(|event| event == name)
                    };
                    if metrics.iter().any(of_metric) {
                        return None;
                    }
                    let text = spec
                        .events
                        .get(name)
                        .and_then(|event| event.text.as_deref())
                        .map(|text| format!(": {text}"));
                    format!("no metric needs {name}{}", text.unwrap_or_default())
                }
            };
            Some((text.text.to_owned(), why))
        });
        let unknown: BTreeSet<(String, String)> = unknown.collect();
        unknown.into_iter().collect()
    }
}

/// The PMUs and events that a name stands for: one, or the same event of several core families.
fn find_meanings(event: &str, pmus: &[Arc<PmuSpec>]) -> Result<Meanings, String> {
    let known: Meanings = pmus
        .iter()
        .enumerate()
        .filter_map(|(at, pmu)| Some((at, recognise(event, pmu)?)))
        .collect();
    // Software events are of cores too: in core metrics, `task-clock` is the time that cores ran.
    let is_of_cores = |pmu: &PmuSpec| pmu.pattern.is_core() || pmu.pattern.glob() == SOFTWARE;
    let (cores, uncore): (Vec<_>, Vec<_>) = known
        .into_iter()
        .partition(|(at, _)| is_of_cores(&pmus[*at]));
    // `cycles` alone is the core's, although every uncore PMU has cycles too.
    if !cores.is_empty() {
        return Ok(cores);
    }
    // A user's family may describe a PMU of the catalogue again: both are one PMU.
    let patterns: BTreeSet<String> = uncore
        .iter()
        .map(|(at, _)| pmus[*at].pattern.glob())
        .collect();
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

/// The count in the catalogue's unit; `None` if the event could not be opened, `Some(Err)` if it
/// never ran. The error says that the unit is another one.
pub(super) fn count(
    reading: &Reading,
    quantity: CountOf,
) -> Result<Option<Result<EventCount, ()>>, String> {
    let value = match reading.count {
        CountedValue::Value(value) => value,
        CountedValue::NotCounted => return Ok(Some(Err(()))),
        CountedValue::NotSupported => return Ok(None),
    };
    let factor = match (reading.unit.as_str(), quantity, quantity.bytes()) {
        ("", _, _) | ("ns", CountOf::Ns, _) => 1.0,
        ("msec", CountOf::Ns, _) => 1e6,
        ("MiB", _, Some(bytes)) => 1_048_576.0 / f64::from(bytes),
        (unit, ..) => {
            return Err(format!(
                "its unit {unit} is not that of a count of {quantity}"
            ));
        }
    };
    Ok(Some(Ok(EventCount {
        count: value * factor,
        running_ratio: reading.running_ratio,
    })))
}
