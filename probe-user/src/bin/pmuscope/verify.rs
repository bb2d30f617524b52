//! `pmuscope verify`: compares what was estimated with what was counted.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use anyhow::Result;
use probe_user::{emit::printable::printable_json, report::VerifiedShares};

use crate::{print::to_stdout, report::read_run, terminal::stdout_width};

/// Arguments of `verify`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Compare the shares of a recording with what resctrl counted for the same containers
    Shares(SharesArgs),
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  pmuscope record --calibration calibration.toml -M cmem_read_bandwidth,cmem_write_bandwidth
  pmuscope verify shares pmuscope.jsonl.gz")]
struct SharesArgs {
    /// A recording of `pmuscope record` on a machine whose containers have monitoring groups
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON object.
    Json,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let What::Shares(args) = &args.what;
    let verified = VerifiedShares::of_run(&read_run(&args.file)?)?;
    let text = match args.format {
        Format::Table => verified.table(stdout_width()),
        Format::Json => printable_json(&serde_json::to_value(&verified)?) + "\n",
    };
    to_stdout(|out| out.write_all(text.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}
