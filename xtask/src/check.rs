//! `cargo xtask check`: layers, fixed paths, formatting, lints, documentation, dependencies.

use anyhow::Result;

use crate::{deps, layers, paths, setup, sh, stages::Stages, vm::Arch};

/// The target of the tests, so that the eBPF programs are built once for checks and tests.
const TARGET: [&str; 2] = ["--target", Arch::HOST.triple()];

pub(crate) fn run() -> Result<()> {
    Stages::run(|stages| {
        all(stages);
        Ok(())
    })
}

/// Every check, in stages.
pub(crate) fn all(stages: &Stages) {
    stages.stage("dependencies", || {
        setup::run()?;
        deps::check()
    });
    stages.stage("layers, paths, format", || {
        layers::check()?;
        paths::check()?;
        sh::check(sh::cargo().args(["fmt", "--all", "--check"]))
    });
    stages.stage("lints", || {
        // `--all-targets` leaves out the guest tests.
        for targets in [
            &["--all-targets"][..],
            &["--package", "probe-user", "--test", "vm"],
        ] {
            let mut clippy = sh::cargo();
            clippy.arg("clippy").args(targets).args(TARGET);
            sh::check(clippy.args(["--", "-D", "warnings"]))?;
        }
        Ok(())
    });
    stages.stage("lints of the eBPF programs", ebpf_lints);
    stages.stage("documentation", || {
        sh::check(
            sh::cargo()
                .arg("doc")
                .args(TARGET)
                .args(["--no-deps", "--document-private-items"])
                .env("RUSTDOCFLAGS", "-D warnings"),
        )
    });
}

/// Lints the eBPF crate for its own target, the only one it compiles for, with the flag that
/// `aya-build` passes for each architecture.
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
