//! `cargo xtask setup`: installs the tools that the build needs and that are missing.

use anyhow::{Context as _, Result};

use crate::{
    debian::{self, PackagedFile},
    sh,
    stages::Stages,
    tools::BPF_LINKER,
};

pub(crate) fn run() -> Result<()> {
    toolchain()?;
    BPF_LINKER.provide()
}

/// Runs [`run`] as a stage and installs the Debian packages of `programs`, if this machine can. A
/// test that misses a program says that it was skipped.
///
/// # Errors
///
/// The stage failed, so that nothing can be built.
pub(crate) fn set_up(stages: &Stages, programs: &[PackagedFile]) -> Result<()> {
    let done = stages.stage("set-up", || {
        run()?;
        let missing = debian::missing(programs);
        if !rustix::process::geteuid().is_root() {
            println!(
                "xtask: not root: the tests that load eBPF programs will say they were skipped; \
                 run `sudo -E env PATH=$PATH cargo xtask test` for all of them"
            );
        } else if debian::has_apt() {
            return debian::install(&missing, "");
        }
        if !missing.is_empty() {
            println!(
                "xtask: tests that use {} will say they were skipped",
                missing.join(", ")
            );
        }
        Ok(())
    });
    done.context("the machine could not be set up")
}

/// Installs the missing components and targets of rust-toolchain.toml by rustup.
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
