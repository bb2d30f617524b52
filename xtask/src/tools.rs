//! Programs of crates that the build and the checks use, each in one version. They are installed in
//! the user's cache, where every checkout finds them.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

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

/// Runs each test in a process of its own. The host tests need that: some change what a process has
/// once, such as its log.
pub(crate) const CARGO_NEXTEST: Tool = Tool {
    name: "cargo-nextest",
    version: "0.9.143",
    debug: true,
    options: &["--no-default-features", "--features", "default-no-update"],
};

/// Changes the sources in small ways; another version makes other changes.
pub(crate) const CARGO_MUTANTS: Tool = Tool {
    name: "cargo-mutants",
    version: "27.1.0",
    debug: false,
    options: &[],
};

impl Tool {
    /// Installs it, unless it is there or in cargo's own directory, and links it from target/tools,
    /// where [`sh::command`] and the build script of probe-user look.
    pub(crate) fn provide(&self) -> Result<()> {
        if cargo_home().is_some_and(|root| self.is_in(&root)) {
            return Ok(());
        }
        let root = self.root();
        if !self.is_in(&root) {
            self.install(&root)?;
        }
        let links = sh::target_dir().join("tools/bin");
        fs::create_dir_all(&links).with_context(|| format!("cannot make {}", links.display()))?;
        let (program, link) = (root.join("bin").join(self.name), links.join(self.name));
        if fs::read_link(&link).is_ok_and(|there| there == program) {
            return Ok(());
        }
        // That of another version.
        let _ = fs::remove_file(&link);
        symlink(&program, &link).with_context(|| format!("cannot make {}", link.display()))
    }

    fn install(&self, root: &Path) -> Result<()> {
        let Self { name, version, .. } = self;
        println!("xtask: installing {name} {version} into {}", root.display());
        let build = sh::target_dir().join("tool-build");
        let mut install = sh::cargo();
        install
            .args(["install", "--locked", "--root"])
            .arg(root)
            .args(self.debug.then_some("--debug"))
            .args(self.options)
            .args(["--version", version, name])
            .env("CARGO_TARGET_DIR", &build);
        sh::check(&mut install).with_context(|| format!("cannot install {name} {version}"))?;
        fs::remove_dir_all(&build).context("cannot remove a tool's build files")
    }

    /// Its own directory: another checkout may want another version.
    fn root(&self) -> PathBuf {
        let name = format!("{}-{}", self.name, self.version);
        sh::cache().join("pmuscope-tools").join(name)
    }

    /// Whether `cargo install` put this version there, by its own list.
    fn is_in(&self, root: &Path) -> bool {
        let entry = format!("\"{} {} (", self.name, self.version);
        fs::read_to_string(root.join(".crates.toml")).is_ok_and(|list| list.contains(&entry))
    }
}

/// Where `cargo install` puts programs by itself, which is in PATH beside cargo.
fn cargo_home() -> Option<PathBuf> {
    let set = env::var_os("CARGO_HOME").map(PathBuf::from);
    set.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")))
}
