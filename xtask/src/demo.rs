//! `cargo xtask demo`: shows a recorded node with NVIDIA Grace in `pmuscope top`, on any machine.

use std::{os::unix::process::CommandExt as _, process::Command};

use anyhow::{Context as _, Result};

use crate::{build, sh};

/// The recording.
const RECORDING: &str = "tests/fixtures/recordings/demo.jsonl";

pub(crate) fn run() -> Result<()> {
    let binary = build::run(&build::Args::default())?;
    let mut top = Command::new(&binary);
    top.args(["top", "--replay"])
        .arg(sh::root().join(RECORDING));
    Err(top.exec()).with_context(|| format!("cannot run {}", binary.display()))
}
