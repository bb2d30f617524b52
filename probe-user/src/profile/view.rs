//! Selects the lines of a profile that a view shows.

use super::{Distribution, LineSummary, Profile, ProfileLine};

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
    pub fn lines<'a>(&self, profile: &'a Profile) -> Vec<(&'a ProfileLine, LineSummary)> {
        let mut chosen = Vec::new();
        for (at, metric) in profile.metrics.iter().enumerate() {
            if !self.wants(&metric.name) {
                continue;
            }
            let mut lines: Vec<(&ProfileLine, LineSummary)> = profile
                .lines
                .iter()
                .filter(|line| line.metric == at)
                .filter(|line| self.matches_subject(profile, line.subject))
                .filter_map(|line| Some((line, line.summary(metric, &profile.windows)?)))
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
    pub fn histograms<'a>(
        &'a self,
        profile: &'a Profile,
    ) -> impl Iterator<Item = &'a Distribution> {
        profile.histograms.iter().filter(|it| {
            self.wants(&profile.metrics[it.metric].name)
                && self.matches_subject(profile, it.subject)
        })
    }

    pub(super) fn wants(&self, metric: &str) -> bool {
        self.metric.as_deref().is_none_or(|wanted| wanted == metric)
    }

    fn matches_subject(&self, profile: &Profile, subject: usize) -> bool {
        let subject = &profile.subjects[subject];
        self.matches_any([subject.label.as_str(), subject.name()].into_iter())
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
