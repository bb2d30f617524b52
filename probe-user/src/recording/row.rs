//! A row of the file: one value of a window.

use serde_json::json;

use crate::{
    derive::{CounterValue, Report, ReportSection, Series, Subject, Value},
    emit::label::{RuntimeNames, label, pid, pod},
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
    Series(&'a Report, ReportSection, &'a Subject, &'a Series),
    /// Compressed.
    Snapshot(&'a [u8]),
}

/// The rows of a window, except its snapshot.
pub(super) fn rows(report: &Report, window: u32) -> impl Iterator<Item = WindowRow<'_>> {
    let time = (nanos(report.start), nanos(report.end));
    report.groups().flat_map(move |group| {
        let series = group.series.iter();
        let shown = series.filter(|series| !matches!(series.value, Ok(Value::Info(_))));
        shown.map(move |series| WindowRow {
            window,
            time,
            source: RowSource::Series(report, group.section, group.subject, series),
        })
    })
}

impl<'a> WindowRow<'a> {
    fn series(&self) -> Option<(&'a Report, &'a Subject, &'a Series)> {
        match self.source {
            RowSource::Series(report, _, subject, series) => Some((report, subject, series)),
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

    pub(super) fn kind(&self) -> Option<&'static str> {
        Some(label(self.series()?.1).0)
    }

    pub(super) fn name(&self) -> Option<String> {
        Some(label(self.series()?.1).1.into_owned())
    }

    /// A name from the container runtime: `namespace`, `pod` or `container`.
    pub(super) fn called(&self, what: &str) -> Option<String> {
        let (report, subject, _) = self.series()?;
        let mut names = RuntimeNames::for_subject(report, subject).names();
        let (_, name) = names.find(|(of, _)| *of == what)?;
        Some(name.to_owned())
    }

    pub(super) fn pod_uid(&self) -> Option<String> {
        pod(self.series()?.1).map(str::to_owned)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        pid(self.series()?.1)
    }

    pub(super) fn metric(&self) -> Option<&'a crate::derive::MetricInfo> {
        let (report, _, series) = self.series()?;
        Some(report.metric(series))
    }

    pub(super) fn attributes(&self) -> Option<&'a crate::derive::Attributes> {
        let (report, _, series) = self.series()?;
        Some(report.attributes(series))
    }

    pub(super) fn estimate(&self) -> Option<&'a crate::derive::Estimate> {
        self.series()?.2.estimate()
    }

    pub(super) fn counter(&self) -> Option<&'a CounterValue> {
        self.series()?.2.counter()
    }

    /// Why there is no value; for a state metric, the state.
    pub(super) fn reason(&self) -> Option<String> {
        match &self.series()?.2.value {
            Err(reason) => Some(reason.to_string()),
            Ok(Value::State(state, _)) => Some((*state).to_owned()),
            Ok(_) => None,
        }
    }

    pub(super) fn histogram(&self) -> Option<String> {
        match &self.series()?.2.value {
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
