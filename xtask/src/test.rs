//! `cargo xtask test`: unit, property and host tests, with nextest where it is installed, and those
//! of deploy/; beside them the guest tests, where guests can run and something in them has changed
//! since they passed.

use std::{fs, path::PathBuf, thread};

use anyhow::{Context as _, Result};

use crate::{
    beside,
    binaries::{self, Binaries},
    debian::{self, Tool},
    deploy, dist,
    setup::set_up,
    sh,
    stages::{Counts, Stages},
    vm::{self, Arch, Guests, Rig},
};

/// Programs that tests compare with, that read pmuscope's output, or that prepare namespaces.
/// Without them those tests say that they are skipped.
const PEERS: &[Tool] = &[
    ("linux-perf", "perf"),
    ("runc", "runc"),
    ("containerd", "containerd"),
    ("busybox-static", "busybox"),
    ("mount", "mount"),
    ("prometheus", "promtool"),
    ("chromium", "chromium"),
];

/// The tests that run the image, which is built for them.
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
        // A filter asks for single tests; `cargo xtask vm` has its own filter.
        if args.filter.is_none() && !args.beside {
            return all(stages);
        }
        set_up(stages, PEERS)?;
        if let Some(binaries) = build(stages) {
            let filter = args.filter.as_deref();
            stages.tests("host tests", || match args.beside {
                true => beside::run(binaries.get("load")?, || {
                    host(&binaries, &["--test", "host"], filter)
                }),
                false => host(&binaries, &[], filter),
            });
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
        if let Some(binaries) = build(stages) {
            of_this_machine(stages, &binaries);
        }
        return Ok(());
    }
    set_up(stages, &[PEERS, vm::TOOLS].concat())?;
    let (kernels, binaries) = guests.make(stages);
    let Some(binaries) = binaries else {
        return Ok(());
    };
    let rig = kernels.as_ref().map(|kernels| Rig::new(kernels, &binaries));
    let fleet = rig.as_ref().map(|rig| guests.fleet(rig));
    thread::scope(|scope| {
        // One guest at a time beside the other tests, which mostly wait.
        if let Some(fleet) = &fleet {
            scope.spawn(|| stages.tests("guests", || fleet.results()));
        }
        if let Some(binaries) = binaries.get(&Arch::HOST) {
            of_this_machine(stages, binaries);
        }
        if let Some(fleet) = &fleet {
            fleet.work();
        }
    });
    Ok(())
}

fn build(stages: &Stages) -> Option<Binaries> {
    stages.stage("build of tests", || Binaries::of_guests(Arch::HOST))
}

/// The tests that need no guest.
fn of_this_machine(stages: &Stages, binaries: &Binaries) {
    stages.tests("host tests", || host(binaries, &[], None));
    match deploy::can_run() {
        Ok(()) => stages.tests("tests of deploy/", || {
            deploy::tests(binaries.get("pmuscope")?)
        }),
        Err(reason) => println!("xtask: the tests of deploy/ are skipped: {reason}"),
    }
}

/// Unit, property and host tests; of these binaries only, where any are named.
fn host(binaries: &Binaries, only: &[&str], filter: Option<&str>) -> Result<Option<Counts>> {
    let nextest = sh::output(sh::cargo().args(["nextest", "--version"])).is_some();
    let mut cargo = sh::cargo();
    if nextest {
        binaries::host_tests(cargo.args(["nextest", "run"]), "--cargo-profile");
    } else {
        println!("xtask: cargo-nextest is not installed, using cargo test");
        binaries::host_tests(cargo.arg("test"), "--profile");
    }
    // One run shows all failures.
    cargo.arg("--no-fail-fast").args(only).args(filter);
    if let Some(image) = image(binaries, filter)? {
        cargo.env("PMUSCOPE_IMAGE", image);
    }
    let report = sh::target_dir().join("nextest/default/junit.xml");
    // That of an earlier run.
    let _ = fs::remove_file(&report);
    let ran = sh::check(&mut cargo);
    match fs::read_to_string(&report) {
        Ok(report) => counts(&report).map(Some),
        Err(_) => ran.map(|()| None),
    }
}

/// The numbers in the first line of elements of nextest's report.
fn counts(report: &str) -> Result<Counts> {
    let element = report
        .split("<testsuites ")
        .nth(1)
        .and_then(|rest| rest.split('>').next());
    let number = |name: &str| {
        let rest = element?.split(&format!("{name}=\"")).nth(1)?;
        rest.split('"').next()?.parse::<usize>().ok()
    };
    let all = number("tests").context("nextest wrote a report without a number of tests")?;
    let failed = number("failures").unwrap_or(0) + number("errors").unwrap_or(0);
    Ok(Counts {
        passed: all - failed,
        failed,
        skipped: 0,
    })
}

/// The image that a test runs in containerd; None where no such test is asked for, or this machine
/// has no containerd.
fn image(binaries: &Binaries, filter: Option<&str>) -> Result<Option<PathBuf>> {
    let asked = filter.is_none_or(|filter| IMAGE_TESTS.contains(filter));
    let missing = debian::missing(&[("containerd", "containerd"), ("runc", "runc")]);
    if !asked || !missing.is_empty() || !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    dist::image_of(Arch::HOST.debian(), binaries.get("pmuscope")?).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_nextest_is_counted() {
        let report = "<?xml version=\"1.0\"?>\n<testsuites name=\"nextest-run\" tests=\"12\" \
                      failures=\"2\" errors=\"1\" uuid=\"x\">\n<testsuite tests=\"1\"/>";
        let expected = Counts {
            passed: 9,
            failed: 3,
            skipped: 0,
        };
        assert_eq!(counts(report).unwrap(), expected);
        assert!(counts("").is_err());
    }
}
