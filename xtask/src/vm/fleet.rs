//! A queue of the guests of one run. Several threads take guests from it, one at a time: a guest
//! keeps about one CPU of this machine busy.

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
    pass_record::PassRecord,
    report::{Report, Show},
    rig::{GuestTask, Rig},
    totals::Totals,
};

/// Which tests run in the guests.
#[derive(Clone, Copy)]
pub(super) struct Selection<'a> {
    /// Part of the tests' names; empty: all tests.
    pub(super) filter: &'a str,
    /// Also run tests that CI leaves out in a guest.
    pub(super) all: bool,
    /// Leave out guests that have not changed since they passed.
    pub(super) changed: bool,
    pub(super) show: Show,
    /// Directory for the recordings that tests make.
    pub(super) record: Option<&'a Path>,
}

/// The guests that wait, and the results of those that ran.
pub(super) struct Fleet<'a> {
    rig: &'a Rig<'a>,
    selection: Selection<'a>,
    state: Mutex<FleetState>,
}

struct FleetState {
    /// Guests to boot; the next is at the end.
    waiting: Vec<&'static Boot>,
    /// The results of all guests that ended, or the error of a guest that could not run.
    totals: Result<Totals>,
}

impl<'a> Fleet<'a> {
    /// A queue of `boots`, in their order.
    pub(super) fn new(rig: &'a Rig<'a>, boots: &[&'static Boot], selection: Selection<'a>) -> Self {
        let waiting = boots.iter().rev().copied().collect();
        Self {
            rig,
            selection,
            state: Mutex::new(FleetState {
                waiting,
                totals: Ok(Totals::default()),
            }),
        }
    }

    /// Boots one guest after another until the queue is empty. Prints results as they come.
    pub(super) fn work(&self) {
        loop {
            let next = self.state().waiting.pop();
            let Some(boot) = next else { return };
            let result = self.run(boot);
            let mut state = self.state();
            match (result, &mut state.totals) {
                (Ok(guest_totals), Ok(totals)) => totals.add(guest_totals),
                (Ok(_), Err(_)) => {}
                (Err(error), _) => {
                    state.waiting.clear();
                    state.totals = Err(error);
                }
            }
        }
    }

    /// The results of all guests.
    ///
    /// # Errors
    ///
    /// A guest could not be prepared or started.
    pub(super) fn totals(&self) -> Result<Totals> {
        mem::replace(&mut self.state().totals, Ok(Totals::default()))
    }

    fn state(&self) -> MutexGuard<'_, FleetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, boot: &Boot) -> Result<Totals> {
        let mut totals = Totals::default();
        let (rig, selection, name) = (self.rig, self.selection, boot.name);
        let kernel = rig.kernel(boot);
        let all = selection.all || !boot.ci;
        let task = GuestTask::Tests {
            filter: selection.filter,
            all,
            record: selection.record.is_some(),
        };
        let initramfs = rig.initramfs(boot, task)?;
        let record = PassRecord::new(rig.directory(), boot, &kernel, &initramfs)?;
        if selection.changed && record.has_passed() {
            println!("[{name}] passed before, and nothing in it has changed");
            totals.unchanged += 1;
            return Ok(totals);
        }
        println!("[{name}] boots");
        let since = Instant::now();
        let is_complete = selection.filter.is_empty();
        let mut report = Report::new(name, &mut totals, is_complete, selection.show);
        guest::run(boot, &kernel, &initramfs, all, &mut report)?;
        if let Some(directory) = selection.record {
            report.write_recordings(directory)?;
        }
        let (planned, seconds) = (report.planned(), since.elapsed().as_secs_f32());
        println!("[{name}] {planned} tests in {seconds:.1} s");
        if is_complete && totals.failed.is_empty() {
            record.write()?;
        }
        Ok(totals)
    }
}
