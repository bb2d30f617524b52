//! Programs of crates that the build and the checks use, each in one version.

use std::{env, fs, path::PathBuf};

use anyhow::{Context as _, Result};

use crate::sh;

/// A program of a crate.
pub(crate) struct Tool {
    name: &'static str,
    version: &'static str,
    /// Whether to build it without optimisation: it has little to do.
    debug: bool,
    /// Options of `cargo install` beside these.
    options: &'static [&'static str],
}

/// The newest that links with the LLVM inside rustc 1.95; later ones want a system LLVM.
pub(crate) const BPF_LINKER: Tool = Tool {
    name: "bpf-linker",
    version: "0.10.3",
    debug: false,
    options: &[],
};

/// Licences, bans and sources of dependencies.
pub(crate) const CARGO_DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    debug: true,
    options: &["--no-default-features"],
};

/// Dependencies that nothing uses. Later ones want a newer rustc.
pub(crate) const CARGO_SHEAR: Tool = Tool {
    name: "cargo-shear",
    version: "1.11.2",
    debug: true,
    options: &[],
};

impl Tool {
    /// Installs it into target/tools, unless it is there or in cargo's own directory.
    pub(crate) fn provide(&self) -> Result<()> {
        let tools = sh::target_dir().join("tools");
        if [Some(tools.clone()), cargo_home()]
            .into_iter()
            .flatten()
            .any(|root| self.is_in(&root))
        {
            return Ok(());
        }
        let Self { name, version, .. } = self;
        println!("xtask: installing {name} {version} into target/tools (about a minute)");
        let mut install = sh::cargo();
        install
            .args(["install", "--locked", "--quiet", "--root"])
            .arg(&tools)
            .args(self.debug.then_some("--debug"))
            .args(self.options)
            .args(["--version", version, name])
            .env("CARGO_TARGET_DIR", tools.join("build"));
        sh::check(&mut install).with_context(|| format!("cannot install {name} {version}"))?;
        fs::remove_dir_all(tools.join("build")).context("cannot remove a tool's build files")
    }

    /// Whether `cargo install` put this version there, by its own list.
    fn is_in(&self, root: &std::path::Path) -> bool {
        let entry = format!("\"{} {} (", self.name, self.version);
        fs::read_to_string(root.join(".crates.toml")).is_ok_and(|list| list.contains(&entry))
    }
}

/// Where `cargo install` puts programs by itself, which is in PATH beside cargo.
fn cargo_home() -> Option<PathBuf> {
    let set = env::var_os("CARGO_HOME").map(PathBuf::from);
    set.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")))
}
