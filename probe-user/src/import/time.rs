//! The quantities of an input that are no counts: above all its time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Counted, Interval, Reading, Set, counted::Counts};
use crate::{
    catalogue::{Per, PmuSpec},
    formula::Implicit,
};

/// Quantities by name.
pub(super) type Values = BTreeMap<Implicit, f64>;

/// What the input says beside counts.
pub(super) struct Quantities {
    /// Of each part that says something of itself.
    sets: BTreeMap<Set, Values>,
    /// perf prints `duration_time` for the first CPU or socket only.
    duration: BTreeMap<Option<Interval>, f64>,
}

/// The quantity that a line gives instead of a count.
pub(super) fn implicit(reading: &Reading) -> Option<Implicit> {
    Implicit::named(&reading.event)
}

/// The time for which a target ran by the kernel's clock, ns: it stands for that of the counters
/// where the input does not tell for how long these were enabled.
fn clock(reading: &Reading) -> Option<f64> {
    let name = reading.event.split(':').next()?;
    let factor = match reading.unit.as_str() {
        "msec" => 1e6,
        "ns" | "" => 1.0,
        _ => return None,
    };
    match reading.count {
        Counted::Value(value) if name == "task-clock" => Some(value * factor),
        _ => None,
    }
}

impl Quantities {
    /// Where only time stamps tell the time, an interval is as long as from the one before, and
    /// what has none is of all of them.
    pub(super) fn of(readings: &[Reading]) -> Self {
        let mut sets: BTreeMap<Set, Values> = BTreeMap::new();
        let mut intervals: BTreeSet<Option<Interval>> = BTreeSet::new();
        let mut duration = BTreeMap::new();
        let mut last = None;
        for reading in readings {
            if let Some(nanos) = clock(reading) {
                let set = sets.entry(reading.set.clone()).or_default();
                set.entry(Implicit::CounterTime).or_insert(nanos);
            }
            if last != Some(reading.set.interval) {
                last = Some(reading.set.interval);
                intervals.insert(reading.set.interval);
            }
            if let (Some(implicit), Counted::Value(value)) = (implicit(reading), reading.count) {
                let set = sets.entry(reading.set.clone()).or_default();
                set.insert(implicit, value);
                if implicit == Implicit::DurationTime {
                    duration.entry(reading.set.interval).or_insert(value);
                }
            }
        }
        let mut seconds = |interval, from: u64, to: u64| {
            let scope = None;
            let set = sets.entry(Set { interval, scope }).or_default();
            if !set.contains_key(&Implicit::DurationTime) {
                let length = Duration::from_nanos(to.saturating_sub(from));
                set.entry(Implicit::Seconds).or_insert(length.as_secs_f64());
            }
        };
        let mut before = 0;
        for Interval(end) in intervals.iter().copied().flatten() {
            seconds(Some(Interval(end)), before, end);
            before = end;
        }
        if before > 0 && intervals.contains(&None) {
            seconds(None, 0, before);
        }
        Self { sets, duration }
    }

    /// Says where `duration_time` is not the time for which a PMU's counters were enabled: with one
    /// that was misread every bandwidth is wrong, and may still look possible.
    ///
    /// perf opens and closes them one after the other, and adds up the times of units of one name.
    pub(super) fn disagree(&self, set: &Set, counts: &Counts, pmu: &PmuSpec) -> Option<String> {
        /// Of the duration, and in ns.
        const MOST: [f64; 2] = [0.02, 1e6];
        if pmu.pattern.is_core() {
            return None;
        }
        let nanos = *self.duration.get(&set.interval)?;
        let enabled = counts.enabled()?;
        let units = match pmu.pattern.has_socket() {
            true => 1.0,
            false => (enabled / nanos).round().max(1.0),
        };
        let (each, most) = (enabled / units, MOST[1].max(MOST[0] * nanos));
        ((each - nanos).abs() > most).then(|| {
            format!(
                "{}: its counters were enabled for {:.6} s, and the duration is {:.6} s: one of \
                 them is wrong, and with the duration every bandwidth",
                pmu.key,
                each / 1e9,
                nanos / 1e9
            )
        })
    }

    /// What holds for counts of a PMU in a part of the input.
    pub(super) fn for_counts(&self, set: &Set, counts: &Counts, pmu: &PmuSpec) -> Values {
        let mut values = Values::new();
        if pmu.pattern.has_socket()
            && let Some(enabled) = counts.enabled()
        {
            // One reader: its time is the PMU's.
            set_time(&mut values, enabled);
        }
        if let Some(nanos) = self.duration.get(&set.interval) {
            set_time(&mut values, *nanos);
        }
        // What is said of the whole input holds for each part of it.
        let interval = Set {
            interval: set.interval,
            scope: None,
        };
        let all = set.interval.map(|_| Set::default());
        let said = [all.as_ref(), Some(&interval), Some(set)];
        for values_of in said
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

/// How many units of a PMU were added up. perf adds up the sockets too, under one name, and the
/// times for which their counters were enabled: that time tells how many there were. It stays a
/// fraction, since a counter is not enabled for exactly the time that perf calls the run's.
fn units(counts: &Counts, pmu: &PmuSpec, nanos: Option<f64>) -> Option<f64> {
    if pmu.pattern.is_core() || pmu.pattern.has_socket() || pmu.per == Per::Device {
        return None;
    }
    if let (Some(enabled), Some(nanos @ 1.0..)) = (counts.enabled(), nanos) {
        return Some(enabled / nanos);
    }
    let named = u32::try_from(counts.named_units()).ok();
    named.filter(|units| *units > 0).map(f64::from)
}

fn set_time(values: &mut Values, nanos: f64) {
    values.insert(Implicit::DurationTime, nanos);
    values.insert(Implicit::Seconds, nanos / 1e9);
}
