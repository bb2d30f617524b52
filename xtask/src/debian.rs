//! Debian packages that xtask's commands need on this machine: finds missing ones and installs
//! them.

use std::{env, fs, path::Path};

use anyhow::{Context as _, Result, bail};

use crate::sh;

/// A package and a file that it installs. A file name without a slash is searched in PATH.
pub(crate) type PackagedFile = (&'static str, &'static str);

/// The packages of `tools` that lack their file on this machine.
pub(crate) fn missing(tools: &[PackagedFile]) -> Vec<&'static str> {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_installed = |file: &str| {
        Path::new(file).exists() || env::split_paths(&path).any(|dir| dir.join(file).exists())
    };
    let missing = tools.iter().filter(|(_, file)| !is_installed(file));
    missing.map(|(package, _)| *package).collect()
}

/// The command that installs `packages`.
pub(crate) fn apt_line(packages: &[&str]) -> String {
    let packages = packages.join(" ");
    format!("apt-get install -y --no-install-recommends {packages}")
}

/// Whether this machine has apt.
pub(crate) fn has_apt() -> bool {
    sh::output(sh::command("apt-get").arg("--version")).is_some()
}

/// Installs `packages`.
///
/// # Errors
///
/// apt fails, or this user may not install packages; the message then has `need` and the command.
pub(crate) fn install(packages: &[&str], need: &str) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        bail!("{need}: sudo {}", apt_line(packages));
    }
    println!("xtask: installing {}", packages.join(" "));
    let apt = || {
        let mut apt = sh::command("apt-get");
        // Waits up to 5 minutes for another apt.
        apt.args(["-q", "-o", "DPkg::Lock::Timeout=300"]);
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        apt
    };
    // Lists may be absent or out of date, as in a fresh container. Errors are ignored: if a source
    // does not answer, the next command names the package that cannot be installed.
    let _ = sh::check(apt().arg("update"));
    let mut install = apt();
    install.args(["install", "-y", "--no-install-recommends"]);
    sh::check(install.args(packages))
}

/// This machine's Debian release, such as `bookworm`.
pub(crate) fn codename() -> Result<String> {
    let os_release =
        fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let mut lines = os_release.lines();
    let name = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.map(str::to_owned)
        .context("/etc/os-release names no release (VERSION_CODENAME)")
}

/// The Debian mirror in this machine's own apt sources.
pub(crate) fn mirror() -> Result<String> {
    let mut targets = sh::command("apt-get");
    targets.args(["indextargets", "--format"]);
    targets.args([
        "$(ORIGIN)|$(LABEL)|$(RELEASE)|$(REPO_URI)",
        "Created-By: Packages",
    ]);
    let targets = sh::output(&mut targets).context("`apt-get indextargets` does not answer")?;
    let codename = codename().ok();
    targets
        .lines()
        .find_map(|line| {
            let fields: Vec<_> = line.split('|').collect();
            match fields[..] {
                ["Debian", "Debian", _, uri] => Some(uri.to_string()),
                // Before the first `apt-get update`, apt does not know a source's origin.
                ["$(ORIGIN)", _, release, uri] if Some(release) == codename.as_deref() => {
                    Some(uri.to_string())
                }
                _ => None,
            }
        })
        .context(
            "no Debian mirror in this machine's apt sources: the guests' kernels and `cargo xtask \
             fresh` are made of Debian packages, add a source for Debian main",
        )
}
