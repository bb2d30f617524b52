//! `cargo xtask deploy`: runs the tests of deploy/ (tests/deploy, in Python). Helm's own engine
//! renders the chart, Kubernetes' schemas check the objects, and Prometheus checks rules and
//! dashboards and scrapes a running agent.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
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

/// The packages that the tests need, and large ones that only the examples of docs/ need: files of
/// tests/deploy. A copy of each in the environment says that its packages are installed.
const REQUIREMENTS: &str = "requirements.txt";
const OPTIONAL: &str = "requirements-pictures.txt";

/// The interpreter of a virtual environment in target/ that has the packages of tests/deploy.
fn environment() -> Result<PathBuf> {
    let directory = sh::target_dir().join("deploy-python");
    let python = directory.join("bin/python");
    let make = || {
        println!("xtask: installing Python packages into target/deploy-python");
        if make_venv(&directory).is_err() {
            let need = "Python cannot make a virtual environment";
            debian::install(&["python3-venv"], need)?;
            make_venv(&directory)?;
        }
        Ok(())
    };
    let install = |requirements: &Path| {
        let mut pip = sh::command(&python);
        pip.args(["-m", "pip", "install", "--quiet"]);
        pip.args(["--disable-pip-version-check", "--requirement"]);
        sh::check(pip.arg(requirements))
    };
    provide(&directory, &sh::root().join("tests/deploy"), make, install)?;
    Ok(python)
}

/// Makes an environment in `directory` with the packages that `files` lists, unless it is there.
/// Optional packages that cannot be installed are tried again at the next run.
fn provide(
    directory: &Path,
    files: &Path,
    make: impl FnOnce() -> Result<()>,
    install: impl Fn(&Path) -> Result<()>,
) -> Result<()> {
    let read = |name: &str| {
        let file = files.join(name);
        fs::read(&file).with_context(|| format!("cannot read {}", file.display()))
    };
    let is_installed = |name: &str, wanted: &[u8]| {
        let installed = fs::read(directory.join(name));
        installed.is_ok_and(|installed| installed == wanted)
    };
    // Written last, so that an incomplete environment is made again.
    let mark_installed = |name: &str, wanted: &[u8]| {
        fs::write(directory.join(name), wanted).context("cannot write the list of packages")
    };
    let (wanted, optional) = (read(REQUIREMENTS)?, read(OPTIONAL)?);
    if !is_installed(REQUIREMENTS, &wanted) {
        make()?;
        install(&files.join(REQUIREMENTS))?;
        mark_installed(REQUIREMENTS, &wanted)?;
    }
    if !is_installed(OPTIONAL, &optional) {
        match install(&files.join(OPTIONAL)) {
            Ok(()) => mark_installed(OPTIONAL, &optional)?,
            Err(error) => {
                println!("xtask: the examples of docs/ will say that they were skipped: {error}");
            }
        }
    }
    Ok(())
}

fn make_venv(directory: &Path) -> Result<()> {
    let mut venv = sh::command("python3");
    sh::check(venv.args(["-m", "venv", "--clear"]).arg(directory))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

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

    /// Packages that only some tests need cost a download, not the whole environment.
    #[test]
    fn without_optional_packages_the_environment_stays() {
        let directories = tempfile::tempdir().unwrap();
        let [target, files] = ["target", "files"].map(|name| directories.path().join(name));
        fs::create_dir(&files).unwrap();
        for name in [REQUIREMENTS, OPTIONAL] {
            fs::write(files.join(name), name).unwrap();
        }
        let done = RefCell::new(Vec::new());
        let run = |offers_optional: bool| {
            let make = || {
                done.borrow_mut().push("make".to_owned());
                Ok(fs::create_dir(&target)?)
            };
            let install = |file: &Path| {
                let name = file.file_name().unwrap().to_str().unwrap();
                done.borrow_mut().push(name.to_owned());
                ensure!(offers_optional || name != OPTIONAL, "not found");
                Ok(())
            };
            provide(&target, &files, make, install).unwrap();
            done.take()
        };
        assert_eq!(run(false), ["make", REQUIREMENTS, OPTIONAL]);
        assert_eq!(run(false), [OPTIONAL]);
        assert_eq!(run(true), [OPTIONAL]);
        assert!(run(true).is_empty());
    }
}
