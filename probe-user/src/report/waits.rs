//! Lines of CPU waits: one for each pair of an owner that waited and one that ran.

use std::{collections::HashMap, iter::once};

use super::{LineMetric, Run, RunIndex, RunLine, idle::WindowSet};
use crate::{
    derive::{Report, ReportSection, Subject, TableCell},
    window::float,
};

/// The metric of these lines. Their qualifier is `behind NAME`.
pub(super) const WAITED_BEHIND: &str = "cpu_wait_behind";

/// The most lines. Further pairs of an owner share one line.
const MAX_LINES: usize = 2_000;

/// What ran while an owner waited.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Ran {
    Subject(Subject),
    Text(String),
}

/// The lines of waits while a run is built.
#[derive(Default)]
pub(super) struct WaitLines {
    /// By the subject that waited, and what ran; None: whatever ran in further pairs.
    lines: HashMap<(usize, Option<Ran>), usize>,
    /// The windows in which waits were counted: a pair without a wait waited for 0 s there.
    pub(super) windows: WindowSet,
}

impl WaitLines {
    /// Each pair of the subject that waited and what ran, with the index of its line.
    pub(super) fn lines(&self) -> impl Iterator<Item = ((usize, Option<&Ran>), usize)> {
        let lines = self.lines.iter();
        lines.map(|((waiting, behind), line)| ((*waiting, behind.as_ref()), *line))
    }
}

impl Run {
    /// Adds the waits of the last window.
    pub(super) fn add_waits(&mut self, index: &mut RunIndex, report: &Report) {
        let Some(waits) = report.waits() else {
            return;
        };
        let metric = report.metrics.iter().find(|it| it.name == WAITED_BEHIND);
        let Some(metric) = metric.map(|metric| LineMetric::new(report, metric)) else {
            return;
        };
        let window = self.windows.len() - 1;
        index.waits.windows.add(window);
        for (waiting, behind, nanos) in waits {
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
            let (run_lines, metrics) = (&mut self.lines, &mut self.metrics);
            let names = &mut index.names;
            let at = *lines.entry(key).or_insert_with_key(|(subject, behind)| {
                let metric_index = metrics.iter().position(|it| it.name == WAITED_BEHIND);
                let metric_index = metric_index.unwrap_or_else(|| {
                    metrics.push(metric.clone());
                    metrics.len() - 1
                });
                let qualifier = match behind {
                    // The qualifier is set at the end, when all names are known.
                    Some(Ran::Subject(owner)) => {
                        names.learn(report, owner);
                        String::new()
                    }
                    Some(Ran::Text(text)) => format!("behind {text}"),
                    None => "behind others".to_owned(),
                };
                run_lines.push(RunLine::new(*subject, metric_index, qualifier, window));
                run_lines.len() - 1
            });
            let line = &mut self.lines[at];
            // Several pairs may share a line.
            line.fill(once(window));
            line.values[window - line.first] += float(nanos);
        }
    }
}
