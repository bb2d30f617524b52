//! The rows of a page: those that the user chose, and at most [`MAX_ROWS`].

use std::collections::HashSet;

use super::{LineSubject, Run, Selection};

/// Most rows of a view; those that used the least CPU are left out.
const MAX_ROWS: usize = 500;

/// The metrics that order rows. A run without them is ordered by its first metric.
const CPU_METRICS: [&str; 2] = ["cpus_used", "task-clock"];

impl Run {
    /// Keeps the rows that match the selection, and of these the `top` that used most CPU. Rows for
    /// the rest of the machine stay. Returns whether a matching row remains.
    pub fn keep_rows(&mut self, selection: &Selection) -> bool {
        // Rows that were left out before have no lines.
        let shown: HashSet<usize> = self.lines.iter().map(|line| line.subject).collect();
        let is_row = |at: &usize| {
            let subject = &self.subjects[*at];
            subject.part == "row" && !subject.is_rest() && shown.contains(at)
        };
        let mut rows: Vec<usize> = (0..self.subjects.len()).filter(is_row).collect();
        let all = rows.len();
        rows.retain(|at| selection.matches_subject(self, *at));
        if let Some(top) = selection.top.filter(|top| *top < rows.len()) {
            let sizes = self.sizes();
            rows.sort_by(|a, b| sizes[*b].total_cmp(&sizes[*a]));
            rows.truncate(top);
        }
        self.left_out += all - rows.len();
        let remaining: HashSet<usize> = rows.iter().copied().collect();
        self.drop_subjects(&remaining);
        !rows.is_empty()
    }

    /// Whether the selection finds a row, or anything else with a name.
    #[must_use]
    pub fn has(&self, selection: &Selection) -> bool {
        (0..self.subjects.len()).any(|at| selection.matches_subject(self, at))
    }

    /// Drops rows beyond the limit.
    pub(super) fn drop_excess_rows(&mut self) {
        self.keep_rows(&Selection {
            top: Some(MAX_ROWS),
            ..Selection::default()
        });
    }

    /// Index of the metric that orders rows.
    pub(super) fn ordering_metric(&self) -> usize {
        let named = |name: &&str| self.metrics.iter().position(|it| it.name == **name);
        CPU_METRICS.iter().find_map(named).unwrap_or(0)
    }

    /// Sum of each subject's values of the metric that orders rows.
    fn sizes(&self) -> Vec<f64> {
        let metric = self.ordering_metric();
        let mut sizes = vec![0.0; self.subjects.len()];
        for line in self.lines.iter().filter(|line| line.metric == metric) {
            let values = line.values.iter().filter(|value| !value.is_nan());
            sizes[line.subject] += values.sum::<f64>();
        }
        sizes
    }

    /// Drops the rows other than `remaining`, with their shares, distributions and findings.
    fn drop_subjects(&mut self, remaining: &HashSet<usize>) {
        let name = |subject: &LineSubject| {
            let kind = subject.get("kind").unwrap_or_default();
            (kind.to_owned(), subject.name().to_owned())
        };
        let names: HashSet<_> = remaining
            .iter()
            .map(|at| name(&self.subjects[*at]))
            .collect();
        let stays: Vec<bool> = (self.subjects.iter().enumerate())
            .map(|(at, subject)| match subject.part {
                "row" => subject.is_rest() || remaining.contains(&at),
                "share" => subject.is_undivided() || names.contains(&name(subject)),
                _ => true,
            })
            .collect();
        self.lines.retain(|line| stays[line.subject]);
        self.histograms.retain(|it| stays[it.subject]);
        let dropped: HashSet<&str> = (self.subjects.iter().zip(&stays))
            .filter_map(|(subject, stays)| (!stays).then_some(subject.label.as_str()))
            .collect();
        self.findings
            .retain(|(label, _)| !dropped.contains(label.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{RunLine, tests::metric};

    /// A run whose rows use so many CPUs; `system` is the rest of the machine. By faults, the order
    /// of the rows would be the reverse.
    fn run(rows: &[(&str, f64)]) -> Run {
        let metric = |name: &str| metric(name, "", false);
        let mut run = Run {
            windows: vec![(0.0, 1.0)],
            metrics: vec![metric("faults"), metric("cpus_used")],
            ..Run::default()
        };
        for (name, cpus) in rows {
            let kind = if *name == "system" {
                "system"
            } else {
                "container"
            };
            run.subjects.push(LineSubject {
                part: "row",
                label: (*name).to_owned(),
                labels: [("kind", kind.to_owned()), ("name", (*name).to_owned())].into(),
            });
            for (metric, value) in [(0, 1.0 - cpus), (1, *cpus)] {
                let subject = run.subjects.len() - 1;
                run.lines.push(RunLine {
                    values: vec![value],
                    ..RunLine::new(subject, metric, String::new(), 0)
                });
            }
            run.findings.push(((*name).to_owned(), "waits".to_owned()));
        }
        run
    }

    fn names(run: &Run) -> Vec<&str> {
        let lines = run.lines.iter().filter(|line| line.metric == 1);
        lines
            .map(|line| &*run.subjects[line.subject].label)
            .collect()
    }

    #[test]
    fn matching_rows_with_most_cpu_are_kept() {
        let all = [
            ("web-1", 0.1),
            ("system", 0.9),
            ("db", 0.5),
            ("web-2", 0.3),
            ("WEB-3", 0.2),
        ];
        let select = |search: Option<&str>, top| Selection {
            search: search.map(str::to_owned),
            top,
            ..Selection::default()
        };
        for (selection, kept, left_out) in [
            (select(None, Some(2)), &["system", "db", "web-2"][..], 2),
            (
                select(Some("web"), None),
                &["web-1", "system", "web-2", "WEB-3"],
                1,
            ),
            (select(Some("web"), Some(1)), &["system", "web-2"], 3),
        ] {
            let mut run = run(&all);
            assert!(run.keep_rows(&selection));
            assert_eq!((names(&run), run.left_out), (kept.to_vec(), left_out));
            let findings: Vec<&str> = run.findings.iter().map(|it| &*it.0).collect();
            assert_eq!(findings, kept);
        }
        assert!(!run(&all).keep_rows(&select(Some("none"), None)));
    }
}
