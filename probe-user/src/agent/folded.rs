//! Which rows are shown together, and which processes not at all, where there are too many series.

use std::collections::{HashMap, HashSet};

use crate::{
    derive::{Report, Subject},
    emit::Exposition,
    join::Entity,
};

/// What is not shown by itself in a window.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Folded {
    /// Cgroups, containers and pods that are one row together.
    pub(super) rows: HashSet<Entity>,
    /// Processes that are not shown: their containers have their counts.
    pub(super) left_out: HashSet<Entity>,
}

/// As many processes, then of the smallest cgroups of no container, and then of the smallest
/// containers and pods, that at most `most` series are left. Whoever may make cgroups can make any
/// number of the former. The size of a row is what the first event counted since the session began,
/// so that a row is not shown in one window and folded in the next.
pub(super) fn choose(report: &Report, most: usize) -> Folded {
    let counts = Exposition::counts(report);
    let mut left: usize = counts.iter().sum();
    let mut folded = Folded::default();
    if left <= most {
        return folded;
    }
    let mut sizes: HashMap<&Entity, usize> = HashMap::new();
    let mut rows: Vec<&Entity> = Vec::new();
    let mut processes: Vec<(&Entity, usize)> = Vec::new();
    for (subject, count) in report.subjects.iter().zip(counts) {
        match subject {
            Subject::Entity(entity) if rank(entity).is_some() => {
                let size = sizes.entry(entity).or_insert_with(|| {
                    rows.push(entity);
                    0
                });
                *size += count;
            }
            Subject::Entity(entity @ Entity::ProcessOf { .. }) => processes.push((entity, count)),
            _ => {}
        }
    }
    // The largest come first.
    while left > most
        && let Some((process, size)) = processes.pop()
    {
        left -= size;
        folded.left_out.insert(process.clone());
    }
    if left <= most {
        return folded;
    }
    let totals = totals(report);
    let total = |row: &Entity| totals.get(row).copied().unwrap_or(0.0);
    // Stable: rows stand in the order of their size in the window.
    rows.sort_by(|a, b| {
        let sizes = total(b).total_cmp(&total(a));
        rank(a).cmp(&rank(b)).then(sizes)
    });
    // The row of all others has as many as one of them.
    left += rows.iter().map(|row| sizes[row]).max().unwrap_or(0);
    for row in rows.into_iter().rev() {
        if left <= most {
            break;
        }
        left -= sizes[row];
        folded.rows.insert(row.clone());
    }
    folded
}

/// Which rows are folded: those of a higher rank first.
fn rank(row: &Entity) -> Option<u8> {
    match row {
        Entity::Container { .. } | Entity::Pod(_) => Some(0),
        Entity::Cgroup(_) | Entity::Unnamed(_) => Some(1),
        _ => None,
    }
}

/// By row: what its first event counted.
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
