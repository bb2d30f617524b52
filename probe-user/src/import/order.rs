//! Which events were counted as a group.
//!
//! perf prints an event of several groups once for each, and not which group that is, in none of
//! its forms. Two things tell it: events of one group have the same running time and percentage to
//! the digit, since perf reads a group at once; and no event is twice in a group. Groups that ran
//! all the time may be told apart too late, when an event comes again; then they counted for the
//! same time, and it makes no difference which of them a count is from.

use super::Reading;

/// Where the parts of an input are in their order. Each PMU that perf names has an order of its
/// own, and so have the events without a PMU.
pub(super) struct Order {
    streams: Vec<Stream>,
    /// By event: the part and the group that it was in last.
    events: Vec<Option<(usize, usize)>>,
}

#[derive(Clone, Default)]
struct Stream {
    part: Option<usize>,
    group: usize,
    /// Running time and percentage of the group, as far as printed.
    times: (Option<f64>, f64),
}

impl Order {
    pub(super) fn new(streams: usize, events: usize) -> Self {
        Self {
            streams: vec![Stream::default(); streams],
            events: vec![None; events],
        }
    }

    /// The number of the group of the next event in a part, and whether the event came before.
    pub(super) fn group(
        &mut self,
        part: usize,
        stream: usize,
        event: usize,
        reading: &Reading,
    ) -> (usize, bool) {
        let stream = &mut self.streams[stream];
        let times = (reading.enabled, reading.live);
        if stream.part != Some(part) {
            *stream = Stream {
                part: Some(part),
                group: 0,
                times,
            };
        }
        let before = self.events[event].filter(|(known, _)| *known == part);
        let here = before.is_some_and(|(_, group)| group == stream.group);
        if here || stream.times != times {
            stream.group += 1;
            stream.times = times;
        }
        self.events[event] = Some((part, stream.group));
        (stream.group, before.is_some())
    }
}

/// The PMU of an event as printed: before it, or in brackets behind it.
pub(super) fn pmu(event: &str) -> &str {
    if let Some((pmu, _)) = event.split_once('/') {
        return pmu;
    }
    let behind = event.strip_suffix(']').and_then(|it| it.rsplit_once(" ["));
    behind.map_or("", |(_, pmu)| pmu)
}
