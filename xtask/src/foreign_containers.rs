//! `cargo xtask test --beside`: runs the host tests beside foreign containers and busy processes.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use crate::sh;

/// Number of containers, and of busy processes.
const NEIGHBOURS: [&str; 2] = ["40", "8"];

/// Runs tests beside foreign containers, which end after the tests.
///
/// One `load` process starts the containers. It stops them and removes their cgroups when its
/// standard input closes, so also when this process is interrupted or killed.
pub(crate) fn run<T>(load: &Path, tests: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut load = sh::command(load);
    load.arg("neighbours").args(NEIGHBOURS);
    load.stdin(Stdio::piped()).stdout(Stdio::piped());
    // Ctrl-C reaches only this process.
    load.process_group(0);
    let mut load = load.spawn().context("cannot start `load neighbours`")?;
    let result = wait_until_running(&mut load).and_then(|()| tests());
    drop(load.stdin.take());
    let ended = load.wait().context("cannot wait for `load neighbours`")?;
    let result = result?;
    ensure!(ended.success(), "`load neighbours` ended with {ended}");
    Ok(result)
}

fn wait_until_running(load: &mut Child) -> Result<()> {
    let mut line = String::new();
    let out = load.stdout.as_mut().context("it has no output")?;
    BufReader::new(out).read_line(&mut line)?;
    ensure!(
        line == "running\n",
        "`load neighbours` made no containers: see its message above; it needs root"
    );
    let [containers, others] = NEIGHBOURS;
    println!("xtask: {containers} containers and {others} busy processes run beside the tests");
    Ok(())
}
