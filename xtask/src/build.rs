//! `cargo xtask build`: the eBPF object (by probe-user's build script) and the binary.

use std::path::PathBuf;

use anyhow::Result;

use crate::{setup, sh};

#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Optimised, for production and benchmarks
    #[arg(long)]
    pub(crate) release: bool,
    /// Another target triple, such as aarch64-unknown-linux-musl (static)
    #[arg(long, value_name = "TRIPLE")]
    pub(crate) target: Option<String>,
}

/// Builds and returns the path of the binary.
pub(crate) fn run(args: &Args) -> Result<PathBuf> {
    setup::run()?;
    let mut cargo = sh::cargo();
    cargo.args(["build", "--package", "probe-user"]);
    let mut binary = sh::target_dir();
    if let Some(target) = &args.target {
        cargo.args(["--target", target]);
        binary.push(target);
    }
    if args.release {
        cargo.arg("--release");
    }
    binary.push(if args.release { "release" } else { "debug" });
    sh::check(&mut cargo)?;
    Ok(binary.join("pmuscope"))
}
