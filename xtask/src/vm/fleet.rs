//! The guests of one run: a queue that several threads work off, each with one guest at a time. A
//! guest keeps about one CPU of this machine busy.

use std::{
    mem,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use anyhow::Result;

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
    /// Also tests that CI leaves out in a guest.
    pub(super) all: bool,
    /// Leave out guests that passed before and in which nothing has changed.
    pub(super) changed: bool,
    pub(super) show: Show,
    /// Where to write what the tests record.
    pub(super) record: Option<&'a Path>,
}

/// Guests that wait, and the results of those that ran.
pub(super) struct Fleet<'a> {
    rig: &'a Rig<'a>,
    selection: Selection<'a>,
    state: Mutex<State>,
}

struct State {
    /// The last one is next.
    waiting: Vec<&'static Boot>,
    /// What all guests that ended said, or why one could not run.
    totals: Result<Totals>,
}

impl<'a> Fleet<'a> {
    /// The first of `boots` begin first.
    pub(super) fn new(rig: &'a Rig<'a>, boots: &[&'static Boot], selection: Selection<'a>) -> Self {
        let waiting = boots.iter().rev().copied().collect();
        Self {
            rig,
            selection,
            state: Mutex::new(State {
                waiting,
                totals: Ok(Totals::default()),
            }),
        }
    }

    /// Boots one guest after the other until none waits. Prints results as they come.
    pub(super) fn work(&self) {
        loop {
            let next = self.state().waiting.pop();
            let Some(boot) = next else { return };
            let ended = self.run(boot);
            let mut state = self.state();
            match (ended, &mut state.totals) {
                (Ok(more), Ok(totals)) => totals.add(more),
                (Ok(_), Err(_)) => {}
                (Err(error), _) => {
                    state.waiting.clear();
                    state.totals = Err(error);
                }
            }
        }
    }

    /// What all guests said.
    ///
    /// # Errors
    ///
    /// A guest could not be made or started.
    pub(super) fn totals(&self) -> Result<Totals> {
        mem::replace(&mut self.state().totals, Ok(Totals::default()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, boot: &Boot) -> Result<Totals> {
        let mut totals = Totals::default();
        let (rig, selection, name) = (self.rig, self.selection, boot.name);
        let kernel = rig.kernel(boot);
        let all = selection.all || !boot.ci;
        let run = Run::Tests {
            filter: selection.filter,
            all,
            record: selection.record.is_some(),
        };
        let initramfs = rig.initramfs(boot, run)?;
        let passed = Passed::of(rig.directory(), boot, &kernel, &initramfs)?;
        if selection.changed && passed.before() {
            println!("[{name}] passed before, and nothing in it has changed");
            totals.unchanged += 1;
            return Ok(totals);
        }
        println!("[{name}] boots");
        let since = Instant::now();
        let whole = selection.filter.is_empty();
        let mut report = Report::new(name, &mut totals, whole, selection.show);
        guest::run(boot, &kernel, &initramfs, all, &mut report)?;
        if let Some(directory) = selection.record {
            report.write_recordings(directory)?;
        }
        let (planned, seconds) = (report.planned(), since.elapsed().as_secs_f32());
        println!("[{name}] {planned} tests in {seconds:.1} s");
        if whole && totals.failed.is_empty() {
            passed.remember()?;
        }
        Ok(totals)
    }
}
