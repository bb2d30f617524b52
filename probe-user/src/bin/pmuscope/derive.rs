//! `pmuscope derive`: metrics from counts taken elsewhere.

use std::{
    io::{self, Read as _},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};
use probe_user::{
    catalogue::{Catalogue, Chip, Hardware, Platform, Processor},
    import,
};

use crate::print::{Format, to_stdout};

/// Arguments of `derive`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  perf stat -x, -o counts.csv -e cycles,instructions -- make
  pmuscope derive counts.csv --platform generic
  perf stat -e cycles,instructions -- make 2>&1 | pmuscope derive --platform generic
  pmuscope derive counts.csv --platform grace --format json")]
pub(crate) struct Args {
    /// Counts: output of perf stat, also with -x, or -j, or lines event=value with the time as
    /// seconds=value; - is standard input. docs/how-to/derive.md says which forms are read
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Where they were counted
    #[arg(long, value_enum)]
    platform: Platform,
    /// The chip they were counted on: metrics that it does not have get no value
    #[arg(long, value_enum)]
    chip: Option<Chip>,
    /// Add the metrics of this file in pmuscope's own format, or of this directory in perf's
    /// (tools/perf/pmu-events, intel/perfmon)
    #[arg(long, value_name = "PATH")]
    catalogue: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let hardware = match args.chip {
        Some(chip) if chip.platform() != args.platform => {
            bail!(
                "chip {chip} is on platform {}, not on {}",
                chip.platform(),
                args.platform
            )
        }
        Some(chip) => Hardware::of_chip(chip),
        None => Hardware::of_platform(args.platform),
    };
    let mut catalogue = Catalogue::builtin()?;
    let processor = Processor::of_platform(&catalogue, args.platform);
    for path in &args.catalogue {
        catalogue.merge_path(path, &hardware, &processor)?;
    }
    let readings = import::read(&read_input(args)?)?;
    let derived = import::derive(&catalogue, &hardware, &readings)?;
    to_stdout(|out| match args.format {
        Format::Table => import::table(out, &derived),
        Format::Json => import::json(out, &derived),
    })?;
    // The output has the reason for each missing value, so no error is printed.
    let has_value = derived.rows.iter().any(|row| row.value.is_ok());
    Ok(if has_value {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Reads the input, with U+FFFD for bytes that are not UTF-8, such as thousands separators of older
/// locales.
fn read_input(args: &Args) -> Result<String> {
    let bytes = if args.file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        let read = io::stdin().lock().read_to_end(&mut bytes);
        read.context("cannot read standard input")?;
        bytes
    } else {
        std::fs::read(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?
    };
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
