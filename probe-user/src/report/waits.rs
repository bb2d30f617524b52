//! For whom owners waited, as lines: one for each owner and each of those that ran.

use std::collections::HashMap;

use super::{LineMetric, LineSubject, Run, RunIndex, RunLine};
use crate::{
    derive::{Report, ReportSection, ReportTable, Subject, TableCell},
    window::float,
};

/// The metric of these lines; its text is `behind NAME`.
pub(super) const WAITED_BEHIND: &str = "cpu_wait_behind";

/// The most lines. What more pairs waited is in one line of each owner.
const MAX_LINES: usize = 2_000;

/// Who ran.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Ran {
    Subject(Subject),
    Text(String),
}

/// The lines of waits while a run is built.
#[derive(Default)]
pub(super) struct WaitLines {
    /// By subject of the run, and by who ran; None: all others.
    lines: HashMap<(usize, Option<Ran>), usize>,
}

impl Run {
    /// Adds the waits of the window that was added last.
    pub(super) fn add_waits(&mut self, index: &mut RunIndex, report: &Report) {
        let Some(table) = report.tables.iter().find(|table| table.name == "waits") else {
            return;
        };
        let metric = report.metrics.iter().find(|it| it.name == WAITED_BEHIND);
        let Some(metric) = metric.map(LineMetric::new) else {
            return;
        };
        let window = self.windows.len() - 1;
        for (waiting, behind, nanos) in waits(table) {
            let subject = self.subject_index(index, report, ReportSection::Rows, waiting);
            let behind = match behind {
                TableCell::Owner(owner) => Ran::Subject(owner.clone()),
                TableCell::Text(text) => Ran::Text(text.clone()),
                _ => continue,
            };
            let lines = &mut index.waits.lines;
            let mut key = (subject, Some(behind));
            if lines.len() >= MAX_LINES && !lines.contains_key(&key) {
                key.1 = None;
            }
            let (known, metrics) = (&mut self.lines, &mut self.metrics);
            let at = *lines.entry(key).or_insert_with_key(|(subject, behind)| {
                let of_metric = metrics.iter().position(|it| it.name == WAITED_BEHIND);
                let of_metric = of_metric.unwrap_or_else(|| {
                    metrics.push(metric.clone());
                    metrics.len() - 1
                });
                let behind = match behind {
                    Some(Ran::Subject(owner)) => {
                        LineSubject::new(report, ReportSection::Rows, owner).label
                    }
                    Some(Ran::Text(text)) => text.clone(),
                    None => "others".to_owned(),
                };
                let of = format!("behind {behind}");
                known.push(RunLine::new(*subject, of_metric, of, window));
                known.len() - 1
            });
            let line = &mut self.lines[at];
            // A window without it has no such wait.
            line.values.resize(window + 1 - line.first, 0.0);
            line.values[window - line.first] += float(nanos);
        }
        for at in index.waits.lines.values() {
            let line = &mut self.lines[*at];
            line.values.resize(window + 1 - line.first, 0.0);
        }
    }
}

/// Who waited, who ran, and nanoseconds.
fn waits(table: &ReportTable) -> impl Iterator<Item = (&Subject, &TableCell, u64)> {
    table.rows.iter().filter_map(|row| match row.as_slice() {
        [
            TableCell::Owner(waiting),
            behind,
            TableCell::Count(nanos),
            ..,
        ] => Some((waiting, behind, *nanos)),
        _ => None,
    })
}
