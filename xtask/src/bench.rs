//! `cargo xtask bench`: timing, compared within one run as ratios; never part of a test.

use anyhow::Result;

use crate::{setup, sh};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// One benchmark by name (switch); all without
    name: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    setup::run()?;
    let profile = ["--profile", "release"];
    sh::check(
        sh::cargo()
            .args(["build", "--package", "probe-user", "--example", "load"])
            .args(profile),
    )?;
    let mut cargo = sh::cargo();
    cargo
        .args(["bench", "--package", "probe-user"])
        .args(profile);
    match &args.name {
        Some(name) => cargo.args(["--bench", name]),
        None => cargo.arg("--benches"),
    };
    sh::check(&mut cargo)
}
