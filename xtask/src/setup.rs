//! `cargo xtask setup`: installs what the build needs, and does nothing where it is there.

use anyhow::{Context as _, Result};

use crate::{sh, tools::BPF_LINKER};

pub(crate) fn run() -> Result<()> {
    toolchain()?;
    BPF_LINKER.provide()
}

/// Has rustup install the components and targets of rust-toolchain.toml that are missing.
fn toolchain() -> Result<()> {
    let mut rustup = sh::command("rustup");
    rustup.args(["component", "list", "--installed"]);
    let components = sh::output(&mut rustup)
        .context("rustup does not answer: install rustup, pmuscope pins its toolchain with it")?;
    let mut rustup = sh::command("rustup");
    rustup.args(["target", "list", "--installed"]);
    let targets = sh::output(&mut rustup).unwrap_or_default();
    let installed = |list: &str, name: &str| list.lines().any(|line| line.starts_with(name));

    for component in ["rust-src", "rustfmt", "clippy"] {
        if !installed(&components, component) {
            sh::check(sh::command("rustup").args(["component", "add", component]))?;
        }
    }
    for target in ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"] {
        if !installed(&targets, target) {
            sh::check(sh::command("rustup").args(["target", "add", target]))?;
        }
    }
    Ok(())
}
