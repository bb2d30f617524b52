//! `pmuscope mem`: loads and stores, sampled by Arm's SPE, or by x86's IBS or PEBS.

mod calibrate;
mod record;
mod table;

use std::process::ExitCode;

use anyhow::Result;

/// Arguments of `mem`: a table per container, or a verb.
#[derive(clap::Args)]
// The table's arguments have the group of this name.
#[group(skip)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  pmuscope mem                                 # sources and latencies of loads, every second
  pmuscope mem --hot-lines 20                  # cache lines that CPUs share most
  pmuscope mem record -- ./service             # every sample, as Parquet"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    table: table::Args,
}

/// Verbs of `mem` other than the table.
#[derive(clap::Subcommand)]
enum Verb {
    /// Record whole samples of a command, a process or a cgroup into a file
    Record(record::Args),
    /// Measure the accuracy and the cost of sampling with SPE on this machine, for periods, buffer
    /// sizes and numbers of threads
    Calibrate(calibrate::Args),
}

pub(crate) fn run(mut args: Args) -> Result<ExitCode> {
    match &args.verb {
        Some(Verb::Record(args)) => record::run(args),
        Some(Verb::Calibrate(args)) => calibrate::run(args),
        None => table::run(&mut args.table),
    }
}
