//! For whom entities wait.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{
    Estimate, FindingSubject, Report, ReportFinding, ReportTable, Subject, TableCell,
    sources::ReportedRows,
};
use crate::{
    join::{Entity, WaitRows, WaitedFor},
    names::RuntimeNames,
    plan::Plan,
    window::{Window, float},
};

/// The most entities with a finding: those that waited longest.
const MAX_FINDINGS: usize = 3;

/// The least part of a wait that is named, and the least of the window that a wait takes.
const LEAST_PART: f64 = 0.5;
const LEAST_WAIT: f64 = 0.01;

const COLUMNS: [&str; 4] = ["owner", "behind", "cpu_wait_ns", "share"];

impl ReportedRows for WaitRows {
    /// Subjects of the entities, for findings.
    type Metrics = BTreeMap<Entity, u32>;

    fn metrics(&self, _: &mut Report) -> Self::Metrics {
        BTreeMap::new()
    }

    fn entities(&self) -> Vec<&Entity> {
        self.entities.keys().collect()
    }

    fn add_row(
        &self,
        subjects: &mut Self::Metrics,
        _: &mut Report,
        subject: u32,
        entity: Option<&Entity>,
    ) {
        subjects.extend(entity.map(|entity| (entity.clone(), subject)));
    }

    fn add_findings(
        &self,
        subjects: Self::Metrics,
        report: &mut Report,
        _: &Plan,
        window: &Window,
        machine: u32,
    ) {
        if self.unplaced > 0 {
            report.findings.push(ReportFinding {
                about: FindingSubject::Subject(machine),
                text: format!(
                    "{:.3} s of waits found no room in the kernel's map: they are in cpu-wait, and \
                     behind nobody in the table",
                    float(self.unplaced) / 1e9
                ),
            });
        }
        let mut longest: Vec<(u64, &Entity, &Parts)> = self
            .entities
            .iter()
            .map(|(entity, parts)| (parts.values().sum(), entity, parts))
            .collect();
        longest.sort_by_key(|(wait, entity, _)| (Reverse(*wait), *entity));
        report.tables.push(ReportTable {
            name: "waits",
            columns: COLUMNS.to_vec(),
            rows: longest.iter().flat_map(rows_of).collect(),
            counts: vec![("waits_unplaced_ns", self.unplaced)],
        });
        let least = LEAST_WAIT * window.length.as_secs_f64() * 1e9;
        let findings = longest
            .iter()
            .filter(|(wait, entity, _)| float(*wait) >= least && **entity != Entity::System)
            .filter_map(|it| {
                let about = FindingSubject::Subject(*subjects.get(it.1)?);
                let text = sentence(it, &report.described)?;
                Some(ReportFinding { about, text })
            });
        let findings: Vec<_> = findings.take(MAX_FINDINGS).collect();
        report.findings.extend(findings);
    }
}

type Parts = BTreeMap<WaitedFor, u64>;

/// The rows of an entity, the longest waits first.
fn rows_of((wait, entity, parts): &(u64, &Entity, &Parts)) -> Vec<Vec<TableCell>> {
    let mut parts: Vec<_> = parts.iter().collect();
    parts.sort_by_key(|(behind, nanos)| (Reverse(**nanos), *behind));
    let row = |(behind, nanos): (&WaitedFor, &u64)| {
        let share = float(*nanos) / float(*wait);
        vec![
            TableCell::Owner(Subject::Entity((*entity).clone())),
            match behind {
                WaitedFor::Entity(entity) => TableCell::Owner(Subject::Entity(entity.clone())),
                other => TableCell::Text(unattributed_label(other).to_owned()),
            },
            TableCell::Count(*nanos),
            TableCell::Estimate(Some(Estimate::exact(share))),
        ]
    };
    parts.into_iter().map(row).collect()
}

/// The name of who is no entity.
fn unattributed_label(waited_for: &WaitedFor) -> &'static str {
    match waited_for {
        WaitedFor::Entity(_) => "",
        WaitedFor::Nobody => "(nobody: the CPU was idle)",
        WaitedFor::Earlier => "(not known: too long ago)",
        WaitedFor::OtherCpu => "(not known: on another CPU)",
    }
}

/// Such as `its threads waited 1.20 s for a CPU, mostly for container 0123456789ab (83%)`. None if
/// nobody else had a large part.
fn sentence(
    (wait, entity, parts): &(u64, &Entity, &Parts),
    described: &RuntimeNames,
) -> Option<String> {
    let others = parts.iter().filter_map(|(behind, nanos)| match behind {
        WaitedFor::Entity(other) if other != *entity => Some((other, *nanos)),
        _ => None,
    });
    let (other, nanos) = others.max_by_key(|(other, nanos)| (*nanos, Reverse(*other)))?;
    let share = float(nanos) / float(*wait);
    let name = Subject::Entity(other.clone()).label(described);
    (share >= LEAST_PART).then(|| {
        format!(
            "its threads waited {:.2} s for a CPU, mostly for {name} ({:.0}%)",
            float(*wait) / 1e9,
            100.0 * share
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        join::{Joined, View},
        window,
    };

    fn container(name: &str) -> Entity {
        Entity::Container {
            id: name.repeat(64).into(),
            pod: None,
        }
    }

    fn report(entities: BTreeMap<Entity, Parts>) -> Report {
        let mut window = window::tests::empty();
        window.length = std::time::Duration::from_secs(1);
        let mut joined: Joined = View::default().join(&Plan::default(), &window, None);
        joined.sources.waits = Some(WaitRows {
            entities,
            unplaced: 7,
        });
        Report::new(&Plan::default(), &window, &joined, &View::default())
    }

    #[test]
    fn rows_are_ordered_by_their_waits_and_name_who_ran() {
        let (a, b) = (container("a"), container("b"));
        let of_a = Parts::from([
            (WaitedFor::Entity(b.clone()), 600_000_000),
            (WaitedFor::Entity(a.clone()), 100_000_000),
            (WaitedFor::Nobody, 300_000_000),
        ]);
        let of_b = Parts::from([(WaitedFor::Earlier, 2_000_000_000)]);
        let report = report([(a.clone(), of_a), (b.clone(), of_b)].into());
        let [table] = &report.tables[..] else {
            panic!("{:?}", report.tables)
        };
        let cells = table.rows.iter().map(|row| (&row[1], &row[2]));
        let found: Vec<_> = cells
            .map(|(behind, nanos)| match (behind, nanos) {
                (TableCell::Owner(owner), TableCell::Count(nanos)) => {
                    (owner.short_name(), nanos / 1_000_000)
                }
                (TableCell::Text(text), TableCell::Count(nanos)) => {
                    (text.clone(), nanos / 1_000_000)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let named = |name: &str, millis| (name.to_owned(), millis);
        assert_eq!(
            found,
            [
                named("(not known: too long ago)", 2000),
                named("container bbbbbbbbbbbb", 600),
                named("(nobody: the CPU was idle)", 300),
                named("container aaaaaaaaaaaa", 100),
            ]
        );
        assert_eq!(table.counts, [("waits_unplaced_ns", 7)]);
        let texts: Vec<_> = report.findings.iter().map(|it| it.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "0.000 s of waits found no room in the kernel's map: they are in cpu-wait, and \
                 behind nobody in the table",
                "its threads waited 1.00 s for a CPU, mostly for container bbbbbbbbbbbb (60%)"
            ]
        );
    }

    #[test]
    fn short_waits_and_waits_for_itself_are_no_finding() {
        let (a, b) = (container("a"), container("b"));
        let brief = Parts::from([(WaitedFor::Entity(b.clone()), 9_000_000)]);
        let own = Parts::from([
            (WaitedFor::Entity(b.clone()), 900_000_000),
            (WaitedFor::Entity(a.clone()), 20_000_000),
        ]);
        let report = report([(a, brief), (b, own)].into());
        assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    }
}
