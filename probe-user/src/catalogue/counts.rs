//! Counts of one container, socket or device, with the time that formulas divide them by.

use std::{collections::BTreeMap, time::Duration};

use crate::formula::{Absent, EventCount, Implicit, Input};

/// The counts for one value of a metric: of a container, or of a [`super::MetricPlace`].
///
/// Time bases: core counts are scaled by enabled / running, and time is the wall time of the
/// window. Uncore counts are scaled to the running time of the first counter that ran, which is
/// also the time.
#[derive(Clone, Debug)]
pub struct MetricCounts {
    events: BTreeMap<String, Result<EventCount, Absent>>,
    base: TimeBase,
    implicits: BTreeMap<Implicit, f64>,
}

#[derive(Clone, Copy, Debug)]
enum TimeBase {
    Wall,
    /// Running time of the first counter that ran, in ns; `None` before one is added.
    Group(Option<u64>),
}

impl MetricCounts {
    /// Empty counts of a container, in a window of this length.
    #[must_use]
    pub fn for_cpus(wall: Duration) -> Self {
        let mut counts = Self::new(TimeBase::Wall);
        counts.set_time(wall.as_secs_f64() * 1e9);
        counts
    }

    /// Empty counts of a socket or device; the first counter that ran sets the time.
    #[must_use]
    pub fn for_uncore() -> Self {
        Self::new(TimeBase::Group(None))
    }

    fn new(base: TimeBase) -> Self {
        Self {
            events: BTreeMap::new(),
            base,
            implicits: BTreeMap::new(),
        }
    }

    /// Adds a count of an event, by its name in the formula; `enabled` and `running` are in ns.
    /// Counts with the same name are summed: units of a socket, CPUs of a container. If one of them
    /// never ran, the event has no count, since the sum would be incomplete.
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
            TimeBase::Wall => enabled.max(running),
            TimeBase::Group(Some(base)) => *base,
            TimeBase::Group(unset) => {
                *unset = Some(running);
                self.set_time(running as f64);
                running
            }
        };
        self.add_sample(
            event,
            EventCount {
                count: raw as f64 * (base as f64 / running as f64),
                running_ratio: running as f64 / enabled.max(running) as f64,
            },
        );
    }

    /// Adds a count that is already scaled to the whole time.
    pub(crate) fn add_sample(&mut self, event: &str, sample: EventCount) {
        let sum = self
            .events
            .entry(event.to_owned())
            .or_insert(Ok(EventCount {
                count: 0.0,
                running_ratio: 1.0,
            }));
        if let Ok(sum) = sum {
            sum.count += sample.count;
            sum.running_ratio = sum.running_ratio.min(sample.running_ratio);
        }
    }

    /// Sets a quantity that is not an event: CPUs counted, slots, units summed, ports selected.
    pub fn set(&mut self, implicit: Implicit, value: f64) {
        self.implicits.insert(implicit, value);
    }

    /// Sets the time, in ns.
    pub(crate) fn set_time(&mut self, nanos: f64) {
        self.set(Implicit::DurationTime, nanos);
        self.set(Implicit::Seconds, nanos / 1e9);
    }

    /// Whether a count of the event was added, including one that never ran.
    #[must_use]
    pub fn has(&self, event: &str) -> bool {
        self.events.contains_key(event)
    }
}

impl Input for MetricCounts {
    fn event(&self, name: &str) -> Result<EventCount, Absent> {
        let sample = self.events.get(name).copied();
        sample.unwrap_or(Err(Absent::Missing))
    }

    fn implicit(&self, implicit: Implicit) -> Option<f64> {
        self.implicits.get(&implicit).copied()
    }
}
