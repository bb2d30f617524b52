//! Derive: values from counts, documented metrics from values, and the [`Report`] of all of them.

mod accesses;
mod counts;
mod ddio;
mod metrics;
mod own;
mod pages;
mod report;
mod samples;
mod self_counters;
mod series;
mod shares;
mod spe;
pub mod statistics;
mod value;

use self::{accesses::Accesses, counts::Columns, metrics::CoreMetrics};
pub use self::{
    accesses::served_name,
    ddio::{Advice, Finding, advice_for, finding},
    report::{Cell, Group, Part, Report, Table},
    series::{Attributes, Counting, Kind, Metric, Series, Subject},
    value::{Counter, Estimate, Histogram, LiveTime, Method, Reason, Value},
};
use crate::{
    join::{Entity, Joined, Rows, View},
    plan::Plan,
    window::{Gained, SpeUsage, Usage, Window},
};

impl Report {
    /// Everything that a window shows: counts, metrics, samples, shares and this program's account
    /// of itself.
    #[must_use]
    pub fn new(plan: &Plan, window: &Window, joined: &Joined, view: &View) -> Self {
        let mut report = Self {
            boot_time: window.boot_time,
            ..Self::empty(window.began, window.start, window.length)
        };
        let columns = Columns::new(&mut report, plan);
        let metrics = CoreMetrics::new(&mut report, plan, window);
        let accesses = view.accesses.map(|_| Accesses::new(&mut report));
        let unused = Gained::first(vec![None; plan.groups.len()], window.start);
        let nothing = Gained::<SpeUsage>::default();
        let add = |report: &mut Self, subject: u32, row: &Row<'_>| {
            let samples = row.samples.unwrap_or(&nothing);
            metrics.add_row(
                report,
                subject,
                &row.usage.unwrap_or(&unused).delta,
                &samples.delta,
            );
            if let Some(accesses) = &accesses {
                accesses.add_row(report, subject, samples);
            }
        };
        let rows = rows(plan, joined);
        report.reserve(rows.len(), columns.len(), metrics.len());
        for row in rows {
            let subject = report.subject(Subject::Entity(row.entity.clone()));
            columns.add_row(&mut report, subject, row.usage.unwrap_or(&unused));
            add(&mut report, subject, &row);
        }
        columns.add_sockets(&mut report, window);
        let machine = report.subject(Subject::Machine);
        columns.add_machine(&mut report, machine, window);
        let total = Row {
            entity: &Entity::System,
            usage: Some(&window.total),
            samples: window.samples.as_ref().map(|samples| &samples.total),
        };
        add(&mut report, machine, &total);
        metrics::add_missing(&mut report, machine, plan);
        metrics::add_places(&mut report, plan, window);
        shares::add(&mut report, plan, window, joined);
        own::add(&mut report, window);
        if let (Some(samples), Some(pages @ 1..)) = (&window.samples, view.accesses) {
            report.tables.push(pages::hot(&samples.pages, pages));
        }
        report.findings = ddio::findings(&report);
        report.advice = ddio::advice(&report);
        report
    }
}

/// The counts and samples of an entity.
struct Row<'a> {
    entity: &'a Entity,
    usage: Option<&'a Gained<Usage>>,
    samples: Option<&'a Gained<SpeUsage>>,
}

/// Every entity that was counted or sampled, in the order in which they are shown: within a kind,
/// those with the largest count of the first event, or with most accesses, come first.
fn rows<'a>(plan: &Plan, joined: &'a Joined) -> Vec<Row<'a>> {
    let samples = joined.samples.as_ref();
    let counted = joined.rows.iter().map(|(entity, usage)| Row {
        entity,
        usage: Some(usage),
        samples: samples.and_then(|samples| samples.of(entity)),
    });
    let sampled = samples.into_iter().flat_map(Rows::iter);
    let known = |samples: &Gained<SpeUsage>| samples.total.values().any(|it| it.row.samples > 0);
    let only_sampled = sampled
        .filter(|(entity, samples)| joined.of(entity).is_none() && known(samples))
        .map(|(entity, samples)| Row {
            entity,
            usage: None,
            samples: Some(samples),
        });
    let first = |row: &Row<'_>| -> f64 {
        let usage = row.usage.map(|usage| &usage.delta);
        usage
            .and_then(|usage| counts::first(plan, usage))
            .unwrap_or(-1.0)
    };
    let accesses = |row: &Row<'_>| -> f64 {
        let samples = row
            .samples
            .into_iter()
            .flat_map(|samples| samples.delta.values());
        samples.map(|counts| counts.operations).sum()
    };
    let rows = counted.chain(only_sampled);
    let mut rows: Vec<_> = rows
        .map(|row| (rank(row.entity), first(&row), accesses(&row), row))
        .collect();
    rows.sort_by(|a, b| {
        let first = || b.1.total_cmp(&a.1);
        a.0.cmp(&b.0)
            .then_with(first)
            .then_with(|| b.2.total_cmp(&a.2))
    });
    rows.into_iter().map(|(.., row)| row).collect()
}

/// The place of a row's kind in the output.
fn rank(label: &Entity) -> u8 {
    match label {
        Entity::Command(_) => 0,
        Entity::Pod(_) => 1,
        Entity::Container { .. } => 2,
        Entity::Cgroup(_) | Entity::Process { .. } => 3,
        Entity::EndedProcesses | Entity::Unnamed(_) => 4,
        Entity::System => 5,
        Entity::Overflow | Entity::Unattributed => 6,
        Entity::Idle | Entity::SystemAndIdle => 7,
    }
}

#[cfg(test)]
mod tests;
