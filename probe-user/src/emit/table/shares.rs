//! Shares: the owners of the traffic of a socket or a device, with the error and the method of each
//! share.

use std::collections::HashMap;

use super::{
    Page,
    grid::{Cell, Grid, Row},
    names::one_of_many,
    number::Number,
};
use crate::{
    derive::{Method, Part, Report, Series},
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
            let method = match report.attributes(series).method {
                Method::Counted => None,
                method => Some(format!("by {method}")),
            };
            let column = *columns
                .entry((series.metric, method.clone()))
                .or_insert_with(|| {
                    let mut column = page.column(report.metric(series));
                    column.under.extend(method);
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
            let number = Number {
                error: estimate.error,
                ..Number::of(estimate)
            };
            cells.insert((row, column), Cell::Number(number));
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

/// The socket or device whose traffic is shared.
pub(super) fn place(report: &Report, series: &Series) -> String {
    let attributes = report.attributes(series);
    let socket = || format!("socket {}", attributes.socket.unwrap_or_default());
    let place = attributes.device.clone().unwrap_or_else(socket);
    printable(&place).into_owned()
}
