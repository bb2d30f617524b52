//! `cargo xtask soak`: runs an agent for ten minutes among 1,000 containers, with 200 more that
//! start and end each second; then kills an agent a hundred times. `cargo xtask test` runs the same
//! tests for 90 s, and with as many kills as fit in 15 s, but at least 10.

use anyhow::Result;

use crate::{setup, sh};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long, in minutes
    #[arg(long, default_value_t = 10)]
    minutes: u32,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    setup::run()?;
    let package = ["--release", "--package", "probe-user"];
    let mut cargo = sh::cargo();
    cargo.arg("build").args(package);
    sh::check(cargo.args(["--bin", "pmuscope", "--example", "load"]))?;
    let mut cargo = sh::cargo();
    cargo.arg("test").args(package);
    cargo.args(["--test", "host", "--", "soak::", "agent::kills::"]);
    cargo.args(["--nocapture", "--test-threads=1"]);
    cargo.env("PMUSCOPE_SOAK", (60 * args.minutes).to_string());
    cargo.env("PMUSCOPE_KILLS", "100");
    sh::check(&mut cargo)
}
