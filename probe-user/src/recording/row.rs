//! A row of the file: one value of a window.

use serde_json::json;

use crate::{
    derive::{Counter, Part, Report, Series, Subject, Value},
    emit::label::{Called, label, pid, pod},
    sys::clock::nanos,
};

/// What a row is made of. A snapshot has none but itself and its time.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    /// From 1; 0 is the snapshot that begins the first.
    pub(super) window: u32,
    /// The window's ends, in ns.
    pub(super) time: (u64, u64),
    pub(super) of: Of<'a>,
}

/// Value or snapshot.
#[derive(Clone, Copy)]
pub(super) enum Of<'a> {
    Series(&'a Report, Part, &'a Subject, &'a Series),
    /// Compressed.
    Snapshot(&'a [u8]),
}

/// The rows of a window, but the snapshot.
pub(super) fn rows(report: &Report, window: u32) -> impl Iterator<Item = Row<'_>> {
    let time = (nanos(report.start), nanos(report.end));
    report.groups().flat_map(move |group| {
        let series = group.series.iter();
        let told = series.filter(|series| !matches!(series.value, Ok(Value::Info(_))));
        told.map(move |series| Row {
            window,
            time,
            of: Of::Series(report, group.part, group.subject, series),
        })
    })
}

impl<'a> Row<'a> {
    fn series(&self) -> Option<(&'a Report, &'a Subject, &'a Series)> {
        match self.of {
            Of::Series(report, _, subject, series) => Some((report, subject, series)),
            Of::Snapshot(_) => None,
        }
    }

    pub(super) fn snapshot(&self) -> Option<&'a [u8]> {
        match self.of {
            Of::Snapshot(bytes) => Some(bytes),
            Of::Series(..) => None,
        }
    }

    pub(super) fn part(&self) -> &'static str {
        match self.of {
            Of::Snapshot(_) => "snapshot",
            Of::Series(_, part, ..) => match part {
                Part::Rows => "row",
                Part::Processes => "process",
                Part::Sockets => "socket",
                Part::Total => "total",
                Part::Missing => "missing",
                Part::Places => "place",
                Part::Shares => "share",
                Part::Own => "self",
            },
        }
    }

    pub(super) fn kind(&self) -> Option<&'static str> {
        Some(label(self.series()?.1).0)
    }

    pub(super) fn name(&self) -> Option<String> {
        Some(label(self.series()?.1).1.into_owned())
    }

    /// `namespace`, `pod` or `container`, as the runtime calls it.
    pub(super) fn called(&self, what: &str) -> Option<String> {
        let (report, subject, _) = self.series()?;
        let mut names = Called::of(report, subject).names();
        let (_, name) = names.find(|(of, _)| *of == what)?;
        Some(name.to_owned())
    }

    pub(super) fn pod_uid(&self) -> Option<String> {
        pod(self.series()?.1).map(str::to_owned)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        pid(self.series()?.1)
    }

    pub(super) fn metric(&self) -> Option<&'a crate::derive::Metric> {
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

    pub(super) fn counter(&self) -> Option<&'a Counter> {
        self.series()?.2.counter()
    }

    /// Why there is no value; of a state the state.
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
