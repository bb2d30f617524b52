//! `cargo xtask deploy`: runs the tests of deploy/ (tests/deploy, in Python). Helm's own engine
//! renders the chart, Kubernetes' schemas check the objects, and Prometheus checks rules and
//! dashboards and scrapes a running agent.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::Stdio,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use crate::{
    build,
    debian::{self, PackagedFile},
    setup::set_up,
    sh,
    stages::{Stages, TestCounts},
};

/// The programs that the tests start.
const PROGRAMS: &[PackagedFile] = &[("prometheus", "promtool"), ("python3", "python3")];

#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Write deploy/kubernetes.yaml from the chart first
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    Stages::run(|stages| {
        set_up(stages, PROGRAMS)?;
        if args.write {
            sh::check(sh::command(environment()?).arg("tests/deploy/manifest.py"))?;
        }
        let pmuscope = stages.stage("build", || build::run(&build::Args::default()));
        if let Some(pmuscope) = pmuscope {
            stages.tests("tests of deploy/", || tests(&pmuscope));
        }
        Ok(())
    })
}

/// Runs the tests with the binary `pmuscope`.
pub(crate) fn tests(pmuscope: &Path) -> Result<Option<TestCounts>> {
    let need = "the tests of deploy/ need Prometheus and Python";
    debian::install(&debian::missing(PROGRAMS), need)?;
    let mut tests = sh::command(environment()?);
    tests.args(["-m", "unittest", "discover", "--start-directory"]);
    tests.arg("tests/deploy");
    tests.env("PMUSCOPE", pmuscope);
    tests.env("PYTHONDONTWRITEBYTECODE", "1");
    let mut started = tests.stderr(Stdio::piped()).spawn();
    let child = started
        .as_mut()
        .map_err(|error| anyhow!("cannot start Python: {error}"))?;
    let stderr = child
        .stderr
        .take()
        .context("Python has no standard error")?;
    let mut last_lines = [String::new(), String::new()];
    for line in BufReader::new(stderr).lines() {
        let line = line?;
        eprintln!("{line}");
        if !line.is_empty() {
            last_lines.rotate_left(1);
            last_lines[1] = line;
        }
    }
    let status = child.wait()?;
    let counts = counts(&last_lines);
    ensure!(
        status.success() || counts.is_some_and(|counts| counts.failed > 0),
        "the tests ended with {status}"
    );
    Ok(counts)
}

/// The numbers in unittest's last two lines, such as `Ran 64 tests in 70.1s` and
/// `FAILED (failures=1, errors=2, skipped=3)`.
fn counts([ran, result]: &[String; 2]) -> Option<TestCounts> {
    let total: usize = ran.strip_prefix("Ran ")?.split(' ').next()?.parse().ok()?;
    let number = |name: &str| {
        let rest = result.split(&format!("{name}=")).nth(1)?;
        let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
        digits.parse::<usize>().ok()
    };
    let failed = number("failures").unwrap_or(0) + number("errors").unwrap_or(0);
    let skipped = number("skipped").unwrap_or(0);
    Some(TestCounts {
        passed: total - failed - skipped,
        failed,
        skipped,
    })
}

/// An error if the tests cannot run on this machine: programs are missing and cannot be installed.
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
    // Large packages that only the examples of docs/ need.
    let optional = requirements.with_file_name("requirements-pictures.txt");
    let mut wanted = fs::read(&requirements).context("cannot read requirements.txt")?;
    wanted.extend(fs::read(&optional).context("cannot read requirements-pictures.txt")?);
    // The list of installed packages. It is written last, so that an incomplete environment is
    // rebuilt.
    let installed = directory.join("requirements.txt");
    if fs::read(&installed).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    println!("xtask: installing Python packages into target/deploy-python");
    if make_venv(&directory).is_err() {
        let need = "Python cannot make a virtual environment";
        debian::install(&["python3-venv"], need)?;
        make_venv(&directory)?;
    }
    let install = |requirements: &Path| {
        let mut pip = sh::command(&python);
        pip.args(["-m", "pip", "install", "--quiet"]);
        pip.args(["--disable-pip-version-check", "--requirement"]);
        sh::check(pip.arg(requirements))
    };
    install(&requirements)?;
    if let Err(error) = install(&optional) {
        println!("xtask: the examples of docs/ will say that they were skipped: {error}");
        return Ok(python);
    }
    fs::write(&installed, wanted).context("cannot write the list of installed packages")?;
    Ok(python)
}

fn make_venv(directory: &Path) -> Result<()> {
    let mut venv = sh::command("python3");
    sh::check(venv.args(["-m", "venv", "--clear"]).arg(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_unittest_are_counted() {
        let lines = |ran: &str, result: &str| counts(&[ran.to_owned(), result.to_owned()]);
        let expected = TestCounts {
            passed: 60,
            failed: 3,
            skipped: 1,
        };
        let failed = "FAILED (failures=1, errors=2, skipped=1)";
        assert_eq!(lines("Ran 64 tests in 70.112s", failed), Some(expected));
        let passed = lines("Ran 1 test in 0.1s", "OK").unwrap();
        assert_eq!((passed.passed, passed.failed, passed.skipped), (1, 0, 0));
        assert_eq!(lines("Traceback", "ImportError"), None);
    }
}
