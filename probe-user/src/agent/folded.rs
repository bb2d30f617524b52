//! Keeps the number of series below a limit: which rows are folded into one, and which processes
//! are left out.

use std::collections::{HashMap, HashSet};

use crate::{
    derive::{Report, Subject},
    emit::Exposition,
    join::Entity,
};

/// The rows that a window does not show on their own.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Folded {
    /// Cgroups, containers and pods whose counts one row shows together.
    pub(super) rows: HashSet<Entity>,
    /// Processes that are not shown. Their containers include their counts.
    pub(super) left_out: HashSet<Entity>,
}

/// Chooses rows until at most `most` series are left: first processes, then the smallest cgroups
/// without a container, then the smallest containers and pods. Cgroups come before containers,
/// since any user who may make cgroups can make any number of them. The size of a row is the count
/// of its first event since the session began, so that a row is not folded in every other window.
pub(super) fn choose(report: &Report, most: usize) -> Folded {
    let counts = Exposition::counts(report);
    let mut remaining: usize = counts.iter().sum();
    let mut folded = Folded::default();
    if remaining <= most {
        return folded;
    }
    let mut series_counts: HashMap<&Entity, usize> = HashMap::new();
    let mut rows: Vec<&Entity> = Vec::new();
    let mut processes: Vec<(&Entity, usize)> = Vec::new();
    for (subject, count) in report.subjects.iter().zip(counts) {
        match subject {
            Subject::Entity(entity) if rank(entity).is_some() => {
                let series_count = series_counts.entry(entity).or_insert_with(|| {
                    rows.push(entity);
                    0
                });
                *series_count += count;
            }
            Subject::Entity(entity @ Entity::ProcessOf { .. }) => processes.push((entity, count)),
            _ => {}
        }
    }
    // The largest processes are first in the report.
    while remaining > most
        && let Some((process, series_count)) = processes.pop()
    {
        remaining -= series_count;
        folded.left_out.insert(process.clone());
    }
    if remaining <= most {
        return folded;
    }
    let totals = totals(report);
    let total = |row: &Entity| totals.get(row).copied().unwrap_or(0.0);
    // A stable sort: rows of equal totals keep the order of their size in the window.
    rows.sort_by(|a, b| {
        let larger_first = total(b).total_cmp(&total(a));
        rank(a).cmp(&rank(b)).then(larger_first)
    });
    // The row of others has at most as many series as the largest row.
    remaining += rows.iter().map(|row| series_counts[row]).max().unwrap_or(0);
    for row in rows.into_iter().rev() {
        if remaining <= most {
            break;
        }
        remaining -= series_counts[row];
        folded.rows.insert(row.clone());
    }
    folded
}

/// The rank of a row that may be folded; higher ranks are folded first.
fn rank(row: &Entity) -> Option<u8> {
    match row {
        Entity::Container { .. } | Entity::Pod(_) => Some(0),
        Entity::Cgroup(_) | Entity::Unnamed(_) => Some(1),
        _ => None,
    }
}

/// The total of each row's first event.
fn totals(report: &Report) -> HashMap<&Entity, f64> {
    let mut totals = HashMap::new();
    for series in &report.series {
        let subject = &report.subjects[series.subject as usize];
        if let (Subject::Entity(entity), Some(total)) = (subject, report.total(series)) {
            totals.entry(entity).or_insert(total.estimate.value);
        }
    }
    totals
}

#[cfg(test)]
mod tests;
