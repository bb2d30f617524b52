//! Cargo programs that the build and the checks use, each pinned to a version. They are installed
//! in the user's cache, which all checkouts share.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::sh;

/// A program that `cargo install` builds.
pub(crate) struct CargoTool {
    name: &'static str,
    version: &'static str,
    /// Whether to build it without optimisation, because it does little work.
    debug: bool,
    /// Further options of `cargo install`.
    options: &'static [&'static str],
}

/// The newest version that links with the LLVM inside rustc 1.95; later ones need a system LLVM.
pub(crate) const BPF_LINKER: CargoTool = CargoTool {
    name: "bpf-linker",
    version: "0.10.3",
    debug: false,
    options: &[],
};

/// Checks licences, bans and sources of dependencies.
pub(crate) const CARGO_DENY: CargoTool = CargoTool {
    name: "cargo-deny",
    version: "0.20.2",
    debug: true,
    options: &["--no-default-features"],
};

/// Finds unused dependencies. Later versions need a newer rustc.
pub(crate) const CARGO_SHEAR: CargoTool = CargoTool {
    name: "cargo-shear",
    version: "1.11.2",
    debug: true,
    options: &[],
};

/// Runs each test in its own process. The host tests need that: some change global state of the
/// process, such as its log.
pub(crate) const CARGO_NEXTEST: CargoTool = CargoTool {
    name: "cargo-nextest",
    version: "0.9.143",
    debug: true,
    options: &["--no-default-features", "--features", "default-no-update"],
};

/// Mutates the sources. Other versions make other mutants.
pub(crate) const CARGO_MUTANTS: CargoTool = CargoTool {
    name: "cargo-mutants",
    version: "27.1.0",
    debug: false,
    options: &[],
};

impl CargoTool {
    /// Does nothing if cargo's own directory has the tool. Else installs it in the cache, unless it
    /// is there, and links it from target/tools, where [`sh::command`] and the build script of
    /// probe-user look for it.
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
        if fs::read_link(&link).is_ok_and(|linked| linked == program) {
            return Ok(());
        }
        // Removes a link to another version.
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

    /// The directory of this version: another checkout may need another version.
    fn root(&self) -> PathBuf {
        let name = format!("{}-{}", self.name, self.version);
        sh::cache().join("pmuscope-tools").join(name)
    }

    /// Whether cargo's list of installed programs in `root` has this version.
    fn is_in(&self, root: &Path) -> bool {
        let entry = format!("\"{} {} (", self.name, self.version);
        fs::read_to_string(root.join(".crates.toml")).is_ok_and(|list| list.contains(&entry))
    }
}

/// The directory where `cargo install` puts programs by default; its bin/ is in PATH, like cargo.
fn cargo_home() -> Option<PathBuf> {
    let from_env = env::var_os("CARGO_HOME").map(PathBuf::from);
    from_env.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")))
}
