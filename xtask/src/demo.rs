//! `cargo xtask demo`: shows a recorded node with NVIDIA Grace in `pmuscope top`, on any machine.

use std::{os::unix::process::CommandExt as _, path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

use crate::{build, sh};

/// The recording that the demo shows.
pub(crate) fn recording() -> PathBuf {
    sh::root().join("tests/fixtures/recordings/demo.jsonl")
}

pub(crate) fn run() -> Result<()> {
    let binary = build::run(&build::Args::default())?;
    let mut top = Command::new(&binary);
    top.args(["top", "--replay"]).arg(recording());
    Err(top.exec()).with_context(|| format!("cannot run {}", binary.display()))
}
