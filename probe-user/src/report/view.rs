//! Selects the lines of a run that a view shows.

use super::{Distribution, LineSummary, Run, RunLine};
use crate::names::name_matches;

/// Selects metrics, subjects by name, and the largest lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The metric's name; None: all.
    pub metric: Option<String>,
    /// Part of a subject's name, case-insensitive.
    pub search: Option<String>,
    /// Number of lines of each metric, those with the largest means.
    pub top: Option<usize>,
}

impl Selection {
    /// Selected lines with a value, in the order of the metrics, each with its summary.
    #[must_use]
    pub fn lines<'a>(&self, run: &'a Run) -> Vec<(&'a RunLine, LineSummary)> {
        let mut chosen = Vec::new();
        for (at, metric) in run.metrics.iter().enumerate() {
            if !self.wants(&metric.name) {
                continue;
            }
            let mut lines: Vec<(&RunLine, LineSummary)> = run
                .lines
                .iter()
                .filter(|line| line.metric == at)
                .filter(|line| self.matches_subject(run, line.subject))
                .filter_map(|line| Some((line, line.summary(metric, &run.windows)?)))
                .collect();
            if let Some(top) = self.top {
                lines.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean));
                lines.truncate(top);
            }
            chosen.extend(lines);
        }
        chosen
    }

    /// Selected distributions.
    pub fn histograms<'a>(&'a self, run: &'a Run) -> impl Iterator<Item = &'a Distribution> {
        run.histograms.iter().filter(|it| {
            self.wants(&run.metrics[it.metric].name) && self.matches_subject(run, it.subject)
        })
    }

    pub(super) fn wants(&self, metric: &str) -> bool {
        self.metric.as_deref().is_none_or(|wanted| wanted == metric)
    }

    pub(super) fn matches_subject(&self, run: &Run, subject: usize) -> bool {
        let subject = &run.subjects[subject];
        let names = ["namespace", "pod", "container"].map(|label| subject.get(label));
        let matches_name = |search: &String| name_matches(search, subject.name(), names);
        self.search.as_ref().is_none_or(matches_name)
            || self.matches_any([&*subject.label].into_iter())
    }

    /// Whether one of these names matches the search.
    pub(super) fn matches_any<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> bool {
        let Some(search) = &self.search else {
            return true;
        };
        let search = search.to_lowercase();
        names.any(|name| name.to_lowercase().contains(&search))
    }
}
