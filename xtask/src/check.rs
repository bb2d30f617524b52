//! `cargo xtask check`: layers, fixed paths, formatting, lints, documentation, dependencies.

use anyhow::Result;

use crate::{deps, layers, paths, setup, sh};

pub(crate) fn run() -> Result<()> {
    setup::run()?;
    deps::check()?;
    layers::check()?;
    paths::check()?;
    sh::check(sh::cargo().args(["fmt", "--all", "--check"]))?;
    sh::check(sh::cargo().args(["clippy", "--all-targets", "--", "-D", "warnings"]))?;
    // Targets that `--all-targets` leaves out: the guests' tests do not run on this machine.
    let mut guests = sh::cargo();
    guests.args(["clippy", "--package", "probe-user", "--test", "vm"]);
    sh::check(guests.args(["--", "-D", "warnings"]))?;
    ebpf_lints()?;
    sh::check(
        sh::cargo()
            .args(["doc", "--no-deps", "--document-private-items"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

/// The eBPF crate only compiles for its own target, so it is linted there, with the flag that
/// `aya-build` gives it for each architecture.
fn ebpf_lints() -> Result<()> {
    for architecture in ["x86_64", "aarch64"] {
        let mut clippy = sh::cargo();
        clippy
            .args(["clippy", "--package", "probe-ebpf", "-Z", "build-std=core"])
            .args(["--target", "bpfel-unknown-none", "--", "-D", "warnings"])
            .env(
                "RUSTFLAGS",
                format!("--cfg=bpf_target_arch=\"{architecture}\""),
            )
            .env("RUSTC_BOOTSTRAP", "1");
        sh::check(&mut clippy)?;
    }
    Ok(())
}
