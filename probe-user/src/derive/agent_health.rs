//! Self-counters of an agent.

use std::time::Duration;

/// Activity and resources of an agent, since its start unless noted otherwise. Times are in
/// nanoseconds; None if unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentHealth {
    /// Start of the agent, by the clock of the report.
    pub began: Duration,
    /// Current length of a window.
    pub interval_nanos: Option<u64>,
    /// Windows pulled and published.
    pub windows: u64,
    /// Time spent on windows.
    pub pull_nanos: u64,
    /// Time spent on the last window.
    pub last_pull_nanos: Option<u64>,
    /// Times that counting could not start or continue.
    pub failures: u64,
    /// Times that counting started.
    pub sessions: u64,
    /// 1 while a file switches counting off.
    pub off: u64,
    /// Reloads of the configuration.
    pub reloads: u64,
    /// Reloads refused.
    pub refused_reloads: u64,
    /// Series of the last window.
    pub series: Option<u64>,
    /// Rows of the last window folded into one.
    pub folded: u64,
    /// Processes of the last window left out by the limit of series.
    pub left_out: u64,
    /// CPU time of the programs and the agent in the last windows, in parts per million of a CPU;
    /// set if there is a budget.
    pub overhead_ppm: Option<u64>,
    /// The budget, in parts per million of a CPU.
    pub overhead_budget_ppm: Option<u64>,
    /// Degradation level to keep the budget: 0 is none.
    pub overhead_level: Option<u64>,
    /// 1 while the budget is exceeded at the highest level.
    pub overhead_exceeded: Option<u64>,
    /// Changes of the level.
    pub overhead_changes: u64,
    /// Responses with metrics.
    pub scrapes: u64,
    /// Time until these responses were ready.
    pub scrape_nanos: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Requests answered with an error.
    pub refused_requests: u64,
    /// Connections closed for lack of slots, or because the client did not read its response.
    pub closed_connections: u64,
    /// Lines of JSON written.
    pub json_lines: u64,
    /// Lines of JSON that could not be written.
    pub lost_json_lines: u64,
    /// Windows with totals that could not be saved.
    pub failed_saves: u64,
    /// Requests that the collector accepted.
    pub pushes: u64,
    /// Requests that failed.
    pub failed_pushes: u64,
    /// Data points that the collector rejected.
    pub rejected_points: u64,
    /// Windows not completely delivered.
    pub lost_pushes: u64,
    /// CPU time of this process.
    pub cpu_nanos: u64,
    /// Resident memory in bytes.
    pub resident: Option<u64>,
    /// Open file descriptors.
    pub descriptors: Option<u64>,
}
