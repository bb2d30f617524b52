//! `cargo xtask docs`: writes docs/metrics.md and docs/metrics/ from the catalogue of metrics, and
//! deploy/man and deploy/completions from the declarations of the options. Tests fail when they are
//! out of date.

use std::fs;

use anyhow::{Context as _, Result};

use crate::{setup, sh};

/// Runs an example of probe-user that writes the pages. xtask cannot depend on probe-user: building
/// it needs bpf-linker, which xtask installs.
pub(crate) fn run() -> Result<()> {
    setup::run()?;
    let mut cargo = sh::cargo();
    cargo.args([
        "run",
        "--quiet",
        "--package",
        "probe-user",
        "--example",
        "metrics_md",
        "--",
    ]);
    cargo.arg(sh::root().join("docs"));
    sh::check(&mut cargo).context("cannot run the example metrics_md of probe-user")?;
    let deploy = sh::root().join("deploy");
    let man = deploy.join("man");
    // Pages of earlier verbs go.
    fs::remove_dir_all(&man).with_context(|| format!("cannot empty {}", man.display()))?;
    sh::check(pmuscope().args(["man", "--directory"]).arg(&man))
        .context("cannot write the manual")?;
    for (shell, name) in COMPLETIONS {
        let script = sh::output(pmuscope().args(["completions", shell]));
        let script = script.with_context(|| format!("no completions for {shell}"))?;
        let path = deploy.join("completions").join(name);
        fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Shells, and the names under which they look for completions of pmuscope.
pub(crate) const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "pmuscope"),
    ("fish", "pmuscope.fish"),
    ("zsh", "_pmuscope"),
];

fn pmuscope() -> std::process::Command {
    let mut cargo = sh::cargo();
    cargo.args([
        "run",
        "--quiet",
        "--package",
        "probe-user",
        "--bin",
        "pmuscope",
        "--",
    ]);
    cargo
}
