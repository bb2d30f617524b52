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
    /// Builds the binaries that run in guests of these architectures, in one call of cargo: it
    /// compiles crates of one architecture while crates of the other wait for their dependencies.
    pub(crate) fn for_guests(
        archs: impl IntoIterator<Item = Arch>,
    ) -> Result<BTreeMap<Arch, Self>> {
        let mut cargo = sh::cargo();
        // Under emulation, unoptimised code costs more time to run than optimised code to build.
        cargo.args(["--config", "profile.dev.opt-level=1"]);
        cargo.arg("build").args(PACKAGES);
        let mut binaries = BTreeMap::new();
        for arch in archs {
            cargo.args(["--target", arch.triple()]);
            let paths = BTreeMap::new();
            binaries.insert(arch, Self { arch, paths });
        }
        cargo.args(["--bin", "pmuscope", "--example", "load"]);
        cargo.args(["--test", "vm", "--test", "host"]);
        cargo.arg("--message-format=json-render-diagnostics");
        // Progress, warnings and errors go to the terminal; the list of files is read here.
        let output = cargo
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start cargo")?;
        if !output.status.success() {
            bail!("the guests' binaries do not build: cargo says why above");
        }
        for (name, path) in output
            .stdout
            .split(|byte| *byte == b'\n')
            .filter_map(executable)
        {
            let mut built = binaries.values_mut();
            if let Some(of_arch) = built.find(|it| path.iter().any(|dir| dir == it.arch.triple())) {
                of_arch.paths.insert(name, path);
            }
        }
        Ok(binaries)
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
