//! Stages: snapshots to reports, for a session or a recording.

use super::{NeighbourVerdict, Neighbours, Report, lacking, memory_shares, residuals::Residuals};
use crate::{
    join::{Joined, View},
    plan::Plan,
    snapshot::Snapshot,
    window::Window,
};

/// The stages from snapshots to reports, with the state that they keep from earlier snapshots.
pub struct Stages {
    view: View,
    last_snapshot: Snapshot,
    /// The last window, whose totals the next one continues; None before the first.
    last_window: Option<(Window, Joined)>,
    report: Report,
    residuals: Residuals,
}

impl Stages {
    /// Starts with this snapshot.
    #[must_use]
    pub fn new(view: View, first: Snapshot) -> Self {
        Self {
            view,
            last_snapshot: first,
            last_window: None,
            report: Report::default(),
            residuals: Residuals::default(),
        }
    }

    /// Continues the totals of an earlier session.
    pub(crate) fn resume(&mut self, last_window: (Window, Joined)) {
        self.last_window = Some(last_window);
    }

    /// Ends the window that began with the last snapshot.
    pub fn advance(&mut self, plan: &Plan, now: Snapshot) {
        // Only past windows widen the intervals: `verify shares` compares intervals that do not
        // depend on the count of their own window.
        if !plan.calibration.is_empty() {
            self.learn(plan);
        }
        let (window, joined) = match &self.last_window {
            Some((window, joined)) => (window.next(&self.last_snapshot, &now, plan), Some(joined)),
            None => (Window::between(&self.last_snapshot, &now, plan), None),
        };
        self.view.merged_idle = window.merged_idle;
        let joined = self.view.join(plan, &window, joined);
        self.report.renew(plan, &window, &joined, &self.view);
        self.residuals.widen(&mut self.report);
        self.last_window = Some((window, joined));
        self.last_snapshot = now;
    }

    /// Compares the last window's shares with what resctrl counted, if these are the same traffic.
    fn learn(&mut self, plan: &Plan) {
        let shared: Vec<_> = memory_shares(plan).collect();
        let machine = plan.metrics.machine;
        let miscounts = machine.is_some_and(|it| it.platform.spec().resctrl.is_some());
        if lacking(&shared).is_none() && !miscounts {
            let of_memory: Vec<String> = shared.into_iter().map(|(name, _)| name).collect();
            self.residuals.learn(&self.report, &of_memory);
        }
    }

    /// Changes the view, and derives the last window again. Totals of rows begin with that window.
    pub fn change_view(&mut self, plan: &Plan, change: impl FnOnce(&mut View)) {
        change(&mut self.view);
        if let Some((window, _)) = self.last_window.take() {
            let joined = self.view.join(plan, &window, None);
            self.report.renew(plan, &window, &joined, &self.view);
            self.residuals.widen(&mut self.report);
            self.last_window = Some((window, joined));
        }
    }

    /// The view that defines the rows.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The snapshot at the end of the last window.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.last_snapshot
    }

    /// The last window; None before the first.
    pub(crate) fn window(&self) -> Option<&(Window, Joined)> {
        self.last_window.as_ref()
    }

    /// The report of the last window; empty before the first.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Looks for noisy neighbours in the last window, and adds the verdicts to its report.
    pub(crate) fn judge(&mut self, neighbours: &mut Neighbours) -> Vec<NeighbourVerdict> {
        let joined = self.last_window.as_ref().map(|(_, joined)| joined);
        let waits = joined.and_then(|joined| joined.sources.waits.as_ref());
        neighbours.judge(&mut self.report, waits)
    }

    /// Mutable access, for additions before the report is shown.
    pub fn report_mut(&mut self) -> &mut Report {
        &mut self.report
    }
}
