//! Metrics of sockets and devices.

use std::collections::BTreeMap;

use super::{
    Page,
    entities::cell,
    grid::{Cell, Grid, Row},
};
use crate::{
    catalogue::Place,
    derive::{Part, Subject},
};

/// A row for each socket and device, in a grid of those that have the same metrics.
pub(super) fn grids(page: &Page<'_>) -> Vec<Grid> {
    let mut places: BTreeMap<&Place, (String, BTreeMap<u32, Cell>)> = BTreeMap::new();
    for group in page
        .groups
        .iter()
        .filter(|group| group.part == Part::Places)
    {
        let Subject::Place(place, _) = group.subject else {
            continue;
        };
        let new = || (page.name(group), BTreeMap::new());
        let (_, cells) = places.entry(place).or_insert_with(new);
        cells.extend(
            group
                .series
                .iter()
                .map(|series| (series.metric, cell(series))),
        );
    }
    let mut grids: Vec<(Vec<u32>, Grid)> = Vec::new();
    for (name, cells) in places.into_values() {
        let metrics: Vec<u32> = cells.keys().copied().collect();
        let at = grids
            .iter()
            .position(|(same, _)| *same == metrics)
            .unwrap_or_else(|| {
                let described = metrics.iter().map(|at| &page.report.metrics[*at as usize]);
                let grid = Grid {
                    heads: vec![String::new()],
                    columns: described.map(|metric| page.column(metric)).collect(),
                    ..Grid::default()
                };
                grids.push((metrics, grid));
                grids.len() - 1
            });
        let mut row = Row::new(vec![name], 0, false);
        row.cells = cells.into_values().collect();
        grids[at].1.rows.push(row);
    }
    grids.into_iter().map(|(_, grid)| grid).collect()
}
