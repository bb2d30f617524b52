//! The static binaries that tests run: pmuscope, the loads, and test binaries, for this machine and
//! for guests. This machine's are the same ones, so that dependencies are built once for both, and
//! host tests run with the C library that is handed out.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{sh, vm::Arch};

/// The packages whose tests run on this machine.
const PACKAGES: [&str; 3] = ["probe-common", "probe-user", "xtask"];

/// Binaries of one architecture.
pub(crate) struct Binaries {
    arch: Arch,
    /// Paths by the name of the target.
    paths: BTreeMap<String, PathBuf>,
}

/// Adds the options with which every call of cargo builds or runs the same tests on this machine.
pub(crate) fn host_tests<'a>(cargo: &'a mut Command, profile: &str) -> &'a mut Command {
    cargo.args([profile, "tests", "--target", Arch::HOST.triple()]);
    for package in PACKAGES {
        cargo.args(["--package", package]);
    }
    cargo
}

impl Binaries {
    /// Builds what runs in guests of an architecture; for that of this machine also its own tests.
    pub(crate) fn of_guests(arch: Arch) -> Result<Self> {
        let mut binaries = Self {
            arch,
            paths: BTreeMap::new(),
        };
        let mut cargo = sh::cargo();
        if arch == Arch::HOST {
            host_tests(cargo.arg("build"), "--profile");
            binaries.build(cargo.args(["--bins", "--examples", "--tests"]))?;
            // `--tests` leaves it out, also beside this.
            let mut cargo = sh::cargo();
            host_tests(cargo.arg("build"), "--profile");
            binaries.build(cargo.args(["--test", "vm"]))?;
        } else {
            cargo.args(["build", "--package", "probe-user", "--profile", "tests"]);
            cargo.args(["--target", arch.triple(), "--bin", "pmuscope"]);
            cargo.args(["--example", "load", "--test", "vm", "--test", "host"]);
            binaries.build(&mut cargo)?;
        }
        Ok(binaries)
    }

    fn build(&mut self, cargo: &mut Command) -> Result<()> {
        cargo.arg("--message-format=json-render-diagnostics");
        // Progress, warnings and errors go to the terminal, the list of files comes here.
        let output = cargo.stderr(Stdio::inherit()).output();
        let output = output.context("cannot start cargo")?;
        if !output.status.success() {
            bail!(
                "the tests do not build for {}: cargo says why above",
                self.arch.triple()
            );
        }
        let lines = output.stdout.split(|byte| *byte == b'\n');
        self.paths.extend(lines.filter_map(executable));
        Ok(())
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
    let target = message.get("target")?;
    let is_unit_test = message.get("profile")?.get("test")?.as_bool()?
        && target.get("kind")?.get(0)?.as_str()? != "test";
    let name = target.get("name")?.as_str()?;
    (!is_unit_test).then(|| (name.to_string(), path.into()))
}
