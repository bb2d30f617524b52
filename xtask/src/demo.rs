//! `cargo xtask demo`: shows a recorded node with NVIDIA Grace in `pmuscope top`, on any machine.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::process::CommandExt as _,
    process::Command,
};

use anyhow::{Context as _, Result};
use flate2::{Compression, write::GzEncoder};

use crate::{build, sh};

/// The recording, as the fixtures are kept.
const RECORDING: &str = "tests/fixtures/recordings/demo.jsonl";

pub(crate) fn run() -> Result<()> {
    let binary = build::run(&build::Args::default())?;
    let packed = sh::root().join("target/demo.jsonl.gz");
    let lines = fs::read(sh::root().join(RECORDING)).context("cannot read the recording")?;
    let file =
        File::create(&packed).with_context(|| format!("cannot write {}", packed.display()))?;
    let mut packer = GzEncoder::new(file, Compression::default());
    packer.write_all(&lines)?;
    packer.finish()?;
    let error = Command::new(&binary)
        .args(["top", "--replay"])
        .arg(&packed)
        .exec();
    Err(error).with_context(|| format!("cannot run {}", binary.display()))
}
