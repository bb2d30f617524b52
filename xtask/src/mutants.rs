//! `cargo xtask mutants`: mutation testing of probe-user with cargo-mutants. It runs only tests
//! that need no kernel and no guest: unit tests, tests of the binary's commands on files, and
//! replays of recordings.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{sh, test, tools::CARGO_MUTANTS};

/// The minimum percentage of mutants that tests must catch.
const MIN_CAUGHT: usize = 90;

/// The tests to build and run.
const TESTS: [&str; 4] = ["--lib", "--bins", "--test=derive", "--test=replay"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Sources to change, such as probe-user/src/join/mod.rs or 'probe-user/src/derive/**';
    /// without, those of probe-user that differ from the branch main
    files: Vec<String>,
    /// The N-th of M equal samples of the mutants, from 0 on
    #[arg(long, value_name = "N/M")]
    shard: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let files = match args.files.as_slice() {
        [] => changed()?,
        files => files.to_vec(),
    };
    if files.is_empty() {
        println!("xtask: no source of probe-user differs from main: nothing to change");
        return Ok(());
    }
    test::nextest()?;
    CARGO_MUTANTS.provide()?;
    let output = sh::target_dir().join("mutants");
    fs::create_dir_all(&output)?;
    let mut cargo = sh::cargo();
    cargo.args([
        "mutants",
        "--package",
        "probe-user",
        "--test-tool",
        "nextest",
    ]);
    cargo.args(["--jobs", "1", "--cap-lints", "true"]);
    cargo.arg("--output").arg(&output);
    // Each run changes a copy of the tree. All runs share one build of the dependencies.
    cargo.env("CARGO_TARGET_DIR", output.join("build"));
    for tests in TESTS {
        cargo.arg(format!("--cargo-arg={tests}"));
    }
    for file in &files {
        cargo.args(["--file", file]);
    }
    if let Some(shard) = &args.shard {
        cargo.args(["--sharding", "round-robin", "--shard", shard]);
    }
    let status = cargo.status().context("cannot start cargo mutants")?;
    // 2: some mutants were missed, 3: some tests did not end. Other codes are errors of the run.
    ensure!(
        matches!(status.code(), Some(0 | 2 | 3)),
        "cargo mutants ended with {status}: fix what it says above first"
    );
    let counts = counts(&output.join("mutants.out/outcomes.json"))?;
    let total = counts.caught + counts.missed;
    println!("xtask: {} of {total} mutants caught", counts.caught);
    ensure!(
        counts.caught * 100 >= total * MIN_CAUGHT,
        "tests must catch {MIN_CAUGHT}% of the mutants; the others are in {}",
        output.join("mutants.out/missed.txt").display()
    );
    Ok(())
}

struct MutantCounts {
    caught: usize,
    missed: usize,
}

/// The results of all mutants that could be built.
fn counts(report: &PathBuf) -> Result<MutantCounts> {
    let text =
        fs::read_to_string(report).with_context(|| format!("cannot read {}", report.display()))?;
    let report: Value = serde_json::from_str(&text)?;
    let count = |name: &str| {
        let count = report[name].as_u64();
        usize::try_from(count.with_context(|| format!("outcomes.json has no {name}"))?)
            .context("too many mutants")
    };
    // A timeout also means that a test noticed the change.
    Ok(MutantCounts {
        caught: count("caught")? + count("timeout")?,
        missed: count("missed")?,
    })
}

/// Sources of probe-user that differ from the point where this branch left main, uncommitted
/// changes included.
fn changed() -> Result<Vec<String>> {
    let git = |args: &[&str]| {
        sh::output(sh::command("git").args(args))
            .with_context(|| format!("git {} fails: is there a branch main?", args.join(" ")))
    };
    let base = git(&["merge-base", "HEAD", "main"])?;
    let names = git(&["diff", "--name-only", "--diff-filter=d", base.trim()])?;
    Ok(names
        .lines()
        .filter(|name| is_source(name))
        .map(str::to_owned)
        .collect())
}

/// Whether a file is a source that tests without a kernel may cover.
fn is_source(name: &str) -> bool {
    let is_test = name.ends_with("/tests.rs") || name.contains("/tests/");
    name.starts_with("probe-user/src/") && name.ends_with(".rs") && !is_test
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_other_crates_are_not_changed() {
        assert!(is_source("probe-user/src/join/mod.rs"));
        for other in [
            "probe-user/src/join/tests.rs",
            "probe-user/src/derive/shares/tests/devices.rs",
            "probe-user/catalogue/grace.toml",
            "xtask/src/mutants.rs",
            "tests/vm/spe.rs",
        ] {
            assert!(!is_source(other), "{other}");
        }
    }
}
