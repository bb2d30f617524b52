//! Infers which events were counted as a group.
//!
//! perf prints an event of several groups once for each group, but none of its output formats names
//! the group. Two facts show it: the events of a group have the same running time and percentage to
//! the digit, since perf reads a group at once; and no event is twice in a group. For groups that
//! ran all the time, the next group may be noticed late, when an event repeats. Such groups counted
//! for the same time, so it makes no difference which of them a count is from.

use super::Reading;

/// The current group of each stream of events. Each PMU that perf names is a stream, and so are the
/// events without a PMU.
pub(super) struct GroupOrder {
    streams: Vec<Stream>,
    /// By event: the last part and group that it was in.
    events: Vec<Option<(usize, usize)>>,
}

#[derive(Clone, Default)]
struct Stream {
    part: Option<usize>,
    group: usize,
    /// Running time and percentage of the group, as far as printed.
    times: (Option<f64>, f64),
}

impl GroupOrder {
    pub(super) fn new(streams: usize, events: usize) -> Self {
        Self {
            streams: vec![Stream::default(); streams],
            events: vec![None; events],
        }
    }

    /// The group of the next event in a part, and whether the event came before in this part.
    pub(super) fn group(
        &mut self,
        part: usize,
        stream: usize,
        event: usize,
        reading: &Reading,
    ) -> (usize, bool) {
        let stream = &mut self.streams[stream];
        let times = (reading.enabled, reading.running_ratio);
        if stream.part != Some(part) {
            *stream = Stream {
                part: Some(part),
                group: 0,
                times,
            };
        }
        let before = self.events[event].filter(|(known, _)| *known == part);
        let is_repeated = before.is_some_and(|(_, group)| group == stream.group);
        if is_repeated || stream.times != times {
            stream.group += 1;
            stream.times = times;
        }
        self.events[event] = Some((part, stream.group));
        (stream.group, before.is_some())
    }
}

/// The PMU of an event as printed: before it, or in brackets behind it; empty without one.
pub(super) fn pmu(event: &str) -> &str {
    if let Some((pmu, _)) = event.split_once('/') {
        return pmu;
    }
    let behind = event.strip_suffix(']').and_then(|it| it.rsplit_once(" ["));
    behind.map_or("", |(_, pmu)| pmu)
}
