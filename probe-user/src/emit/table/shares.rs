//! Shares of owners in the traffic of a socket or a device, with their method. The counting error
//! is not shown: it omits the error of the weights, which dominates.

use std::collections::{BTreeSet, HashMap};

use super::{
    TablePage,
    grid::{Grid, GridCell, GridRow},
    kinds::is_one_of_many,
    number::TableNumber,
};
use crate::{
    derive::{Estimate, Report, ReportSection, Series, ValueMethod},
    emit::printable::printable,
    join::share::Validation,
};

/// A row for each owner and place with a share, a column for each metric and method.
pub(super) fn grid(page: &TablePage<'_>) -> Grid {
    let report = page.report;
    let mut grid = Grid {
        heads: vec![page.heading.to_owned(), "of".to_owned()],
        key_labels: 1,
        ..Grid::default()
    };
    let groups = || {
        page.groups
            .iter()
            .filter(|group| group.section == ReportSection::Shares)
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
                if *method != ValueMethod::Counted {
                    column.under.push(format!("by {method}"));
                }
                // Shares are parts of one whole.
                column.adds_up = true;
                grid.columns.push(column);
                grid.columns.len() - 1
            });
            let labels = vec![page.name(group), socket_or_device(report, series)];
            // Two places on a socket may have the same name: each gets a row.
            let same = rows.entry(labels.clone()).or_default();
            let free = same
                .iter()
                .find(|row| !cells.contains_key(&(**row, column)));
            let row = free.copied().unwrap_or_else(|| {
                grid.rows
                    .push(GridRow::new(labels, 0, is_one_of_many(group.subject)));
                same.push(grid.rows.len() - 1);
                grid.rows.len() - 1
            });
            let cell = match is_rough(series) {
                true => GridCell::Absent,
                false => GridCell::Number(TableNumber::from_estimate(estimate)),
            };
            cells.insert((row, column), cell);
        }
    }
    for row in &mut grid.rows {
        row.cells = vec![GridCell::Empty; grid.columns.len()];
    }
    for ((row, column), cell) in cells {
        grid.rows[row].cells[column] = cell;
    }
    grid
}

/// Whether the counting error exceeds the share itself.
fn is_rough(series: &Series) -> bool {
    let error = series.estimate().and_then(Estimate::counting_error);
    error.is_some_and(|error| error > 1.0)
}

/// Notes on all shares: that they are not validated, and how many are too rough to show.
pub(super) fn notes(page: &TablePage<'_>) -> Vec<String> {
    let groups = page
        .groups
        .iter()
        .filter(|group| group.section == ReportSection::Shares);
    let shares: Vec<&Series> = groups
        .flat_map(|group| group.series)
        .filter(|series| series.value.is_ok())
        .collect();
    let rough = shares.iter().filter(|series| is_rough(series)).count();
    let not_validated = |series: &&Series| {
        page.report.attributes(series).method.validation() == Some(Validation::Nothing)
    };
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
    let also_counted: BTreeSet<String> = methods
        .filter_map(|method| Some(format!(" ! {method} counts {} too", method.counts_also()?)))
        .collect();
    notes.extend(also_counted);
    if shares.iter().any(not_validated) {
        notes.push(
            " ! shares are not validated here: what their weights do not see is in no error \
             (docs/how-it-works/accuracy.md)"
                .to_owned(),
        );
    }
    notes
}

/// The socket or device whose traffic is shared.
pub(super) fn socket_or_device(report: &Report, series: &Series) -> String {
    let attributes = report.attributes(series);
    let socket = || format!("socket {}", attributes.socket.unwrap_or_default());
    let place = attributes.device.clone().unwrap_or_else(socket);
    printable(&place).into_owned()
}
