//! `pmuscope mem`: what Arm's SPE tells about loads and stores.

use std::process::ExitCode;

use anyhow::Result;

use crate::{mem_calibrate, mem_record};

/// What `mem` does.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Record whole samples of a command, a process or a cgroup into a file
    Record(mem_record::Args),
    /// Measure, on this machine, how accurate sampling is and what it costs: for periods, buffer sizes
    /// and numbers of threads
    Calibrate(mem_calibrate::Args),
}

pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Record(args) => mem_record::run(args),
        Command::Calibrate(args) => mem_calibrate::run(args),
    }
}
