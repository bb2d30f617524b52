//! The static binaries that run in guests: pmuscope, the loads and test binaries. A host test also
//! runs this pmuscope in a container.

use std::{collections::BTreeMap, path::PathBuf, process::Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{sh, vm::Arch};

/// The packages with tests. Cargo unifies features over the selected packages, so the same
/// selection in every call builds each dependency only once.
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
    /// Paths by target name.
    paths: BTreeMap<String, PathBuf>,
}

impl Binaries {
    /// Builds the binaries that run in guests of an architecture.
    pub(crate) fn for_guests(arch: Arch) -> Result<Self> {
        let mut cargo = sh::cargo();
        // Under emulation, unoptimised code costs more time to run than optimised code to build.
        cargo.args(["--config", "profile.dev.opt-level=1"]);
        cargo.arg("build").args(PACKAGES);
        cargo.args(["--target", arch.triple(), "--bin", "pmuscope"]);
        cargo.args(["--example", "load", "--test", "vm", "--test", "host"]);
        cargo.arg("--message-format=json-render-diagnostics");
        // Progress, warnings and errors go to the terminal; the list of files is read here.
        let output = cargo
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start cargo")?;
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

/// Target name and path, if a line of cargo's messages is about an executable.
fn executable(line: &[u8]) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_slice(line).ok()?;
    let path = message.get("executable")?.as_str()?;
    let name = message.get("target")?.get("name")?.as_str()?;
    Some((name.to_string(), path.into()))
}
