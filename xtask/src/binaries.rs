//! The static binaries that run in guests: pmuscope, the loads, test binaries. A test on this machine
//! runs the first of these in a container.

use std::{collections::BTreeMap, path::PathBuf, process::Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{sh, vm::Arch};

/// The packages with tests. Cargo unites the features of the selected packages: the same selection
/// in each call builds each dependency once.
pub(crate) const PACKAGES: [&str; 6] = [
    "--package",
    "probe-common",
    "--package",
    "probe-user",
    "--package",
    "xtask",
];

/// Binaries of one architecture.
pub(crate) struct Binaries {
    arch: Arch,
    /// Paths by the name of the target.
    paths: BTreeMap<String, PathBuf>,
}

impl Binaries {
    /// Builds what runs in guests of an architecture.
    pub(crate) fn of_guests(arch: Arch) -> Result<Self> {
        let mut cargo = sh::cargo();
        // Emulated, unoptimised code takes longer to run than optimised code to build.
        cargo.args(["--config", "profile.dev.opt-level=1"]);
        cargo.arg("build").args(PACKAGES);
        cargo.args(["--target", arch.triple(), "--bin", "pmuscope"]);
        cargo.args(["--example", "load", "--test", "vm", "--test", "host"]);
        cargo.arg("--message-format=json-render-diagnostics");
        // Progress, warnings and errors go to the terminal, the list of files comes here.
        let output = cargo.stderr(Stdio::inherit()).output();
        let output = output.context("cannot start cargo")?;
        if !output.status.success() {
            bail!(
                "the guests' binaries do not build for {}: cargo says why above",
                arch.triple()
            );
        }
        let lines = output.stdout.split(|byte| *byte == b'\n');
        let paths = lines.filter_map(executable).collect();
        Ok(Self { arch, paths })
    }

    pub(crate) fn get(&self, name: &str) -> Result<&PathBuf> {
        let path = self.paths.get(name);
        path.with_context(|| format!("cargo built no {name} for {}", self.arch.triple()))
    }
}

/// Target name and path, where a line of cargo's messages is about an executable.
fn executable(line: &[u8]) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_slice(line).ok()?;
    let path = message.get("executable")?.as_str()?;
    let name = message.get("target")?.get("name")?.as_str()?;
    Some((name.to_string(), path.into()))
}
