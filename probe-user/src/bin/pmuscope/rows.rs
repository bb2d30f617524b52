//! Options that choose and order the rows of `stat` and `hot`.

use std::{collections::BTreeSet, sync::Once};

use anyhow::{Result, bail};
use probe_user::{
    derive::{Report, ReportSection},
    join::RowSelection,
};

/// Which rows are shown.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct RowArgs {
    /// Only rows with this text in their name or id; may be given several times
    #[arg(long, value_name = "NAME")]
    filter: Vec<String>,
    /// Sort the rows by this metric or event, the largest first
    #[arg(long, value_name = "METRIC")]
    sort: Option<String>,
    /// Only the N first rows
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    top: Option<u32>,
    /// Only these processes, and the containers that they are in; ends when they have ended
    #[arg(
        short,
        long = "pid",
        value_name = "PID",
        value_delimiter = ',',
        conflicts_with = "command",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX))
    )]
    pub(crate) pids: Vec<u32>,
}

impl RowArgs {
    pub(crate) fn selection(&self) -> RowSelection {
        RowSelection {
            names: self.filter.clone(),
            pids: self.pids.clone(),
            sort: self.sort.clone(),
            top: self.top.map(|top| top as usize),
        }
    }
}

/// Checks that a report has the metric that sorts its rows. Only warns, once, if no row matches a
/// filter: such a row may come later.
pub(crate) fn check(selection: &RowSelection, report: &Report) -> Result<()> {
    static WARNED: Once = Once::new();
    let mut groups = report.groups();
    if !selection.names.is_empty() && !groups.any(|group| group.section == ReportSection::Rows) {
        WARNED.call_once(|| {
            tracing::warn!(
                "no row has {} in its name or id: without --filter all rows are shown",
                selection.names.join(" or ")
            );
        });
    }
    let Some(sort) = &selection.sort else {
        return Ok(());
    };
    let rows = report.groups().filter(|group| {
        let is_of_rows = [ReportSection::Rows, ReportSection::Total].contains(&group.section);
        is_of_rows && group.series.iter().any(|it| report.is_of_window(it))
    });
    let series = rows.flat_map(|row| row.series);
    let sortable: BTreeSet<&str> = series.map(|it| &*report.metric(it).name).collect();
    if !sortable.contains(sort.as_str()) {
        let sortable: Vec<&str> = sortable.into_iter().collect();
        bail!(
            "--sort {sort}: this is neither an event nor a metric that is shown; these are: {}",
            sortable.join(", ")
        );
    }
    Ok(())
}
