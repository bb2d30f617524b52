//! Runs guests side by side: one keeps about one CPU of this machine busy.

use std::{
    mem,
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
    if all {
        totals = repeat(rig, boot, totals)?;
    }
    // A test that failed at first will be run again.
    if all && totals.failed.is_empty() && totals.flaky.is_empty() {
        passed.remember()?;
    }
    Ok(totals)
}

/// How many failed tests of a guest are run again.
const REPEATS: usize = 3;

/// Runs tests that failed once more, each in a guest of its own. An emulated CPU stands still for
/// tens of milliseconds where this machine has no time for it, which no test can tell from a
/// defect. One that passes then counts as passed, and is named with its failure at the end.
fn repeat(rig: &Rig, boot: &Boot, mut totals: Totals) -> Result<Totals> {
    if totals.failed.len() > REPEATS {
        return Ok(totals);
    }
    for failure in mem::take(&mut totals.failed) {
        if passes_alone(rig, boot, failure.test.as_deref())? {
            totals.passed += 1;
            totals.flaky.push(failure);
        } else {
            totals.failed.push(failure);
        }
    }
    Ok(totals)
}

fn passes_alone(rig: &Rig, boot: &Boot, test: Option<&str>) -> Result<bool> {
    let Some(test) = test else { return Ok(false) };
    println!(
        "[{}] {test} failed: it runs once more, by itself",
        boot.name
    );
    let run = Run::Tests {
        filter: test,
        record: false,
    };
    let initramfs = rig.initramfs(boot, run)?;
    let mut alone = Totals::default();
    let mut report = Report::new(boot.name, &mut alone, true, Show::All);
    guest::run(boot, &rig.kernel(boot), &initramfs, &mut report)?;
    Ok(alone.failed.is_empty() && alone.passed > 0)
}
