//! What the agent does and takes itself.

use std::{collections::BTreeSet, sync::atomic::Ordering::Relaxed, time::Duration};

use super::published::Published;
use crate::{
    derive::AgentHealth,
    machine::{Machine, Pmus},
    sys::clock::{nanos, now, process_time},
};

/// Its account.
pub(super) struct Own {
    pub(super) health: AgentHealth,
    machine: Machine,
    /// When the agent started, by its own monotonic clock.
    pub(super) started: Duration,
    /// When the pull began that is at work.
    began: Duration,
}

impl Own {
    pub(super) fn new() -> Self {
        Self {
            health: AgentHealth::default(),
            machine: Machine::this(),
            started: now(),
            began: now(),
        }
    }

    /// The names of the PMUs that this machine has now.
    pub(super) fn pmus(&self) -> BTreeSet<String> {
        Pmus::names_below(self.machine.sysfs())
    }

    /// A pull begins.
    pub(super) fn pulls(&mut self) {
        self.began = now();
    }

    /// It ended, and its window is published.
    pub(super) fn pulled(&mut self) {
        let took = nanos(now().saturating_sub(self.began));
        self.health.windows += 1;
        self.health.last_pull_nanos = Some(took);
        self.health.pull_nanos += took;
    }

    /// All counters, with those of the server.
    pub(super) fn now(&mut self, published: &Published) -> AgentHealth {
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
        // One of them is the directory's own.
        health.descriptors = descriptors.ok().map(|all| all.count() as u64 - 1);
        *health
    }
}
