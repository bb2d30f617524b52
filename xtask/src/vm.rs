//! `cargo xtask vm`: boots Debian kernels under QEMU and runs the guest tests (tests/vm) in them.

mod apt;
mod boots;
mod buildroot;
mod fleet;
mod guest;
mod initramfs;
mod klog;
mod kmod;
mod modules;
mod packages;
mod pass_record;
mod placement;
mod report;
mod rig;
mod tools;
mod totals;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    thread,
};

use anyhow::{Result, bail, ensure};

use self::{
    boots::{BOOTS, Boot},
    fleet::{Fleet, Selection},
    report::Show,
    rig::{GuestTask, Rig},
};
pub(crate) use self::{packages::Arch, rig::Kernels, tools::TOOLS};
use crate::{binaries::Binaries, debian, setup::set_up, stages::Stages};

#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Also the guests that `cargo xtask test` leaves out, and in each guest all tests it can run
    #[arg(long)]
    all: bool,
    /// Only guests of this architecture
    #[arg(long)]
    arch: Option<Arch>,
    /// Only guests of this kernel series, such as 6.12
    #[arg(long, value_name = "SERIES")]
    kernel: Option<String>,
    /// Only guests whose name contains this; if no guest matches, only tests whose name contains it
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
    /// Selects CI's guests that have changed since they passed.
    pub(crate) fn changed() -> Self {
        Self {
            changed: true,
            ..Self::default()
        }
    }
}

/// Whether guests can run on this machine; the error is the reason if not.
pub(crate) fn can_run() -> Result<(), String> {
    if !debian::has_apt() {
        return Err("the test guests are made of Debian packages and apt-get is not there".into());
    }
    let missing = debian::missing(TOOLS);
    if missing.is_empty() || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let install = debian::apt_line(&missing);
    Err(format!("the test guests need `sudo {install}`"))
}

/// Runs the guests that `args` selects; a failed test is an error.
pub(crate) fn run(args: &Args) -> Result<()> {
    let guests = Guests::select(args)?;
    if let Err(reason) = can_run() {
        bail!(reason);
    }
    let mut prepared = None;
    Stages::run(|stages| {
        set_up(stages, TOOLS)?;
        let (kernels, binaries) = guests.build(stages);
        let Some(kernels) = kernels else {
            return Ok(());
        };
        let (kernels, binaries) = prepared.insert((kernels, binaries));
        if args.shell {
            return Ok(());
        }
        guests.run(stages, kernels, binaries);
        Ok(())
    })?;
    match &prepared {
        Some((kernels, binaries)) if args.shell => {
            let rig = Rig::new(kernels, binaries)?;
            let boot = guests.boots[0];
            let initramfs = rig.initramfs(boot, GuestTask::Shell)?;
            guest::shell(boot, &rig.kernel(boot), &initramfs)
        }
        _ => Ok(()),
    }
}

/// The guests of one run, before anything is built for them.
pub(crate) struct Guests<'a> {
    boots: Vec<&'static Boot>,
    selection: Selection<'a>,
}

impl<'a> Guests<'a> {
    /// The guests that `args` selects.
    pub(crate) fn select(args: &'a Args) -> Result<Self> {
        let (boots, filter) = select(args)?;
        let selection = Selection {
            filter,
            all: args.all,
            changed: args.changed,
            record: args.record.as_deref(),
            // Only a run with a filter shows all output: the whole fleet prints thousands of lines.
            show: match args.filter {
                Some(_) => Show::All,
                None => Show::Failures,
            },
        };
        Ok(Self { boots, selection })
    }

    /// Fetches kernels and builds their modules, and at the same time builds the binaries. Each is
    /// a stage. If a stage failed, the kernels are None or the binaries are empty.
    pub(crate) fn build(&self, stages: &Stages) -> (Option<Kernels>, BTreeMap<Arch, Binaries>) {
        let archs: BTreeSet<_> = self.boots.iter().map(|boot| boot.arch).collect();
        thread::scope(|scope| {
            let kernels = scope.spawn(|| {
                stages.stage("kernels and test modules of guests", || {
                    Kernels::provide(&self.boots)
                })
            });
            let binaries = match archs.is_empty() {
                true => None,
                false => stages.stage("build for guests", || Binaries::for_guests(archs)),
            };
            (kernels.join().ok().flatten(), binaries.unwrap_or_default())
        })
    }

    /// Boots the guests that have binaries, as one stage. Runs as many at a time as this machine
    /// has CPUs.
    pub(crate) fn run(
        &self,
        stages: &Stages,
        kernels: &Kernels,
        binaries: &BTreeMap<Arch, Binaries>,
    ) {
        let mut boots = self.boots.clone();
        boots.retain(|boot| binaries.contains_key(&boot.arch));
        if boots.is_empty() {
            // The stage that builds binaries has failed.
            return;
        }
        stages.tests("guests", || {
            let rig = Rig::new(kernels, binaries)?;
            let fleet = Fleet::new(&rig, &boots, self.selection);
            thread::scope(|scope| {
                for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                    scope.spawn(|| fleet.work());
                }
            });
            let totals = fleet.totals()?;
            println!("{totals}");
            ensure!(
                !totals.is_empty(),
                "no test matches {:?}",
                self.selection.filter
            );
            Ok(Some(totals.counts()))
        });
    }
}

/// The guests to boot, and the text that test names must contain.
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
        boots.retain(|boot| boot.ci && placement::records(boot));
        return Ok((boots, placement::RECORDINGS));
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
