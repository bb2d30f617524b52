//! The agent's own metrics: its work, its resources, and the counters of its outputs.

use std::{collections::BTreeSet, sync::atomic::Ordering::Relaxed, time::Duration};

use super::published::Published;
use crate::{
    derive::AgentHealth,
    machine::{Machine, Pmus},
    sys::clock::{nanos, now, process_time},
};

/// Collects the agent's own metrics.
pub(super) struct AgentSelfReport {
    pub(super) health: AgentHealth,
    machine: Machine,
    /// Start of the agent, by [`now`].
    pub(super) started: Duration,
    /// Start of the current pull.
    pull_start: Duration,
}

impl AgentSelfReport {
    pub(super) fn new() -> Self {
        Self {
            health: AgentHealth::default(),
            machine: Machine::this(),
            started: now(),
            pull_start: now(),
        }
    }

    /// Names of the PMUs that this machine has now.
    pub(super) fn pmus(&self) -> BTreeSet<String> {
        Pmus::names_below(self.machine.sysfs())
    }

    /// Begins to time a pull.
    pub(super) fn begin_pull(&mut self) {
        self.pull_start = now();
    }

    /// Counts a pull whose window is published, and its time.
    pub(super) fn end_pull(&mut self) {
        let took = nanos(now().saturating_sub(self.pull_start));
        self.health.windows += 1;
        self.health.last_pull_nanos = Some(took);
        self.health.pull_nanos += took;
    }

    /// All metrics, with the counters of the server and the other outputs.
    pub(super) fn collect(&mut self, published: &Published) -> AgentHealth {
        let Published {
            served,
            sent,
            written,
            ..
        } = published;
        let health = &mut self.health;
        health.json_lines = written.lines.load(Relaxed);
        health.lost_json_lines = written.lost.load(Relaxed);
        health.pushes = sent.requests.load(Relaxed);
        health.failed_pushes = sent.failures.load(Relaxed);
        health.rejected_points = sent.rejected_points.load(Relaxed);
        health.lost_pushes = sent.lost_windows.load(Relaxed);
        health.scrapes = served.scrapes.load(Relaxed);
        health.scrape_nanos = served.scrape_nanos.load(Relaxed);
        health.connections = served.connections.load(Relaxed);
        health.refused_requests = served.refused_requests.load(Relaxed);
        health.closed_connections = served.closed_connections.load(Relaxed);
        health.cpu_nanos = nanos(process_time());
        health.resident = self.machine.proc("self/statm").and_then(|text| {
            let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
            pages.checked_mul(rustix::param::page_size() as u64)
        });
        let descriptors = std::fs::read_dir(self.machine.procfs().join("self/fd"));
        // One of the descriptors is the open directory itself.
        health.descriptors = descriptors.ok().map(|all| all.count() as u64 - 1);
        *health
    }
}
