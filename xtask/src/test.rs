//! `cargo xtask test`: unit, property and host tests, with nextest where it is installed; then
//! those of deploy/; then the guest tests, where guests can run and something in them has changed
//! since they passed.

use std::path::PathBuf;

use anyhow::Result;

use crate::{
    beside,
    debian::{self, Tool},
    deploy, dist, setup, sh, vm,
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
    /// Only tests whose name contains this
    filter: Option<String>,
    /// Only the host tests, beside 40 containers of others and a load of 8
    #[arg(long)]
    beside: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    setup::run()?;
    if !rustix::process::geteuid().is_root() {
        println!(
            "xtask: not root: the tests that load eBPF programs will say they were skipped; \
             run `sudo -E env PATH=$PATH cargo xtask test` for all of them"
        );
    }
    let missing = debian::missing(PEERS);
    if debian::has_apt() && rustix::process::geteuid().is_root() {
        debian::install(&missing, "")?;
    } else if !missing.is_empty() {
        println!(
            "xtask: tests that use {} will say they were skipped",
            missing.join(", ")
        );
    }
    let nextest = sh::output(sh::cargo().args(["nextest", "--version"])).is_some();
    let mut cargo = sh::cargo();
    if nextest {
        cargo.args(["nextest", "run"]);
    } else {
        println!("xtask: cargo-nextest is not installed, using cargo test");
        cargo.arg("test");
    }
    cargo.args(["--package", "probe-common", "--package", "probe-user"]);
    // One run shows all failures.
    cargo.args(["--package", "xtask", "--no-fail-fast"]);
    cargo.args(args.filter.iter());
    if let Some(image) = image(args)? {
        cargo.env("PMUSCOPE_IMAGE", image);
    }
    if args.beside {
        cargo.args(["--test", "host"]);
        return beside::run(|| sh::check(&mut cargo));
    }
    sh::check(&mut cargo)?;

    // A filter asks for a single test; `cargo xtask vm` has its own filter.
    if args.filter.is_some() {
        return Ok(());
    }
    match deploy::can_run() {
        Ok(()) => deploy::run(&deploy::Args::default())?,
        Err(reason) => println!("xtask: the tests of deploy/ are skipped: {reason}"),
    }
    match vm::can_run() {
        Ok(()) => vm::run(&vm::Args::changed()),
        Err(reason) => {
            println!("xtask: the guest tests (other kernels, arm64, PMUs) are skipped: {reason}");
            Ok(())
        }
    }
}

/// The image that a test runs in containerd, of the guests' binary; None where no such test is
/// asked for, or this machine has no containerd.
fn image(args: &Args) -> Result<Option<PathBuf>> {
    let asked = args.filter.as_ref();
    let asked = asked.is_none_or(|filter| IMAGE_TESTS.contains(filter.as_str()));
    let missing = debian::missing(&[("containerd", "containerd"), ("runc", "runc")]);
    if !asked || !missing.is_empty() || !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let (architecture, binary) = vm::pmuscope()?;
    dist::image_of(architecture, &binary).map(Some)
}
