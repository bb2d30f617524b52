//! `cargo xtask docs`: writes docs/reference/metrics.md and docs/reference/metrics/ from the
//! catalogue of metrics, docs/reference/self-counters.md from the declarations of the
//! self-counters, and deploy/man and deploy/completions from the declarations of the options. Tests
//! fail when these files are out of date.

use std::{fs, process::Command};

use anyhow::{Context as _, Result};

use crate::{setup, sh};

/// A shell, the name of its completions, and where a package installs them.
pub(crate) const COMPLETIONS: [(&str, &str, &str); 3] = [
    (
        "bash",
        "pmuscope",
        "usr/share/bash-completion/completions/pmuscope",
    ),
    (
        "fish",
        "pmuscope.fish",
        "usr/share/fish/vendor_completions.d/pmuscope.fish",
    ),
    (
        "zsh",
        "_pmuscope",
        "usr/share/zsh/vendor-completions/_pmuscope",
    ),
];

/// Runs an example and the binary of probe-user, which write the files. xtask cannot depend on
/// probe-user: building it needs bpf-linker, which xtask installs.
pub(crate) fn run() -> Result<()> {
    setup::run()?;
    let metrics = &mut probe_user(["--example", "metrics_md"]);
    sh::check(metrics.arg(sh::root().join("docs/reference")))
        .context("cannot run the example metrics_md of probe-user")?;
    let pmuscope = || probe_user(["--bin", "pmuscope"]);
    let deploy = sh::root().join("deploy");
    let man = deploy.join("man");
    // Removes pages of commands that no longer exist.
    fs::remove_dir_all(&man).with_context(|| format!("cannot empty {}", man.display()))?;
    sh::check(pmuscope().args(["man", "--directory"]).arg(&man))
        .context("cannot write the manual")?;
    for (shell, name, _) in COMPLETIONS {
        let script = sh::output(pmuscope().args(["completions", shell]));
        let script = script.with_context(|| format!("no completions for {shell}"))?;
        let path = deploy.join("completions").join(name);
        fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// A command that runs a program of probe-user.
fn probe_user(program: [&str; 2]) -> Command {
    let mut cargo = sh::cargo();
    cargo.args(["run", "--quiet", "--package", "probe-user"]);
    cargo.args(program).arg("--");
    cargo
}
