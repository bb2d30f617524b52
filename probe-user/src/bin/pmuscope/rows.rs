//! Options that choose and order the rows of `stat` and `hot`.

use anyhow::{Result, bail};
use probe_user::{derive::Report, join::RowSelection};

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

/// Checks that a report has the metric that sorts its rows.
pub(crate) fn check(selection: &RowSelection, report: &Report) -> Result<()> {
    let Some(sort) = &selection.sort else {
        return Ok(());
    };
    let names = || report.metrics.iter().map(|metric| metric.name.as_str());
    if !names().any(|name| name == sort) {
        let rows = report.groups().next();
        let of_rows = rows.into_iter().flat_map(|row| row.series);
        let known: Vec<&str> = of_rows.map(|it| &*report.metric(it).name).collect();
        bail!(
            "--sort {sort}: this is neither an event nor a metric that is shown; these are: {}",
            known.join(", ")
        );
    }
    Ok(())
}
