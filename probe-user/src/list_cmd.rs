//! `pmuscope list`: what this machine can count.

use std::{path::Path, process::ExitCode};

use anyhow::Result;
use probe_user::{
    event::Pmus,
    list::{Inventory, Part},
};

use crate::print::{Format, to_stdout};

/// Arguments of `list`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to list; everything where it is not given
    #[arg(value_enum)]
    part: Option<Part>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let pmus = Pmus::read(Path::new("/sys"))?;
    let inventory = Inventory::of_this_machine(&pmus);
    to_stdout(|out| match args.format {
        Format::Table => inventory.write_text(args.part, out),
        Format::Json => inventory.write_json(args.part, out),
    })?;
    Ok(ExitCode::SUCCESS)
}
