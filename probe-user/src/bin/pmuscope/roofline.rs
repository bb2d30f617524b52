//! `pmuscope roofline`: the peaks of this machine's cores and memory.

use std::process::ExitCode;

use anyhow::Result;
use probe_user::{
    machine::Machine,
    roofline::{RooflineOptions, json, measure, table},
    samples::{Size, SizeError},
};

use crate::print::{Format, to_stdout};

/// Arguments of `roofline`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  pmuscope roofline
  pmuscope roofline --threads 1,2 --sizes 64K,2G
  pmuscope roofline --format json > peaks.json # for `pmuscope report --roofline`")]
pub(crate) struct Args {
    /// Thread counts to measure; each thread has its own CPU [default: powers of two, the number of
    /// cores, the number of CPUs]
    #[arg(long, value_delimiter = ',', value_parser = parse_threads)]
    threads: Vec<usize>,
    /// Bytes of the triad's three arrays together, as 64K or 2G [default: half of each cache
    /// level; for memory, twelve times the last-level caches]
    #[arg(long, value_delimiter = ',', value_parser = parse_size)]
    sizes: Vec<Size>,
    /// Runs of each measurement, of which the best and the median are shown
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("it must be a number of threads, as 1,2,4".to_owned()),
        Ok(threads) => Ok(threads),
    }
}

/// The least size in bytes. Shorter arrays would measure the loop around them.
const LEAST_SIZE: u64 = 4096;

fn parse_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: SizeError| error.to_string())?;
    match size.0 {
        0..LEAST_SIZE => Err(format!("it must be {LEAST_SIZE} bytes or more")),
        _ => Ok(size),
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let options = RooflineOptions {
        threads: args.threads.clone(),
        sizes: args.sizes.iter().map(|size| size.0).collect(),
        runs: args.runs.into(),
    };
    let roofline = measure(&Machine::this(), &options)?;
    to_stdout(|out| match args.format {
        Format::Table => table(out, &roofline),
        Format::Json => json(out, &roofline),
    })?;
    Ok(ExitCode::SUCCESS)
}
