//! Builds our test kernel modules (tests/vm/kmod) for a guest's kernel.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{
    buildroot,
    packages::{Arch, Kernel},
};
use crate::sh;

/// The sources, relative to the workspace root.
const SOURCES: &str = "tests/vm/kmod";

/// Builds the modules for `kernel`, with its packages unpacked in `root`; returns the files of
/// the modules and the self-check program.
///
/// Kbuild writes next to the sources, so each kernel has its own copy. Sources that were built
/// before are not built again.
pub(super) fn build(root: &Path, kernel: &Kernel) -> Result<Vec<PathBuf>> {
    let release = kernel.release();
    let files = read_sources(&sh::root().join(SOURCES))?;
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    // The hash separates the sources of different checkouts.
    let relative = format!("kmod/{release}-{:016x}", hasher.finish());
    // The path as programs in the root see it.
    let inside = Path::new("/").join(&relative);
    let copy = root.join(&relative);
    let built = copy.join(".built");
    if !built.exists() {
        println!("xtask: building {SOURCES} for {release}");
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        for (name, text) in files {
            let file = copy.join(name);
            fs::create_dir_all(file.parent().unwrap_or(&copy))?;
            fs::write(file, text)?;
        }
        let mut make = buildroot::command(root, "make");
        make.args(["--silent", "--no-print-directory", "-C"]);
        make.arg(format!("/usr/src/linux-headers-{release}"));
        make.arg(format!("M={}", inside.display()));
        make.arg(format!("ARCH={}", kernel.arch.kbuild()));
        if kernel.arch != Arch::HOST {
            make.arg(format!("CROSS_COMPILE={}", kernel.arch.gnu()));
        }
        sh::check(make.arg("modules"))
            .with_context(|| format!("{SOURCES} does not build for {release}"))?;
        selftest(root, &copy, &inside, kernel.arch)?;
        fs::write(&built, "")?;
    }
    let mut modules = entries(&copy)?;
    let wanted = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "ko") || path.ends_with(SELFTEST)
    };
    modules.retain(wanted);
    modules.sort();
    Ok(modules)
}

/// The static self-check program of the modules.
pub(super) const SELFTEST: &str = "selftest";

fn selftest(root: &Path, copy: &Path, inside: &Path, arch: Arch) -> Result<()> {
    let mut gcc = buildroot::command(root, &buildroot::gcc(arch));
    gcc.args(["-static", "-O2", "-o"])
        .arg(inside.join(SELFTEST));
    let sources = entries(copy)?.into_iter().filter_map(|path| {
        let name = path.file_name()?.to_str()?;
        (name.starts_with(SELFTEST) && name.ends_with(".c")).then(|| inside.join(name))
    });
    gcc.args(sources);
    sh::check(&mut gcc).context("the self-check of the test modules does not build")
}

/// Path below `dir` and content of every source, in order, without build products.
fn read_sources(dir: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(below) = pending.pop() {
        for path in entries(&dir.join(&below))? {
            let name = below.join(path.file_name().unwrap_or_default());
            if path.is_dir() {
                pending.push(name);
            } else if is_source(&name) {
                let text =
                    fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
                files.insert(name, text);
            }
        }
    }
    Ok(files)
}

fn is_source(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let extension = path.extension().and_then(OsStr::to_str);
    let is_code = matches!(extension, Some("c" | "h" | "S"));
    matches!(&*name, "Makefile" | "Kbuild") || is_code && !name.ends_with(".mod.c")
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}
