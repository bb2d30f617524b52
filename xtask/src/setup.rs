//! `cargo xtask setup`: installs what the build needs, and does nothing where it is there.

use anyhow::{Context as _, Result};

use crate::sh;

/// The newest bpf-linker that links with the LLVM inside rustc 1.95; later ones want a system LLVM.
const BPF_LINKER: &str = "0.10.3";

pub(crate) fn run() -> Result<()> {
    toolchain()?;
    bpf_linker()
}

/// rust-toolchain.toml names the components and targets; rustup installs what is missing of them.
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

fn bpf_linker() -> Result<()> {
    let wanted = format!("bpf-linker {BPF_LINKER}");
    let found = sh::output(sh::command("bpf-linker").arg("--version"));
    if found.is_some_and(|version| version.trim() == wanted) {
        return Ok(());
    }
    println!("xtask: installing {wanted} into target/tools (about a minute)");
    let tools = sh::target_dir().join("tools");
    let mut install = sh::cargo();
    install
        .args(["install", "--locked", "--quiet", "--root"])
        .arg(&tools)
        .args(["--version", BPF_LINKER, "bpf-linker"])
        .env("CARGO_TARGET_DIR", tools.join("build"));
    sh::check(&mut install).with_context(|| format!("cannot install {wanted}"))?;
    std::fs::remove_dir_all(tools.join("build")).context("cannot remove the linker's build files")
}
