//! A row of the file: one value of a window.

use serde_json::json;

use crate::{
    derive::{CounterValue, Report, ReportSection, Series, SubjectLabels, Value},
    sys::clock::nanos,
};

/// Source of a row's columns. A snapshot has only its window and time.
#[derive(Clone, Copy)]
pub(super) struct WindowRow<'a> {
    /// From 1; 0 is the snapshot at the begin of the first window.
    pub(super) window: u32,
    /// Begin and end of the window, in ns.
    pub(super) time: (u64, u64),
    pub(super) source: RowSource<'a>,
}

/// A value or a snapshot.
#[derive(Clone, Copy)]
pub(super) enum RowSource<'a> {
    Series(&'a Report, ReportSection, &'a SubjectLabels<'a>, &'a Series),
    /// Compressed.
    Snapshot(&'a [u8]),
}

/// Passes each row of a window to `add`, except its snapshot.
pub(super) fn for_each_row(report: &Report, window: u32, mut add: impl FnMut(&WindowRow<'_>)) {
    let time = (nanos(report.start), nanos(report.end));
    for group in report.groups() {
        let labels = group.subject.labels(&report.described);
        let series = group.series.iter();
        for series in series.filter(|series| !matches!(series.value, Ok(Value::Info(_)))) {
            add(&WindowRow {
                window,
                time,
                source: RowSource::Series(report, group.section, &labels, series),
            });
        }
    }
}

impl<'a> WindowRow<'a> {
    fn series(&self) -> Option<(&'a Report, &'a Series)> {
        match self.source {
            RowSource::Series(report, .., series) => Some((report, series)),
            RowSource::Snapshot(_) => None,
        }
    }

    pub(super) fn snapshot(&self) -> Option<&'a [u8]> {
        match self.source {
            RowSource::Snapshot(bytes) => Some(bytes),
            RowSource::Series(..) => None,
        }
    }

    pub(super) fn part(&self) -> &'static str {
        match self.source {
            RowSource::Snapshot(_) => "snapshot",
            RowSource::Series(_, part, ..) => part.name(),
        }
    }

    pub(super) fn labels(&self) -> Option<&'a SubjectLabels<'a>> {
        match self.source {
            RowSource::Series(_, _, labels, _) => Some(labels),
            RowSource::Snapshot(_) => None,
        }
    }

    pub(super) fn metric(&self) -> Option<&'a crate::derive::MetricInfo> {
        let (report, series) = self.series()?;
        Some(report.metric(series))
    }

    pub(super) fn attributes(&self) -> Option<&'a crate::derive::Attributes> {
        let (report, series) = self.series()?;
        Some(report.attributes(series))
    }

    pub(super) fn estimate(&self) -> Option<&'a crate::derive::Estimate> {
        self.series()?.1.estimate()
    }

    pub(super) fn counter(&self) -> Option<&'a CounterValue> {
        self.series()?.1.counter()
    }

    /// Why there is no value; for a state metric, the state.
    pub(super) fn reason(&self) -> Option<String> {
        match &self.series()?.1.value {
            Err(reason) => Some(reason.to_string()),
            Ok(Value::State(state, _)) => Some((*state).to_owned()),
            Ok(_) => None,
        }
    }

    pub(super) fn histogram(&self) -> Option<String> {
        match &self.series()?.1.value {
            Ok(Value::Histogram(histogram)) => Some(
                json!({
                    "bounds": histogram.bounds,
                    "counts": histogram.counts,
                    "sum": histogram.sum,
                })
                .to_string(),
            ),
            _ => None,
        }
    }
}
