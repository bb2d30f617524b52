//! Counts of one group or container, on the time base of their scope.

use std::{collections::BTreeMap, time::Duration};

use crate::formula::{Absent, Implicit, Input, Sample};

/// What was counted for one value: of a container, or of a [`super::Place`].
///
/// The time bases: for cores, a count is scaled by enabled / running and time is the wall time of
/// the window. For uncore PMUs, counts stay as they are and time is the running time of the group.
#[derive(Clone, Debug)]
pub struct Counts {
    events: BTreeMap<String, Result<Sample, Absent>>,
    base: Base,
    implicits: BTreeMap<Implicit, f64>,
}

#[derive(Clone, Copy, Debug)]
enum Base {
    Wall,
    /// Running time of the first counter that ran, ns.
    Group(Option<u64>),
}

impl Counts {
    /// For a container, in a window of this length.
    #[must_use]
    pub fn of_cpus(wall: Duration) -> Self {
        let mut counts = Self::new(Base::Wall);
        counts.set_time(wall.as_secs_f64() * 1e9);
        counts
    }

    /// For a socket or device; the time comes with the counts.
    #[must_use]
    pub fn of_uncore() -> Self {
        Self::new(Base::Group(None))
    }

    fn new(base: Base) -> Self {
        Self {
            events: BTreeMap::new(),
            base,
            implicits: BTreeMap::new(),
        }
    }

    /// Adds a count, by the name that the formula uses. Counts of one name are added up: units of
    /// a socket, CPUs of a container. One that never ran makes the sum one that never ran, since a
    /// part is not the whole.
    #[expect(
        clippy::cast_precision_loss,
        reason = "an estimate of more than 2^53 counts or ns has no better precision"
    )]
    pub fn add(&mut self, event: &str, raw: u64, enabled: u64, running: u64) {
        if running == 0 {
            self.events.insert(event.to_owned(), Err(Absent::NeverRan));
            return;
        }
        let base = match &mut self.base {
            Base::Wall => enabled.max(running),
            Base::Group(Some(base)) => *base,
            Base::Group(first) => {
                *first = Some(running);
                self.set_time(running as f64);
                running
            }
        };
        self.add_sample(
            event,
            Sample {
                count: raw as f64 * (base as f64 / running as f64),
                live: running as f64 / enabled.max(running) as f64,
            },
        );
    }

    /// Adds a count that was scaled to the whole time already.
    pub(crate) fn add_sample(&mut self, event: &str, sample: Sample) {
        let sum = self.events.entry(event.to_owned()).or_insert(Ok(Sample {
            count: 0.0,
            live: 1.0,
        }));
        if let Ok(sum) = sum {
            sum.count += sample.count;
            sum.live = sum.live.min(sample.live);
        }
    }

    /// Sets a quantity that is no event: CPUs counted, slots, units added up, ports selected.
    pub fn set(&mut self, implicit: Implicit, value: f64) {
        self.implicits.insert(implicit, value);
    }

    /// Sets the time, in ns.
    pub(crate) fn set_time(&mut self, nanos: f64) {
        self.set(Implicit::DurationTime, nanos);
        self.set(Implicit::Seconds, nanos / 1e9);
    }

    /// Whether an event was counted, or tried to be.
    #[must_use]
    pub fn has(&self, event: &str) -> bool {
        self.events.contains_key(event)
    }
}

impl Input for Counts {
    fn event(&self, name: &str) -> Result<Sample, Absent> {
        let sample = self.events.get(name).copied();
        sample.unwrap_or(Err(Absent::Missing))
    }

    fn implicit(&self, implicit: Implicit) -> Option<f64> {
        self.implicits.get(&implicit).copied()
    }
}
