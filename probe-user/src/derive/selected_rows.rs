//! The rows that a user chose, in the order that the user wants.

use std::collections::HashSet;

use super::{FindingSubject, Report, ReportSection, Series, Subject, TableCell};
use crate::join::{Entity, RowSelection};

/// A row of the report with its series.
struct SelectedRow {
    subject: Subject,
    /// The sort value; None if unknown.
    value: Option<f64>,
    series: Vec<Series>,
}

impl Report {
    /// Keeps only the selected rows, with their shares, and sorts them. The machine's and the
    /// sockets' own values stay.
    pub(super) fn select_rows(&mut self, selection: &RowSelection) {
        if *selection == RowSelection::default() {
            return;
        }
        let (mut rows, mut pinned) = (Vec::new(), Vec::new());
        let mut shown = HashSet::new();
        for group in self.groups() {
            let is_shown = match group.section {
                ReportSection::Rows => self.is_selected(group.subject, selection),
                ReportSection::Processes => has_pid(group.subject, &selection.pids),
                _ => false,
            };
            if !is_shown {
                continue;
            }
            if group.section == ReportSection::Processes {
                shown.insert(group.subject.clone());
                continue;
            }
            let row = SelectedRow {
                subject: group.subject.clone(),
                value: self.value_of(group.series, selection.sort.as_deref()),
                series: group.series.to_vec(),
            };
            let may_end = !matches!(group.subject, Subject::Entity(entity) if entity.never_ends());
            match may_end {
                true => rows.push(row),
                false => pinned.push(row),
            }
        }
        if selection.sort.is_some() {
            let value = |row: &SelectedRow| row.value.unwrap_or(f64::NEG_INFINITY);
            rows.sort_by(|a, b| value(b).total_cmp(&value(a)));
        }
        rows.truncate(selection.top.unwrap_or(usize::MAX));
        rows.extend(pinned);
        shown.extend(rows.iter().map(|row| row.subject.clone()));
        let is_shown =
            |subject: &Subject| !matches!(subject, Subject::Entity(_)) || shown.contains(subject);
        for table in &mut self.tables {
            table.retain_rows(|row| {
                let mut owners = row.iter().filter_map(TableCell::owner);
                owners.next().is_none_or(|owner| shown.contains(owner))
            });
        }
        let subjects = &self.subjects;
        self.findings.retain(|finding| match finding.about {
            FindingSubject::Subject(at) => is_shown(&subjects[at as usize]),
            FindingSubject::Socket(_) => true,
        });
        // Rows come first; the other shown series keep their order.
        let others = { self.groups() }
            .filter(|group| group.section != ReportSection::Rows && is_shown(group.subject));
        let others: Vec<Series> = others.flat_map(|group| group.series.to_vec()).collect();
        let rows = rows.into_iter().flat_map(|row| row.series);
        self.series = rows.chain(others).collect();
    }

    /// Whether a row matches one of the chosen names, and is or has one of the chosen processes; an
    /// empty choice matches every row.
    fn is_selected(&self, subject: &Subject, selection: &RowSelection) -> bool {
        let RowSelection { names, pids, .. } = selection;
        let labels = subject.labels(&self.described);
        let is_named = names.is_empty() || names.iter().any(|name| labels.matches(name));
        let is_process_in_row = |process: &Subject| {
            has_pid(process, pids)
                && matches!((process, subject), (
                    Subject::Entity(Entity::ProcessOf { row, .. }),
                    Subject::Entity(entity),
                ) if **row == *entity)
        };
        let has_process = pids.is_empty()
            || has_pid(subject, pids)
            || self.subjects.iter().any(is_process_in_row);
        is_named && has_process
    }

    /// The value of a metric or event in the series of a row.
    fn value_of(&self, series: &[Series], metric: Option<&str>) -> Option<f64> {
        let metric = metric?;
        let found = series.iter().find(|it| self.metric(it).name == metric)?;
        let counter = found.counter().map(|counter| counter.estimate.value);
        counter.or_else(|| Some(found.estimate()?.value))
    }
}

/// Whether a subject is a process with one of these ids.
fn has_pid(subject: &Subject, pids: &[u32]) -> bool {
    match subject {
        Subject::Entity(Entity::ProcessOf { tgid, .. } | Entity::Process { tgid, .. }) => {
            pids.contains(tgid)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::{Estimate, FindingKind, MetricInfo, ReportFinding, ReportTable, Value};

    fn container(digit: &str) -> Subject {
        Subject::Entity(Entity::Container {
            id: digit.repeat(64).into(),
            pod: None,
        })
    }

    /// Three containers, a process of the first one, and the machine. Each of them has a series, a
    /// row in a list, and a finding.
    fn report() -> Report {
        let mut report = Report::default();
        let metric = report.add_metric(MetricInfo::gauge("load", "", ""));
        let attributes = report.add_attributes(crate::derive::Attributes::default());
        let Subject::Entity(first) = container("a") else {
            unreachable!()
        };
        let process = Subject::Entity(Entity::ProcessOf {
            tgid: 7,
            name: None,
            row: Box::new(first),
        });
        let rows = [
            (container("a"), 1.0),
            (container("b"), 3.0),
            (container("c"), 2.0),
            (process, 1.0),
            (Subject::Machine, 6.0),
        ];
        let mut cells = Vec::new();
        for (subject, value) in rows {
            cells.push(vec![TableCell::Count(0), TableCell::Owner(subject.clone())]);
            let at = report.subject(subject);
            report.findings.push(ReportFinding {
                kind: FindingKind::SystemCgroups,
                about: FindingSubject::Subject(at),
                text: format!("{value}"),
                named: None,
            });
            let value = Value::Gauge(Estimate::exact(value));
            report.push([at, metric, attributes], Ok(value), None);
        }
        report.tables.push(ReportTable {
            name: "list",
            columns: vec!["count", "owner"],
            rows: cells,
            small_rows: [1, 2].into(),
            counts: Vec::new(),
        });
        report
    }

    /// What a selection leaves: the values of series, the number of rows of the list, the indices
    /// of its small rows, and the texts of findings.
    fn shown(selection: &RowSelection) -> (Vec<f64>, usize, Vec<usize>, Vec<String>) {
        let mut report = report();
        report.select_rows(selection);
        let values = report.series.iter();
        let values = values.map(|series| series.estimate().unwrap().value);
        let table = &report.tables[0];
        (
            values.collect(),
            table.rows.len(),
            table.small_rows.iter().copied().collect(),
            report.findings.iter().map(|it| it.text.clone()).collect(),
        )
    }

    #[test]
    fn rows_are_chosen_by_name_and_sorted() {
        let sorted = RowSelection {
            sort: Some("load".to_owned()),
            top: Some(2),
            ..RowSelection::default()
        };
        let texts = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            shown(&sorted),
            (vec![3.0, 2.0, 6.0], 2, vec![0, 1], texts(&["3", "2", "6"]))
        );
        let named = RowSelection {
            names: vec!["AAA".to_owned(), "ccc".to_owned()],
            ..RowSelection::default()
        };
        assert_eq!(
            shown(&named),
            (vec![1.0, 2.0, 6.0], 2, vec![1], texts(&["1", "2", "6"]))
        );
    }

    #[test]
    fn a_process_is_shown_with_its_container() {
        let process = RowSelection {
            pids: vec![7],
            ..RowSelection::default()
        };
        assert_eq!(shown(&process).0, [1.0, 1.0, 6.0]);
        let other = RowSelection {
            pids: vec![8],
            ..RowSelection::default()
        };
        assert_eq!(shown(&other).0, [6.0]);
    }
}
