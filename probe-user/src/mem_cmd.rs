//! `pmuscope mem`: what Arm's SPE tells about loads and stores.

use std::process::ExitCode;

use anyhow::Result;

use crate::{mem, mem_calibrate, mem_record};

/// Arguments of `mem`: a table per container, or a verb.
#[derive(clap::Args)]
// The table's arguments have the group of this name.
#[group(skip)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    table: mem::Args,
}

/// What else `mem` does.
#[derive(clap::Subcommand)]
enum Verb {
    /// Record whole samples of a command, a process or a cgroup into a file
    Record(mem_record::Args),
    /// Measure, on this machine, how accurate sampling is and what it costs: for periods, buffer sizes
    /// and numbers of threads
    Calibrate(mem_calibrate::Args),
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.verb {
        Some(Verb::Record(args)) => mem_record::run(args),
        Some(Verb::Calibrate(args)) => mem_calibrate::run(args),
        None => mem::run(&args.table),
    }
}
