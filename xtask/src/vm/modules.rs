//! Debian's kernel modules for a guest, in the order to load them.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, Result, bail};

use crate::sh;

pub(super) struct Module {
    pub(super) name: String,
    /// Decompressed, since busybox's insmod passes the file to the kernel unchanged.
    pub(super) content: Vec<u8>,
}

/// The modules `names` of the kernel `release` unpacked in `tree`, each after its dependencies.
pub(super) fn with_dependencies(tree: &Path, release: &str, names: &[&str]) -> Result<Vec<Module>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    // Debian makes this index when it installs the package; here the package is only unpacked.
    let directory = tree.join("lib/modules").join(release);
    if !directory.join("modules.dep.bin").exists() {
        sh::check(sh::command("/sbin/depmod").arg("-b").arg(tree).arg(release))?;
    }
    let mut seen = BTreeSet::new();
    let mut modules = Vec::new();
    for name in names {
        let mut modprobe = sh::command("/sbin/modprobe");
        modprobe.arg("-d").arg(tree).args(["-S", release]);
        let depends = sh::output(modprobe.args(["--show-depends", name]))
            .with_context(|| format!("{release} has no module {name}"))?;
        // `insmod PATH OPTIONS` or `builtin NAME`.
        for path in depends
            .lines()
            .filter_map(|line| line.strip_prefix("insmod "))
        {
            let path = Path::new(path.split(' ').next().unwrap_or_default());
            if seen.insert(path.to_path_buf()) {
                modules.push(read(path)?);
            }
        }
    }
    Ok(modules)
}

fn read(path: &Path) -> Result<Module> {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let (name, compressed) = match file.split_once(".ko") {
        Some((name, "")) => (name, false),
        Some((name, ".xz")) => (name, true),
        _ => bail!("{} is compressed in an unknown way", path.display()),
    };
    let content = if compressed {
        let mut xz = sh::command("xz");
        let output = xz
            .arg("-dc")
            .arg(path)
            .output()
            .context("cannot start xz")?;
        if !output.status.success() {
            bail!("xz cannot read {}", path.display());
        }
        output.stdout
    } else {
        fs::read(path).with_context(|| format!("cannot read {}", path.display()))?
    };
    Ok(Module {
        name: name.to_string(),
        content,
    })
}
