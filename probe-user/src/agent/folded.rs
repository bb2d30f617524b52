//! Which rows are shown together where there are too many series.

use std::collections::{HashMap, HashSet};

use crate::{
    derive::{Report, Subject},
    emit::Exposition,
    join::Entity,
};

/// The smallest containers and pods, so many that at most `most` series are left. The size is what
/// the first event counted since the session began, so that a row is not in one window there and
/// in another not.
pub(super) fn choose(report: &Report, most: usize) -> HashSet<Entity> {
    let counts = Exposition::counts(report);
    let mut left: usize = counts.iter().sum();
    let mut folded = HashSet::new();
    if left <= most {
        return folded;
    }
    let mut sizes: HashMap<&Entity, usize> = HashMap::new();
    let mut rows: Vec<&Entity> = Vec::new();
    for (subject, count) in report.subjects.iter().zip(counts) {
        let Subject::Entity(entity @ (Entity::Container { .. } | Entity::Pod(_))) = subject else {
            continue;
        };
        let size = sizes.entry(entity).or_insert_with(|| {
            rows.push(entity);
            0
        });
        *size += count;
    }
    let totals = totals(report);
    let total = |row: &Entity| totals.get(row).copied().unwrap_or(0.0);
    // Stable: rows stand in the order of their size in the window.
    rows.sort_by(|a, b| total(b).total_cmp(&total(a)));
    // The row of all others has as many as one of them.
    left += rows.iter().map(|row| sizes[row]).max().unwrap_or(0);
    for row in rows.into_iter().rev() {
        if left <= most {
            break;
        }
        left -= sizes[row];
        folded.insert(row.clone());
    }
    folded
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
