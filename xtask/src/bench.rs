//! `cargo xtask bench`: runs the benchmarks, which compare times within one run as ratios. They are
//! never part of a test.

use anyhow::Result;

use crate::{setup, sh};

/// The benchmarks of probe-user.
const BENCHES: [&str; 10] = [
    "switch",
    "rotate",
    "sample",
    "window",
    "derive",
    "shares",
    "mem_record",
    "marker",
    "page",
    "spe",
];

const SELECTED: [&str; 4] = ["--package", "probe-user", "--profile", "release"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// One benchmark; all without
    #[arg(value_parser = BENCHES)]
    name: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let wanted = |name: &str| args.name.as_deref().is_none_or(|wanted| wanted == name);
    setup::run()?;
    // The load that benchmarks put on the machine is a separate program.
    let mut cargo = sh::cargo();
    cargo.arg("build").args(SELECTED);
    sh::check(cargo.args(["--example", "load"]))?;
    for name in BENCHES.into_iter().filter(|name| wanted(name)) {
        let mut cargo = sh::cargo();
        cargo.arg("bench").args(SELECTED);
        sh::check(cargo.args(["--bench", name]))?;
    }
    Ok(())
}
