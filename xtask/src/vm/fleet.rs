//! Runs guests side by side: one keeps about one CPU of this machine busy.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use anyhow::{Result, anyhow};

use super::{
    boots::Boot,
    guest,
    passed::Passed,
    report::{Report, Show},
    rig::{Rig, Run},
    totals::Totals,
};

/// Which tests run in the guests.
#[derive(Clone, Copy)]
pub(super) struct Selection<'a> {
    /// Part of the tests' names; empty: all.
    pub(super) filter: &'a str,
    /// Leave out guests that passed before and in which nothing has changed.
    pub(super) changed: bool,
    pub(super) show: Show,
    /// Where to write what the tests record.
    pub(super) record: Option<&'a Path>,
}

/// Boots every guest and prints its results as they come; the first in the list begin first.
pub(super) fn run(
    vm: &Path,
    rig: &Rig,
    boots: &[&'static Boot],
    selection: Selection<'_>,
) -> Result<Totals> {
    let slots = thread::available_parallelism().map_or(1, usize::from);
    let waiting = Mutex::new(boots.iter());
    let next = || {
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.next()
    };
    let work = || {
        let mut totals = Totals::default();
        while let Some(boot) = next() {
            totals.add(run_one(vm, rig, boot, selection)?);
        }
        Ok(totals)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..slots).map(|_| scope.spawn(work)).collect();
        let mut totals = Totals::default();
        for worker in workers {
            let ended: Result<Totals> = worker
                .join()
                .unwrap_or_else(|_| Err(anyhow!("a guest's thread panicked")));
            totals.add(ended?);
        }
        Ok(totals)
    })
}

fn run_one(vm: &Path, rig: &Rig, boot: &Boot, selection: Selection<'_>) -> Result<Totals> {
    let mut totals = Totals::default();
    let name = boot.name;
    let kernel = rig.kernel(boot);
    let run = Run::Tests {
        filter: selection.filter,
        record: selection.record.is_some(),
    };
    let initramfs = rig.initramfs(boot, run)?;
    let passed = Passed::of(vm, boot, &kernel, &initramfs)?;
    if selection.changed && passed.before() {
        println!("[{name}] passed before, and nothing in it has changed");
        totals.unchanged += 1;
        return Ok(totals);
    }
    let since = Instant::now();
    let all = selection.filter.is_empty();
    let mut report = Report::new(name, &mut totals, all, selection.show);
    guest::run(boot, &kernel, &initramfs, &mut report)?;
    if let Some(directory) = selection.record {
        report.write_recordings(directory)?;
    }
    let (planned, seconds) = (report.planned(), since.elapsed().as_secs_f32());
    println!("[{name}] {planned} tests in {seconds:.1} s");
    if all && totals.failed.is_empty() {
        passed.remember()?;
    }
    Ok(totals)
}
