//! The counters of a PMU according to the catalogue, and the events that only some of them count.

use crate::{
    catalogue::{EventSpec, PmuSpec},
    event::{self, Counter, Source},
    machine::Pmus,
    plan::RequestedEvent,
};

/// The counters of a PMU, as the catalogue documents them.
#[derive(Clone, Default)]
pub(super) struct DocumentedCounters {
    /// Counters without the fixed ones.
    pub(super) counters: usize,
    /// Events with a fixed counter, or that some counters cannot count.
    pub(super) constrained: Vec<(Counter, EventSpec)>,
}

/// The events of a PMU that not every counter can count, in all encodings of the catalogue.
pub(super) fn constrained_events(
    spec: &PmuSpec,
    pmu: &str,
    pmus: &Pmus,
) -> Vec<(Counter, EventSpec)> {
    let mut constrained = Vec::new();
    for event in spec.events.values() {
        if !event.fixed && event.counters.is_none() {
            continue;
        }
        let texts = std::iter::once(event.perf.replace("{pmu}", pmu)).chain(event.also.clone());
        for text in texts {
            // Skips encodings with other placeholders, and names that exist only in perf's own
            // event tables.
            let Ok(groups) = event::parse(&text, pmus) else {
                continue;
            };
            for parsed in groups.into_iter().flat_map(|group| group.events) {
                if let Source::Counter(counter) = parsed.source {
                    constrained.push((counter, event.clone()));
                }
            }
        }
    }
    constrained
}

impl DocumentedCounters {
    /// The catalogue's entry of an event that not every counter can count; `None` for other events.
    pub(super) fn constraint(&self, wanted: &RequestedEvent) -> Option<&EventSpec> {
        let mut constrained = self.constrained.iter();
        let entry = constrained.find(|(counter, _)| *counter == wanted.counter);
        entry.map(|(_, spec)| spec)
    }

    /// Whether the events fit on the first `counters`, with `reserve` of them left over.
    pub(super) fn can_schedule(
        &self,
        hardware: &[&RequestedEvent],
        counters: usize,
        reserve: usize,
    ) -> bool {
        let any_counter: Vec<usize> = (0..counters).collect();
        let mut fixed: Vec<&EventSpec> = Vec::new();
        let mut general: Vec<Vec<usize>> = Vec::new();
        for wanted in hardware {
            match self.constraint(wanted) {
                // A fixed counter holds one instance of its event. A second instance, with another
                // filter, needs a general counter.
                Some(spec) if spec.fixed && fixed.iter().all(|other| other.perf != spec.perf) => {
                    fixed.push(spec);
                }
                Some(EventSpec {
                    counters: Some(allowed),
                    ..
                }) => general.push(
                    allowed
                        .iter()
                        .map(|counter| usize::from(*counter))
                        .collect(),
                ),
                _ => general.push(any_counter.clone()),
            }
        }
        general.len() + reserve <= counters && assign(&general, &mut vec![false; counters])
    }
}

/// Whether each event can have a free counter of its own. `events` has the counters that can count
/// each event.
fn assign(events: &[Vec<usize>], taken: &mut Vec<bool>) -> bool {
    let Some((first, rest)) = events.split_first() else {
        return true;
    };
    first.iter().any(|counter| {
        if taken.get(*counter).copied().unwrap_or(true) {
            return false;
        }
        taken[*counter] = true;
        let fits = assign(rest, taken);
        taken[*counter] = false;
        fits
    })
}
