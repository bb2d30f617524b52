//! Metrics of sockets and devices.

use std::collections::BTreeMap;

use super::{
    TablePage,
    entities::cell,
    grid::{Grid, GridCell, GridRow},
};
use crate::{
    catalogue::MetricPlace,
    derive::{ReportSection, Subject},
};

/// Grids of sockets and devices, which have a row each. Those with the same metrics share a grid.
pub(super) fn grids(page: &TablePage<'_>) -> Vec<Grid> {
    let mut places: BTreeMap<&MetricPlace, (String, BTreeMap<u32, GridCell>)> = BTreeMap::new();
    for group in page
        .groups
        .iter()
        .filter(|group| group.section == ReportSection::Uncore)
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
        let mut row = GridRow::new(vec![name], 0, false);
        row.cells = cells.into_values().collect();
        grids[at].1.rows.push(row);
    }
    grids.into_iter().map(|(_, grid)| grid).collect()
}
