//! `cargo xtask soak`: an agent among 1,000 containers, with 100 more that come and go each second,
//! for ten minutes; then one that is killed a hundred times. The same tests run for a minute, and
//! for as many kills as there are in 15 s, in `cargo xtask test`.

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
    let of_package = ["--release", "--package", "probe-user"];
    let mut cargo = sh::cargo();
    cargo.arg("build").args(of_package);
    sh::check(cargo.args(["--bin", "pmuscope", "--example", "load"]))?;
    let mut cargo = sh::cargo();
    cargo.arg("test").args(of_package);
    cargo.args(["--test", "host", "soak::", "agent::kills::"]);
    cargo.args(["--", "--nocapture", "--test-threads=1"]);
    cargo.env("PMUSCOPE_SOAK", (60 * args.minutes).to_string());
    cargo.env("PMUSCOPE_KILLS", "100");
    sh::check(&mut cargo)
}
