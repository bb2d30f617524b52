//! `cargo xtask test`: runs unit, property and host tests, and the tests of deploy/. Where guests
//! can run, it also runs the guest tests, for guests that changed since they passed.

use std::{fs, path::PathBuf, thread};

use anyhow::{Context as _, Result};

use crate::{
    binaries::{Binaries, PACKAGES},
    build,
    debian::{self, PackagedFile},
    deploy, dist, foreign_containers,
    setup::set_up,
    sh,
    stages::{Stages, TestCounts},
    tools::CARGO_NEXTEST,
    vm::{self, Arch, Guests},
};

/// Programs that tests compare with, that read pmuscope's output, or that prepare namespaces. A
/// test that misses one says that it is skipped.
const PEERS: &[PackagedFile] = &[
    ("linux-perf", "perf"),
    ("runc", "runc"),
    ("containerd", "containerd"),
    ("busybox-static", "busybox"),
    ("mount", "mount"),
    ("prometheus", "promtool"),
    ("chromium", "chromium"),
];

/// Part of the names of the tests that run the image. The image is built only for them.
const IMAGE_TESTS: &str = "containerd::agent";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only tests of this machine whose name contains this
    filter: Option<String>,
    /// Only host tests, beside 40 containers of others and a load of 8
    #[arg(long)]
    beside: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    Stages::run(|stages| {
        // A filter selects only tests of this machine; `cargo xtask vm` has its own filter.
        if args.filter.is_none() && !args.beside {
            return all(stages);
        }
        set_up(stages, PEERS)?;
        let filter = args.filter.as_deref();
        if args.beside {
            // Builds the load last: the build for the image leaves an optimised load without
            // function names, and cargo builds no examples for a selected test.
            let built = stages.stage("image and load", || Ok((image(filter)?, load()?)));
            if let Some((image, load)) = built {
                stages.tests("host tests", || {
                    foreign_containers::run(&load, || host(&["--test", "host"], filter, image))
                });
            }
        } else {
            stages.tests("host tests", || host(&[], filter, image(filter)?));
        }
        Ok(())
    })
}

/// Every test that this machine can run.
pub(crate) fn all(stages: &Stages) -> Result<()> {
    let ci = vm::Args::changed();
    let guests = Guests::select(&ci)?;
    let can_run = vm::can_run();
    if let Err(reason) = &can_run {
        println!("xtask: the guest tests (other kernels, arm64, PMUs) are skipped: {reason}");
        set_up(stages, PEERS)?;
        stages.tests("host tests", || host(&[], None, image(None)?));
        deploy_tests(stages, None);
        return Ok(());
    }
    set_up(stages, &[PEERS, vm::TOOLS].concat())?;
    let (kernels, binaries) = guests.build(stages);
    stages.tests("host tests", || host(&[], None, image(None)?));
    thread::scope(|scope| {
        // The tests of deploy/ mostly wait, so they run at the same time.
        scope.spawn(|| deploy_tests(stages, binaries.get(&Arch::HOST)));
        if let Some(kernels) = &kernels {
            guests.run(stages, kernels, &binaries);
        }
    });
    Ok(())
}

/// Runs the tests of deploy/, with the guests' binary if there is one.
fn deploy_tests(stages: &Stages, binaries: Option<&Binaries>) {
    if let Err(reason) = deploy::can_run() {
        println!("xtask: the tests of deploy/ are skipped: {reason}");
        return;
    }
    stages.tests("tests of deploy/", || match binaries {
        Some(binaries) => deploy::tests(binaries.get("pmuscope")?),
        None => deploy::tests(&build::run(&build::Args::default())?),
    });
}

/// Builds the program `load` for the host tests; returns its path.
fn load() -> Result<PathBuf> {
    let triple = Arch::HOST.triple();
    let mut cargo = sh::cargo();
    cargo.arg("build").args(PACKAGES).args(["--target", triple]);
    sh::check(cargo.args(["--example", "load"]))?;
    Ok(sh::target_dir().join(triple).join("debug/examples/load"))
}

/// Runs unit, property and host tests; `only` are cargo's options that select test binaries. None
/// if nextest wrote no report.
fn host(only: &[&str], filter: Option<&str>, image: Option<PathBuf>) -> Result<Option<TestCounts>> {
    nextest()?;
    let mut cargo = sh::cargo();
    cargo.args(["nextest", "run"]);
    // The same target as the build for guests.
    cargo.args(PACKAGES).args(["--target", Arch::HOST.triple()]);
    // One run shows all failures.
    cargo.arg("--no-fail-fast");
    cargo.args(only).args(filter);
    if let Some(image) = image {
        cargo.env("PMUSCOPE_IMAGE", image);
    }
    let report = sh::target_dir().join("nextest/default/junit.xml");
    // Removes the report of an earlier run.
    let _ = fs::remove_file(&report);
    let ran = sh::check(&mut cargo);
    match fs::read_to_string(&report) {
        Ok(report) => {
            let counts = counts(&report)?;
            // Without a failed test, an error has another cause.
            if counts.failed == 0 {
                ran?;
            }
            Ok(Some(counts))
        }
        Err(_) => ran.map(|()| None),
    }
}

/// Installs cargo-nextest, unless this machine has it.
pub(crate) fn nextest() -> Result<()> {
    match sh::output(sh::cargo().args(["nextest", "--version"])) {
        Some(_) => Ok(()),
        None => CARGO_NEXTEST.provide(),
    }
}

/// The numbers of tests in nextest's report, from its `testsuites` element.
fn counts(report: &str) -> Result<TestCounts> {
    let element = report
        .split("<testsuites ")
        .nth(1)
        .and_then(|rest| rest.split('>').next());
    let number = |name: &str| {
        let rest = element?.split(&format!("{name}=\"")).nth(1)?;
        rest.split('"').next()?.parse::<usize>().ok()
    };
    let total = number("tests").context("nextest wrote a report without a number of tests")?;
    let failed = number("failures").unwrap_or(0) + number("errors").unwrap_or(0);
    Ok(TestCounts {
        passed: total - failed,
        failed,
        skipped: 0,
    })
}

/// Builds the image that a test runs in containerd. None if no such test is selected, or this
/// machine cannot run containerd.
fn image(filter: Option<&str>) -> Result<Option<PathBuf>> {
    let selected = |filter: &str| IMAGE_TESTS.contains(filter) || filter.contains(IMAGE_TESTS);
    let selected = filter.is_none_or(selected);
    let missing = debian::missing(&[("containerd", "containerd"), ("runc", "runc")]);
    if !selected || !missing.is_empty() || !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let binaries = Binaries::for_guests([Arch::HOST])?;
    dist::image_for(Arch::HOST.debian(), binaries[&Arch::HOST].get("pmuscope")?).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_nextest_is_counted() {
        let report = "<?xml version=\"1.0\"?>\n<testsuites name=\"nextest-run\" tests=\"12\" \
                      failures=\"2\" errors=\"1\" uuid=\"x\">\n<testsuite tests=\"1\"/>";
        let expected = TestCounts {
            passed: 9,
            failed: 3,
            skipped: 0,
        };
        assert_eq!(counts(report).unwrap(), expected);
        assert!(counts("").is_err());
    }
}
