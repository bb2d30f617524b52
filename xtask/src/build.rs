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
    /// The build that is released: small and stripped
    #[arg(skip)]
    dist: bool,
}

impl Args {
    /// The build that `cargo xtask dist` packs.
    pub(crate) fn dist(target: &str) -> Self {
        Self {
            release: false,
            target: Some(target.to_owned()),
            dist: true,
        }
    }

    fn profile(&self) -> &'static str {
        match (self.dist, self.release) {
            (true, _) => "dist",
            (false, true) => "release",
            (false, false) => "dev",
        }
    }
}

/// Builds pmuscope; returns the path of the binary.
pub(crate) fn run(args: &Args) -> Result<PathBuf> {
    setup::run()?;
    let mut cargo = sh::cargo();
    cargo.args(["build", "--package", "probe-user"]);
    let mut binary = sh::target_dir();
    if let Some(target) = &args.target {
        cargo.args(["--target", target]);
        binary.push(target);
    }
    let profile = args.profile();
    cargo.args(["--profile", profile]);
    // cargo calls the directory of its dev profile `debug`.
    binary.push(if profile == "dev" { "debug" } else { profile });
    sh::check(&mut cargo)?;
    Ok(binary.join("pmuscope"))
}
