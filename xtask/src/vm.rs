//! `cargo xtask vm`: boots Debian's kernels under QEMU and runs the guest tests (tests/vm) in them.

mod apt;
mod binaries;
mod boots;
mod buildroot;
mod fleet;
mod guest;
mod initramfs;
mod klog;
mod kmod;
mod modules;
mod packages;
mod passed;
mod report;
mod rig;
mod tools;
mod totals;

use std::{fs, path::PathBuf, time::Instant};

use anyhow::{Result, bail, ensure};

use self::{
    binaries::Binaries,
    boots::{BOOTS, Boot},
    fleet::Selection,
    packages::Arch,
    report::Show,
    rig::{Rig, Run},
};
use crate::{debian, setup, sh};

/// What the tests that make recordings have in their names.
const RECORDINGS: &str = "recordings::";

#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Also the guests that `cargo xtask test` leaves out
    #[arg(long)]
    all: bool,
    /// Only guests of this architecture
    #[arg(long)]
    arch: Option<Arch>,
    /// Only guests of this kernel series, such as 6.12
    #[arg(long, value_name = "SERIES")]
    kernel: Option<String>,
    /// Only guests whose name contains this; where there is none, only tests whose name does
    #[arg(long, value_name = "NAME")]
    filter: Option<String>,
    /// Boot the first guest that matches with a shell on this terminal
    #[arg(long)]
    shell: bool,
    /// Write the recordings that the guests make (tests/vm/recordings.rs) into this directory, and
    /// run nothing else
    #[arg(long, value_name = "DIR", conflicts_with_all = ["all", "filter", "shell"])]
    record: Option<PathBuf>,
    /// Leave out guests that passed before and in which nothing has changed
    #[arg(skip)]
    changed: bool,
}

impl Args {
    /// CI's guests in which something has changed since they passed.
    pub(crate) fn changed() -> Self {
        Self {
            changed: true,
            ..Self::default()
        }
    }
}

/// Whether guests can run on this machine; the error is the reason why not.
pub(crate) fn can_run() -> Result<(), String> {
    if !debian::has_apt() {
        return Err("the test guests are made of Debian packages and apt-get is not there".into());
    }
    let missing = tools::missing();
    if missing.is_empty() || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let install = debian::apt_line(&missing);
    Err(format!("the test guests need `sudo {install}`"))
}

/// Runs the guests that `args` selects; a failed test is an error.
/// The static pmuscope that guests of this machine's architecture run, and what Debian and OCI call
/// that architecture.
pub(crate) fn pmuscope() -> Result<(&'static str, PathBuf)> {
    let boots = BOOTS.iter();
    let boots: Vec<_> = boots
        .filter(|boot| boot.ci && boot.arch == Arch::HOST)
        .collect();
    let binaries = Binaries::build(&boots)?;
    Ok((
        Arch::HOST.debian(),
        binaries.get(Arch::HOST, "pmuscope")?.clone(),
    ))
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let start = Instant::now();
    let (boots, filter) = select(args)?;
    if let Err(reason) = can_run() {
        bail!(reason);
    }
    setup::run()?;
    tools::provide()?;
    let vm = sh::target_dir().join("vm");
    fs::create_dir_all(&vm)?;
    let rig = Rig::prepare(&vm, &boots)?;

    if args.shell {
        let boot = boots[0];
        let initramfs = rig.initramfs(boot, Run::Shell)?;
        return guest::shell(boot, &rig.kernel(boot), &initramfs);
    }
    let selection = Selection {
        filter,
        changed: args.changed,
        record: args.record.as_deref(),
        // A run with a filter shows all output; that of the whole fleet is thousands of lines.
        show: match args.filter {
            Some(_) => Show::All,
            None => Show::Failures,
        },
    };
    let totals = fleet::run(&vm, &rig, &boots, selection)?;
    println!("xtask: guests ended after {} s", start.elapsed().as_secs());
    println!("{totals}");
    ensure!(!totals.none(), "no test matches {filter:?}");
    ensure!(totals.failed.is_empty(), "tests failed in the guests");
    Ok(())
}

/// The guests to boot and the part of test names asked for.
fn select(args: &Args) -> Result<(Vec<&'static Boot>, &str)> {
    let mut boots: Vec<_> = BOOTS.iter().collect();
    boots.retain(|boot| args.arch.is_none_or(|arch| boot.arch == arch));
    boots.retain(|boot| {
        args.kernel
            .as_ref()
            .is_none_or(|kernel| boot.series == kernel)
    });
    let names: Vec<_> = BOOTS.iter().map(|boot| boot.name).collect();
    ensure!(
        !boots.is_empty(),
        "no guest has this architecture and kernel; there are {}",
        names.join(", ")
    );
    let filter = args.filter.as_deref().unwrap_or_default();
    boots.retain(|boot| boot.ci || args.all || boot.name == filter);
    if args.record.is_some() {
        boots.retain(|boot| boot.records());
        return Ok((boots, RECORDINGS));
    }
    if !boots.iter().any(|boot| boot.name.contains(filter)) {
        return Ok((boots, filter));
    }
    boots.retain(|boot| boot.name.contains(filter));
    Ok((boots, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(args: &Args) -> Vec<&'static str> {
        let (boots, _) = select(args).unwrap();
        boots.iter().map(|boot| boot.name).collect()
    }

    fn filter(name: &str) -> Args {
        Args {
            filter: Some(name.to_owned()),
            ..Args::default()
        }
    }

    #[test]
    fn without_all_only_guests_of_ci_are_booted() {
        let ci: Vec<_> = BOOTS.iter().filter(|boot| boot.ci).collect();
        assert_eq!(names(&Args::changed()).len(), ci.len());
        let all = Args {
            all: true,
            ..Args::default()
        };
        assert_eq!(names(&all).len(), BOOTS.len());
        assert_eq!(names(&filter("smoke::")).len(), ci.len());
        assert_eq!(names(&filter("arm64-6.12")), ["arm64-6.12"]);
    }

    #[test]
    fn recordings_are_made_in_one_guest() {
        let args = Args {
            record: Some("x".into()),
            ..Args::default()
        };
        let (boots, filter) = select(&args).unwrap();
        assert_eq!(boots.len(), 1);
        assert_eq!(filter, "recordings::");
    }

    #[test]
    fn a_guest_is_booted_by_its_name() {
        assert_eq!(names(&filter("arm64-6.12-shares")), ["arm64-6.12-shares"]);
    }
}
