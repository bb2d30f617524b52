//! The static binaries that run in the guests: pmuscope, the loads, probe-user's test binaries.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::Stdio,
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::{boots::Boot, packages::Arch};
use crate::sh;

/// Paths by architecture and name of the target.
pub(super) struct Binaries(BTreeMap<(Arch, String), PathBuf>);

impl Binaries {
    /// Builds what `boots` run, for each of their architectures.
    pub(super) fn build(boots: &[&Boot]) -> Result<Self> {
        let mut wanted: BTreeMap<Arch, BTreeSet<&str>> = BTreeMap::new();
        for boot in boots {
            let names = boot.tests.iter().map(|tests| tests.binary);
            wanted.entry(boot.arch).or_default().extend(names);
        }
        let mut paths = BTreeMap::new();
        for (arch, tests) in wanted {
            let mut cargo = sh::cargo();
            cargo.args(["build", "--quiet", "--package", "probe-user"]);
            cargo.args(["--profile", "guest", "--target", arch.triple()]);
            cargo.args(["--bin", "pmuscope", "--example", "load"]);
            for test in tests {
                cargo.args(["--test", test]);
            }
            cargo.arg("--message-format=json-render-diagnostics");
            // Errors and warnings go to the terminal, the list of files comes here.
            let output = cargo.stderr(Stdio::inherit()).output();
            let output = output.context("cannot start cargo")?;
            if !output.status.success() {
                bail!("the guests' binaries do not build for {}", arch.triple());
            }
            for line in output.stdout.split(|byte| *byte == b'\n') {
                if let Some((name, path)) = executable(line) {
                    paths.insert((arch, name), path);
                }
            }
        }
        Ok(Self(paths))
    }

    pub(super) fn get(&self, arch: Arch, name: &str) -> Result<&PathBuf> {
        let path = self.0.get(&(arch, name.to_string()));
        path.with_context(|| format!("cargo built no {name} for {}", arch.triple()))
    }
}

/// Target name and path, where a line of cargo's messages is about an executable.
fn executable(line: &[u8]) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_slice(line).ok()?;
    let path = message.get("executable")?.as_str()?;
    let name = message.get("target")?.get("name")?.as_str()?;
    Some((name.to_string(), path.into()))
}
