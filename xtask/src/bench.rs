//! `cargo xtask bench`: timing, compared within one run as ratios; never part of a test.

use anyhow::{Result, bail};

use crate::build;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only benchmarks whose name contains this
    filter: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let binary = build::run(&build::Args {
        release: true,
        target: None,
    })?;
    bail!(
        "no benchmark matches {:?} for {}",
        args.filter,
        binary.display()
    )
}
