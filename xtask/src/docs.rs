//! `cargo xtask docs`: writes docs/metrics.md from the catalogue of metrics.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::{setup, sh};

pub(crate) fn run() -> Result<()> {
    setup::run()?;
    let (path, text) = metrics()?;
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// An error where the file is not what the catalogue gives.
pub(crate) fn check() -> Result<()> {
    let (path, text) = metrics()?;
    let found = fs::read_to_string(&path).with_context(|| {
        format!(
            "cannot read {}; `cargo xtask docs` writes it",
            path.display()
        )
    })?;
    if found != text {
        bail!(
            "{} is not what the catalogue gives: run `cargo xtask docs`",
            path.display()
        );
    }
    Ok(())
}

/// Where the document is, and what it should be. The library that knows it builds the eBPF
/// programs too, so that xtask, which installs their linker, cannot depend on it.
fn metrics() -> Result<(PathBuf, String)> {
    let mut cargo = sh::cargo();
    cargo.args([
        "run",
        "--quiet",
        "--package",
        "probe-user",
        "--example",
        "metrics_md",
    ]);
    let text = sh::output(&mut cargo).context("cannot run the example metrics_md of probe-user")?;
    Ok((sh::root().join("docs/metrics.md"), text))
}
