//! `pmuscope stat --replay`: shows a recording, by the same stages as a live run.

use std::{path::Path, process::ExitCode, time::Duration};

use anyhow::{Result, bail};
use probe_user::{
    catalogue::{Catalogue, Processor},
    join::{By, RowSelection},
    recording::{Recording, Replay},
};

use super::{Args, CountingArgs};
use crate::{live, rows};

pub(super) fn run(file: &Path, args: &Args) -> Result<ExitCode> {
    let selection = args.rows.selection();
    if !selection.pids.is_empty() {
        bail!("--pid is for a run: of a recording, choose processes by --by process and --filter");
    }
    let mut replay = begin(file, &args.counting, &args.run.session, selection.clone())?;
    let mut printer = live::WindowPrinter::open(&args.run, |_, _| {})?;
    let chosen = args.from.unwrap_or_default()..=args.to.unwrap_or(Duration::MAX);
    let (mut printed, mut end, mut longest) = (false, Duration::ZERO, Duration::ZERO);
    while let Some(report) = replay.advance()? {
        rows::check(&selection, report)?;
        end = report.elapsed();
        longest = longest.max(report.length());
        if !chosen.contains(&(end - report.length())) {
            continue;
        }
        if !chosen.contains(&end) {
            break;
        }
        printed = true;
        if !printer.print(report)? {
            break;
        }
    }
    live::WindowSink::end(&mut printer)?;
    if !printed && chosen != (Duration::ZERO..=Duration::MAX) {
        bail!(
            "{} has no whole window between --from and --to: its windows take up to {longest:.2?}, \
             and the last one that was read ends after {end:.2?}",
            file.display(),
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the recording, with the rows and metrics that the user chooses now.
pub(crate) fn begin(
    file: &Path,
    counting: &CountingArgs,
    session: &live::SessionArgs,
    rows: RowSelection,
) -> Result<Replay> {
    let mut recording = Recording::open(file)?;
    if !counting.metric.is_empty() {
        let Some(machine) = recording.head.plan.metrics.machine else {
            bail!(
                "{} has no counts of events, and so no metrics: leave out -M",
                recording.file()
            );
        };
        let mut catalogue = Catalogue::builtin()?;
        let processor = Processor::of_platform(&catalogue, machine.platform);
        for path in &counting.catalogue {
            catalogue.merge_path(path, &machine, &processor)?;
        }
        let list = counting.metric.join(",");
        recording
            .head
            .plan
            .select_metrics(&catalogue, &machine, &list)?;
    }
    let mut view = recording.head.view.clone();
    if session.by == Some(By::Process) && view.by != By::Process {
        bail!(
            "{} was recorded without processes: record it with --by process",
            recording.file()
        );
    }
    view.by = session.by.unwrap_or(view.by);
    view.rows = rows;
    if let Some(path) = &session.cgroup {
        view.below = Some(format!("/{}", path.trim_matches('/')));
    }
    Ok(Replay::begin(recording, view)?)
}
