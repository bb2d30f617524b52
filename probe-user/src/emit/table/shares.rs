//! Shares: whose the traffic of a socket or a device is, and how it is known. Their counting error
//! is not shown: it leaves out how well the weights stand for the traffic, which dominates.

use std::collections::{BTreeSet, HashMap};

use super::{
    Page,
    grid::{Cell, Grid, Row},
    names::one_of_many,
    number::Number,
};
use crate::{
    derive::{Estimate, Method, Part, Report, Series},
    emit::printable::printable,
};

/// A row for each owner and place that has a share, a column for each metric and method.
pub(super) fn grid(page: &Page<'_>) -> Grid {
    let report = page.report;
    let mut grid = Grid {
        heads: vec![page.heading.to_owned(), "of".to_owned()],
        kept: 1,
        ..Grid::default()
    };
    let groups = || {
        page.groups
            .iter()
            .filter(|group| group.part == Part::Shares)
    };
    let mut columns = HashMap::new();
    let mut rows = HashMap::<_, Vec<usize>>::new();
    let mut cells = HashMap::new();
    for group in groups() {
        for series in group.series {
            let Some(estimate) = series.estimate() else {
                continue;
            };
            let method = &report.attributes(series).method;
            let column = *columns.entry((series.metric, method)).or_insert_with(|| {
                let mut column = page.column(report.metric(series));
                if *method != Method::Counted {
                    column.under.push(format!("by {method}"));
                }
                // Parts of one whole.
                column.adds_up = true;
                grid.columns.push(column);
                grid.columns.len() - 1
            });
            let labels = vec![page.name(group), place(report, series)];
            // Two parts of a socket may have one name.
            let same = rows.entry(labels.clone()).or_default();
            let free = same
                .iter()
                .find(|row| !cells.contains_key(&(**row, column)));
            let row = free.copied().unwrap_or_else(|| {
                grid.rows
                    .push(Row::new(labels, 0, one_of_many(group.subject)));
                same.push(grid.rows.len() - 1);
                grid.rows.len() - 1
            });
            let cell = match is_rough(series) {
                true => Cell::Absent,
                false => Cell::Number(Number::of(estimate)),
            };
            cells.insert((row, column), cell);
        }
    }
    for row in &mut grid.rows {
        row.cells = vec![Cell::Empty; grid.columns.len()];
    }
    for ((row, column), cell) in cells {
        grid.rows[row].cells[column] = cell;
    }
    grid
}

/// Whether a share may be wrong by more than itself by the way it was counted alone.
fn is_rough(series: &Series) -> bool {
    let error = series.estimate().and_then(Estimate::counting_error);
    error.is_some_and(|error| error > 1.0)
}

/// What has to be said of all shares: that nothing says how well they stand for the traffic, and
/// how many are too rough to be shown.
pub(super) fn notes(page: &Page<'_>) -> Vec<String> {
    let groups = page.groups.iter();
    let groups = groups.filter(|group| group.part == Part::Shares);
    let shares = groups.flat_map(|group| group.series);
    let shares: Vec<&Series> = shares.filter(|series| series.value.is_ok()).collect();
    let rough = shares.iter().filter(|series| is_rough(series)).count();
    let weighed = |series: &&Series| page.report.attributes(series).method.is_not_validated();
    let mut notes = Vec::new();
    if rough > 0 {
        notes.push(format!(
            " - {rough} share{}: the error of counting alone is larger than the share (--format \
             json has both): longer windows have less",
            if rough == 1 { "" } else { "s" }
        ));
    }
    let methods = shares
        .iter()
        .map(|series| &page.report.attributes(series).method);
    let besides: BTreeSet<String> = methods
        .filter_map(|method| Some(format!(" ! {method} counts {} too", method.but()?)))
        .collect();
    notes.extend(besides);
    if shares.iter().any(weighed) {
        notes.push(
            " ! shares are not validated here: what their weights do not see is in no error \
             (docs/accuracy.md)"
                .to_owned(),
        );
    }
    notes
}

/// The socket or device whose traffic is shared.
pub(super) fn place(report: &Report, series: &Series) -> String {
    let attributes = report.attributes(series);
    let socket = || format!("socket {}", attributes.socket.unwrap_or_default());
    let place = attributes.device.clone().unwrap_or_else(socket);
    printable(&place).into_owned()
}
