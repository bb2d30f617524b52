//! Selection: which lines of a profile a single view shows.

use super::{Distribution, Line, Profile, Summary};

/// What is shown: a metric or all, of holders found by their names, the largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The metric's name; all where there is none.
    pub metric: Option<String>,
    /// Part of the name of a holder, in any case.
    pub search: Option<String>,
    /// How many lines of each metric, those with the largest means.
    pub top: Option<usize>,
}

impl Selection {
    /// Lines with a value, in the order of the metrics, each with what its windows say together.
    #[must_use]
    pub fn lines<'a>(&self, profile: &'a Profile) -> Vec<(&'a Line, Summary)> {
        let mut chosen = Vec::new();
        for (at, metric) in profile.metrics.iter().enumerate() {
            if !self.wants(&metric.name) {
                continue;
            }
            let lines = profile.lines.iter().filter(|line| line.metric == at);
            let lines = lines.filter(|line| self.finds(profile, line.holder));
            let mut lines: Vec<(&Line, Summary)> = lines
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

    /// Distributions of it.
    pub fn histograms<'a>(
        &'a self,
        profile: &'a Profile,
    ) -> impl Iterator<Item = &'a Distribution> {
        profile.histograms.iter().filter(|it| {
            self.wants(&profile.metrics[it.metric].name) && self.finds(profile, it.holder)
        })
    }

    pub(super) fn wants(&self, metric: &str) -> bool {
        self.metric.as_deref().is_none_or(|wanted| wanted == metric)
    }

    fn finds(&self, profile: &Profile, holder: usize) -> bool {
        let holder = &profile.holders[holder];
        self.finds_one([holder.label.as_str(), &holder.name].into_iter())
    }

    /// Whether one of these names has what is searched for.
    pub(super) fn finds_one<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> bool {
        let Some(search) = &self.search else {
            return true;
        };
        let search = search.to_lowercase();
        names.any(|name| name.to_lowercase().contains(&search))
    }
}
