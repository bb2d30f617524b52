//! `cargo xtask deploy`: the tests of deploy/ (tests/deploy, in Python): the chart by Helm's own
//! engine, objects by Kubernetes' schemas, rules and dashboards by Prometheus, which also scrapes a
//! running agent.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail};

use crate::{
    build,
    debian::{self, Tool},
    sh,
};

/// What the tests start.
const PROGRAMS: &[Tool] = &[("prometheus", "promtool"), ("python3", "python3")];

#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Write deploy/kubernetes.yaml from the chart first
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let need = "the tests of deploy/ need Prometheus and Python";
    debian::install(&debian::missing(PROGRAMS), need)?;
    let python = environment()?;
    if args.write {
        sh::check(sh::command(&python).arg("tests/deploy/manifest.py"))?;
    }
    let pmuscope = build::run(&build::Args::default())?;
    let mut tests = sh::command(&python);
    tests.args(["-m", "unittest", "discover", "--start-directory"]);
    tests.arg("tests/deploy");
    tests.env("PMUSCOPE", pmuscope);
    sh::check(tests.env("PYTHONDONTWRITEBYTECODE", "1"))
}

/// Why the tests cannot run here, where their programs and packages cannot be had.
pub(crate) fn can_run() -> Result<()> {
    let missing = debian::missing(PROGRAMS);
    let may_install = debian::has_apt() && rustix::process::geteuid().is_root();
    if !missing.is_empty() && !may_install {
        bail!("{} not installed", missing.join(", "));
    }
    Ok(())
}

/// The interpreter of a virtual environment in target/ that has the packages of
/// tests/deploy/requirements.txt.
fn environment() -> Result<std::path::PathBuf> {
    let directory = sh::target_dir().join("deploy-python");
    let python = directory.join("bin/python");
    let requirements = sh::root().join("tests/deploy/requirements.txt");
    // Large ones, which two tests need.
    let optional = requirements.with_file_name("requirements-pictures.txt");
    let mut wanted = fs::read(&requirements).context("cannot read requirements.txt")?;
    wanted.extend(fs::read(&optional).context("cannot read requirements-pictures.txt")?);
    // What it was made for; written last, so that half an environment is made again.
    let made_for = directory.join("requirements.txt");
    if fs::read(&made_for).is_ok_and(|made_for| made_for == wanted) {
        return Ok(python);
    }
    println!("xtask: installing Python packages into target/deploy-python");
    if make(&directory).is_err() {
        let need = "Python cannot make a virtual environment";
        debian::install(&["python3-venv"], need)?;
        make(&directory)?;
    }
    let install = |requirements: &Path| {
        let mut pip = sh::command(&python);
        pip.args(["-m", "pip", "install", "--quiet"]);
        pip.args(["--disable-pip-version-check", "--requirement"]);
        sh::check(pip.arg(requirements))
    };
    install(&requirements)?;
    if let Err(error) = install(&optional) {
        println!("xtask: the scripts of docs/ will say that they were skipped: {error}");
        return Ok(python);
    }
    fs::write(&made_for, wanted).context("cannot write the list of installed packages")?;
    Ok(python)
}

fn make(directory: &Path) -> Result<()> {
    let mut venv = sh::command("python3");
    sh::check(venv.args(["-m", "venv", "--clear"]).arg(directory))
}
