//! `cargo xtask docs`: writes docs/metrics.md and docs/metrics/ from the catalogue of metrics. A
//! unit test of the catalogue fails when they are out of date.

use anyhow::{Context as _, Result};

use crate::{setup, sh};

/// Runs an example of probe-user that writes the pages. xtask cannot depend on probe-user: building
/// it needs bpf-linker, which xtask installs.
pub(crate) fn run() -> Result<()> {
    setup::run()?;
    let mut cargo = sh::cargo();
    cargo.args([
        "run",
        "--quiet",
        "--package",
        "probe-user",
        "--example",
        "metrics_md",
        "--",
    ]);
    cargo.arg(sh::root().join("docs"));
    sh::check(&mut cargo).context("cannot run the example metrics_md of probe-user")
}
