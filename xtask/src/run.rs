//! `cargo xtask run -- ARGS`: builds pmuscope, then executes `pmuscope ARGS` in place of xtask.

use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command};

use anyhow::{Context as _, Result};

use crate::build;

#[derive(clap::Args)]
// `build::Args` already has a group of this name.
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    build: build::Args,
    /// Arguments of pmuscope, after `--`
    #[arg(last = true)]
    args: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let binary = build::run(&args.build)?;
    // Counting needs CAP_BPF and CAP_PERFMON, which a developer has through sudo.
    let mut command = if rustix::process::geteuid().is_root() {
        Command::new(&binary)
    } else {
        eprintln!("xtask: counting needs CAP_BPF and CAP_PERFMON, running pmuscope through sudo");
        let mut sudo = Command::new("sudo");
        sudo.arg(&binary);
        sudo
    };
    let error = command.args(&args.args).exec();
    Err(error).with_context(|| format!("cannot run {}", binary.display()))
}
