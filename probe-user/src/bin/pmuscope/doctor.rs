//! `pmuscope doctor`: what counting can use on this machine, what is missing, and the remedies.

use std::{process::ExitCode, sync::Arc};

use anyhow::Result;
use probe_user::{
    doctor::{Subject, examine},
    machine::Machine,
};

use crate::print::{Format, to_stdout};

/// Arguments of `doctor`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// The exit code is 0 if counting per container can work, and 1 if it cannot.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let diagnosis = examine(&Subject::this(Arc::new(Machine::this())));
    to_stdout(|out| match args.format {
        Format::Table => diagnosis.write_text(out),
        Format::Json => diagnosis.write_json(out),
    })?;
    Ok(ExitCode::from(u8::from(!diagnosis.counting_works())))
}
