//! The rows that a user chose, in the order that the user wants.

use std::collections::HashSet;

use super::{FindingSubject, Report, ReportSection, Series, Subject, TableCell};
use crate::join::{Entity, RowSelection};

/// A row of the report: its index in the subjects, and its series.
struct SelectedRow {
    subject: u32,
    /// The value that orders it; None: unknown.
    value: Option<f64>,
    series: Vec<Series>,
}

impl Report {
    /// Leaves out all rows but those of the selection, with their shares, and sorts them. The
    /// machine's and the sockets' own values stay.
    pub(super) fn select_rows(&mut self, selection: &RowSelection) {
        if *selection == RowSelection::default() {
            return;
        }
        let (mut rows, mut pinned, mut processes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut shares, mut others) = (Vec::new(), Vec::new());
        for group in self.groups() {
            let row = || SelectedRow {
                subject: group.series[0].subject,
                value: self.value_of(group.series, selection.sort.as_deref()),
                series: group.series.to_vec(),
            };
            match group.section {
                ReportSection::Rows if self.is_selected(group.subject, selection) => {
                    match is_rest(group.subject) {
                        true => pinned.push(row()),
                        false => rows.push(row()),
                    }
                }
                ReportSection::Processes if is_process_of(group.subject, &selection.pids) => {
                    processes.push(row());
                }
                ReportSection::Rows | ReportSection::Processes => {}
                ReportSection::Shares => shares.extend_from_slice(group.series),
                _ => others.extend_from_slice(group.series),
            }
        }
        if selection.sort.is_some() {
            let value = |row: &SelectedRow| row.value.unwrap_or(f64::NEG_INFINITY);
            rows.sort_by(|a, b| value(b).total_cmp(&value(a)));
        }
        rows.truncate(selection.top.unwrap_or(usize::MAX));
        rows.extend(pinned);
        let shown: HashSet<&Subject> = (rows.iter().chain(&processes))
            .map(|row| &self.subjects[row.subject as usize])
            .collect();
        for table in &mut self.tables {
            let mut owners = Vec::new();
            for row in &table.rows {
                let owner = row.iter().find_map(|cell| match cell {
                    TableCell::Owner(owner) => Some(owner),
                    _ => None,
                });
                owners.push(owner.is_none_or(|owner| shown.contains(owner)));
            }
            table.retain_rows(&owners);
        }
        let subjects = &self.subjects;
        let is_shown = |series: &Series| {
            let subject = &subjects[series.subject as usize];
            !matches!(subject, Subject::Entity(_)) || shown.contains(subject)
        };
        shares.retain(is_shown);
        self.findings.retain(|finding| match finding.about {
            FindingSubject::Subject(at) => {
                let subject = &subjects[at as usize];
                !matches!(subject, Subject::Entity(_)) || shown.contains(subject)
            }
            FindingSubject::Socket(_) => true,
        });
        let rows = rows.into_iter().chain(processes);
        let rows = rows.flat_map(|row| row.series);
        // In the order of the sections: shares come before what the program says of itself.
        let own = others.iter().position(|it| self.is_own(it));
        let own = others.split_off(own.unwrap_or(others.len()));
        self.series = rows.chain(others).chain(shares).chain(own).collect();
    }

    /// Whether the user chose a row: by a name, or by a process in it.
    fn is_selected(&self, subject: &Subject, selection: &RowSelection) -> bool {
        let RowSelection { names, pids, .. } = selection;
        let labels = subject.labels(&self.described);
        let is_named = names.is_empty() || names.iter().any(|name| labels.matches(name));
        let holds = |process: &Subject| {
            is_process_of(process, pids)
                && matches!((process, subject), (
                    Subject::Entity(Entity::ProcessOf { row, .. }),
                    Subject::Entity(entity),
                ) if **row == *entity)
        };
        let has_process =
            pids.is_empty() || is_process_of(subject, pids) || self.subjects.iter().any(holds);
        is_named && has_process
    }

    fn is_own(&self, series: &Series) -> bool {
        self.subjects[series.subject as usize] == Subject::Pmuscope
    }

    /// The value of a metric or event in the series of a row.
    fn value_of(&self, series: &[Series], metric: Option<&str>) -> Option<f64> {
        let metric = metric?;
        let found = series.iter().find(|it| self.metric(it).name == metric)?;
        let counter = found.counter().map(|counter| counter.estimate.value);
        counter.or_else(|| Some(found.estimate()?.value))
    }
}

/// Whether a row is the rest of the machine, and none of many.
fn is_rest(subject: &Subject) -> bool {
    matches!(
        subject,
        Subject::Entity(
            Entity::Others
                | Entity::System
                | Entity::Overflow
                | Entity::Unattributed
                | Entity::Idle
                | Entity::SystemAndIdle
        )
    )
}

/// Whether a subject is one of these processes.
fn is_process_of(subject: &Subject, pids: &[u32]) -> bool {
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

    /// Three containers and the machine, a process of the first one, a list and a finding of each.
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

    /// Values of the shown rows, rows and small rows of the list, and the findings.
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
        let texts = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
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
