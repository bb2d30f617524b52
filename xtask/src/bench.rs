//! `cargo xtask bench`: timing, compared within one run as ratios; never part of a test.

use anyhow::{Result, ensure};

use crate::{setup, sh};

/// Each benchmark and the package it belongs to.
const BENCHES: [(&str, &str); 9] = [
    ("switch", "probe-user"),
    ("rotate", "probe-user"),
    ("sample", "probe-user"),
    ("window", "probe-user"),
    ("derive", "probe-user"),
    ("mem_record", "probe-user"),
    ("marker", "probe-user"),
    ("page", "probe-user"),
    ("spe", "probe-common"),
];

const PROFILE: [&str; 2] = ["--profile", "release"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// One benchmark by name (switch, rotate, sample, window, derive, `mem_record`, marker, page,
    /// spe); all without
    name: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let wanted = |name: &str| args.name.as_deref().is_none_or(|wanted| wanted == name);
    let chosen: Vec<_> = BENCHES.iter().filter(|(name, _)| wanted(name)).collect();
    ensure!(
        !chosen.is_empty(),
        "there is no benchmark {}; the benchmarks are {}",
        args.name.as_deref().unwrap_or_default(),
        BENCHES.map(|(name, _)| name).join(" and ")
    );
    setup::run()?;
    for (name, package) in chosen {
        if *package == "probe-user" {
            // The load that the benchmark puts on the machine is a program of its own.
            let mut cargo = sh::cargo();
            cargo.args(["build", "--package", package, "--example", "load"]);
            sh::check(cargo.args(PROFILE))?;
        }
        let mut cargo = sh::cargo();
        cargo.args(["bench", "--package", package, "--bench", name]);
        sh::check(cargo.args(PROFILE))?;
    }
    Ok(())
}
