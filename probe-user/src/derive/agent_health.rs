//! An agent's account of itself.

use std::time::Duration;

/// What an agent does and takes, since it started where not said otherwise. Times are in
/// nanoseconds; None where it could not be found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentHealth {
    /// When it started, by the clock of the report.
    pub began: Duration,
    /// The length of a window now.
    pub interval_nanos: Option<u64>,
    /// Windows that were pulled and published.
    pub windows: u64,
    /// Time spent on them.
    pub pull_nanos: u64,
    /// Time spent on the last one.
    pub last_pull_nanos: Option<u64>,
    /// Times counting could not start or go on.
    pub failures: u64,
    /// Times counting began.
    pub sessions: u64,
    /// 1 while a file switches counting off.
    pub off: u64,
    /// Reloads that were taken.
    pub reloads: u64,
    /// Reloads that were refused.
    pub refused_reloads: u64,
    /// Series of the last window.
    pub series: Option<u64>,
    /// Rows of the last window that are folded into one.
    pub folded: u64,
    /// Processes of the last window that are left out, since there is no room for their series.
    pub left_out: u64,
    /// Parts per million of a CPU that the programs and the agent took in the last windows, where
    /// there is a budget.
    pub overhead_ppm: Option<u64>,
    /// The budget.
    pub overhead_budget_ppm: Option<u64>,
    /// What is given up for it: 0 is nothing.
    pub overhead_level: Option<u64>,
    /// 1 while the budget is not kept though everything was given up that can be.
    pub overhead_exceeded: Option<u64>,
    /// Changes of the level.
    pub overhead_changes: u64,
    /// Answers with metrics.
    pub scrapes: u64,
    /// Time until these were ready.
    pub scrape_nanos: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Requests that were answered by an error.
    pub refused_requests: u64,
    /// Connections that were closed to make room, or whose client did not take its answer.
    pub closed_connections: u64,
    /// Lines of JSON that were written.
    pub json_lines: u64,
    /// Lines of JSON that could not be written.
    pub lost_json_lines: u64,
    /// Windows whose totals could not be saved.
    pub failed_saves: u64,
    /// Requests that a collector took.
    pub pushes: u64,
    /// Requests that failed.
    pub failed_pushes: u64,
    /// Data points that a collector refused.
    pub rejected_points: u64,
    /// Windows of which a part was never taken.
    pub lost_pushes: u64,
    /// CPU time of this process.
    pub cpu_nanos: u64,
    /// Bytes of its memory that are resident.
    pub resident: Option<u64>,
    /// Its open file descriptors.
    pub descriptors: Option<u64>,
}
