//! `cargo xtask bench`: timing, compared within one run as ratios; never part of a test.

use anyhow::{Result, ensure};

use crate::{setup, sh};

/// The benchmarks of probe-user.
const BENCHES: [&str; 9] = [
    "switch",
    "rotate",
    "sample",
    "window",
    "derive",
    "mem_record",
    "marker",
    "page",
    "spe",
];

const SELECTED: [&str; 4] = ["--package", "probe-user", "--profile", "release"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// One benchmark by name (switch, rotate, sample, window, derive, `mem_record`, marker, page,
    /// spe); all without
    name: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let wanted = |name: &str| args.name.as_deref().is_none_or(|wanted| wanted == name);
    let chosen: Vec<_> = BENCHES.into_iter().filter(|name| wanted(name)).collect();
    ensure!(
        !chosen.is_empty(),
        "there is no benchmark {}; the benchmarks are {}",
        args.name.as_deref().unwrap_or_default(),
        BENCHES.join(" and ")
    );
    setup::run()?;
    // The load that benchmarks put on the machine is a separate program.
    let mut cargo = sh::cargo();
    cargo.arg("build").args(SELECTED);
    sh::check(cargo.args(["--example", "load"]))?;
    for name in chosen {
        let mut cargo = sh::cargo();
        cargo.arg("bench").args(SELECTED);
        sh::check(cargo.args(["--bench", name]))?;
    }
    Ok(())
}
