//! The quantities of an input that are no counts, mainly its time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{CountedValue, IntervalEnd, Reading, ReadingSet, counted::PlaceCounts};
use crate::{
    catalogue::{Per, PmuSpec},
    formula::Implicit,
};

/// Quantities by name.
pub(super) type QuantityValues = BTreeMap<Implicit, f64>;

/// The quantities of the input that are no counts.
pub(super) struct Quantities {
    /// By part of the input, if the part has any.
    sets: BTreeMap<ReadingSet, QuantityValues>,
    /// By run and interval: perf prints `duration_time` for the first CPU or socket only.
    duration: BTreeMap<ReadingSet, f64>,
    /// Durations that the elapsed time contradicts, in sentences.
    contradictions: Vec<String>,
}

/// Largest tolerated difference of two times of the same window: relative, and in ns. perf opens
/// and closes counters one after the other.
const TOLERANCE: [f64; 2] = [0.02, 1e6];

fn differ(a: f64, b: f64) -> bool {
    (a - b).abs() > TOLERANCE[1].max(TOLERANCE[0] * b)
}

/// The quantity that a line gives instead of a count.
pub(super) fn implicit(reading: &Reading) -> Option<Implicit> {
    Implicit::named(&reading.event)
}

/// The target's time on CPUs by task-clock, ns. It replaces the counters' enabled time if the input
/// has no enabled time.
fn clock(reading: &Reading) -> Option<f64> {
    let name = reading.event.split(':').next()?;
    let factor = match reading.unit.as_str() {
        "msec" => 1e6,
        "ns" | "" => 1.0,
        _ => return None,
    };
    match reading.count {
        CountedValue::Value(value) if name == "task-clock" => Some(value * factor),
        _ => None,
    }
}

impl Quantities {
    /// If only time stamps give the time, an interval begins at the stamp before it, and readings
    /// without an interval cover all intervals.
    pub(super) fn from_readings(readings: &[Reading]) -> Self {
        let mut sets: BTreeMap<ReadingSet, QuantityValues> = BTreeMap::new();
        let mut wholes: BTreeSet<ReadingSet> = BTreeSet::new();
        let mut duration = BTreeMap::new();
        let mut last = None;
        for reading in readings {
            let whole = reading.set.whole();
            if let Some(nanos) = clock(reading) {
                let set = sets.entry(reading.set.clone()).or_default();
                set.entry(Implicit::CounterTime).or_insert(nanos);
            }
            if let (Some(implicit), CountedValue::Value(value)) = (implicit(reading), reading.count)
            {
                let set = sets.entry(reading.set.clone()).or_default();
                set.insert(implicit, value);
                if implicit == Implicit::DurationTime {
                    duration.entry(whole.clone()).or_insert(value);
                }
            }
            if last.as_ref() != Some(&whole) {
                wholes.insert(whole.clone());
                last = Some(whole);
            }
        }
        let contradictions = resolve_times(&mut sets, &mut duration);
        let mut seconds = |whole: &ReadingSet, from: u64, to: u64| {
            let set = sets.entry(whole.clone()).or_default();
            if !set.contains_key(&Implicit::DurationTime) {
                let length = Duration::from_nanos(to.saturating_sub(from));
                set.entry(Implicit::Seconds).or_insert(length.as_secs_f64());
            }
        };
        // By run, the end of its last interval so far.
        let mut ends: BTreeMap<Option<usize>, u64> = BTreeMap::new();
        for whole in &wholes {
            if let Some(IntervalEnd(end)) = whole.interval {
                let before = ends.insert(whole.run, end).unwrap_or_default();
                seconds(whole, before, end);
            }
        }
        for whole in wholes.iter().filter(|whole| whole.interval.is_none()) {
            if let Some(end) = ends.get(&whole.run) {
                seconds(whole, 0, *end);
            }
        }
        Self {
            sets,
            duration,
            contradictions,
        }
    }

    /// Durations that the elapsed time contradicts, in sentences.
    pub(super) fn contradictions(&self) -> &[String] {
        &self.contradictions
    }

    /// A sentence if `duration_time` is not the enabled time of a PMU's counters: a duration that
    /// was misread makes every bandwidth wrong, though perhaps still plausible.
    ///
    /// perf sums the times of units with one name, so the time is divided by their number.
    pub(super) fn disagree(
        &self,
        set: &ReadingSet,
        counts: &PlaceCounts,
        pmu: &PmuSpec,
    ) -> Option<String> {
        if pmu.pattern.is_core() {
            return None;
        }
        let nanos = *self.duration.get(&set.whole())?;
        let enabled = counts.enabled()?;
        let units = match pmu.pattern.has_socket() {
            true => 1.0,
            false => (enabled / nanos).round().max(1.0),
        };
        let per_unit = enabled / units;
        differ(per_unit, nanos).then(|| {
            format!(
                "{}: its counters were enabled for {:.6} s, and the duration is {:.6} s: one of \
                 them is wrong, and with the duration every bandwidth",
                pmu.key,
                per_unit / 1e9,
                nanos / 1e9
            )
        })
    }

    /// The quantities for a PMU's counts in a part of the input.
    pub(super) fn for_counts(
        &self,
        set: &ReadingSet,
        counts: &PlaceCounts,
        pmu: &PmuSpec,
    ) -> QuantityValues {
        let mut values = QuantityValues::new();
        if pmu.pattern.has_socket()
            && let Some(enabled) = counts.enabled()
        {
            // One CPU reads such a PMU, so its enabled time is the elapsed time.
            set_time(&mut values, enabled);
        }
        let whole = set.whole();
        if let Some(nanos) = self.duration.get(&whole) {
            set_time(&mut values, *nanos);
        }
        // Quantities of a run apply to each part of it.
        let run = set.interval.map(|_| ReadingSet {
            run: set.run,
            ..ReadingSet::default()
        });
        let sources = [run.as_ref(), Some(&whole), Some(set)];
        for values_of in sources
            .into_iter()
            .flatten()
            .filter_map(|it| self.sets.get(it))
        {
            for (implicit, value) in values_of {
                match implicit {
                    Implicit::Seconds => set_time(&mut values, value * 1e9),
                    Implicit::DurationTime => set_time(&mut values, *value),
                    other => {
                        values.insert(*other, *value);
                    }
                }
            }
        }
        let units = units(counts, pmu, values.get(&Implicit::DurationTime).copied());
        if let Some(units) = units {
            values.entry(Implicit::NumUnits).or_insert(units);
        }
        values
    }
}

/// Uses the elapsed time if `duration_time` contradicts it, and returns a sentence for each such
/// set. Otherwise uses `duration_time`, which is not rounded.
fn resolve_times(
    sets: &mut BTreeMap<ReadingSet, QuantityValues>,
    duration: &mut BTreeMap<ReadingSet, f64>,
) -> Vec<String> {
    let mut sentences = Vec::new();
    for (set, nanos) in std::mem::take(duration) {
        let values = sets.entry(set.clone()).or_default();
        match values.get(&Implicit::Seconds).copied() {
            Some(seconds) if differ(nanos, seconds * 1e9) => {
                values.remove(&Implicit::DurationTime);
                let name = set.name();
                let link = if name.is_empty() { "" } else { " of " };
                sentences.push(format!(
                    "the duration_time{link}{name} is {:.6} s, and the time elapsed is \
                     {seconds:.6} s: one of them is wrong, and rates are over the time elapsed",
                    nanos / 1e9
                ));
            }
            _ => {
                values.remove(&Implicit::Seconds);
                duration.insert(set, nanos);
            }
        }
    }
    sentences
}

/// The number of units that were summed. perf also sums the sockets under one name, and their
/// enabled times: the ratio of that time to the duration is the number. It stays a fraction, since
/// a counter is not enabled for exactly the duration that perf prints.
fn units(counts: &PlaceCounts, pmu: &PmuSpec, nanos: Option<f64>) -> Option<f64> {
    if pmu.pattern.is_core() || pmu.pattern.has_socket() || pmu.per == Per::Device {
        return None;
    }
    if let (Some(enabled), Some(nanos @ 1.0..)) = (counts.enabled(), nanos) {
        return Some(enabled / nanos);
    }
    let named = u32::try_from(counts.named_units()).ok();
    named.filter(|units| *units > 0).map(f64::from)
}

fn set_time(values: &mut QuantityValues, nanos: f64) {
    values.insert(Implicit::DurationTime, nanos);
    values.insert(Implicit::Seconds, nanos / 1e9);
}
