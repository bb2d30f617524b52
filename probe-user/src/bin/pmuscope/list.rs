//! `pmuscope list`: what this machine can count.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use probe_user::{
    catalogue::{Catalogue, Chip, Hardware},
    list::{Inventory, Part},
    machine::Machine,
};

use crate::print::{Format, to_stdout};

/// Arguments of `list`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to list [default: everything]
    #[arg(value_enum)]
    part: Option<Part>,
    /// Add the metrics of this file; its format is that of pmuscope's own
    #[arg(long, value_name = "FILE")]
    catalogue: Vec<PathBuf>,
    /// The chip of this machine, if it is not detected or detected wrong
    #[arg(long, value_enum)]
    chip: Option<Chip>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let machine = Machine::this();
    let mut catalogue = Catalogue::builtin()?;
    for file in &args.catalogue {
        catalogue.merge_file(file)?;
    }
    let told = args
        .chip
        .map_or_else(|| Hardware::detect(&machine), Hardware::of_chip);
    let inventory = Inventory::of_this_machine(&machine, &catalogue, &told)?;
    to_stdout(|out| match args.format {
        Format::Table => inventory.write_text(args.part, out),
        Format::Json => inventory.write_json(args.part, out),
    })?;
    Ok(ExitCode::SUCCESS)
}
