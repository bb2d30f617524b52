//! Self-counters of an agent.

use std::time::Duration;

/// Activity and resources of an agent. Counts are since its start unless noted otherwise. Times are
/// in nanoseconds. None means unavailable.
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
    /// Reloads that were refused: the earlier settings stay.
    pub refused_reloads: u64,
    /// Series of the last window.
    pub series: Option<u64>,
    /// Rows of the last window that were folded into the row `other`.
    pub folded: u64,
    /// Processes of the last window without series, because of the limit of series.
    pub left_out: u64,
    /// CPU time of the programs and the agent in the last windows, in parts per million of a CPU;
    /// set if there is a budget.
    pub overhead_ppm: Option<u64>,
    /// The budget, in parts per million of a CPU.
    pub overhead_budget_ppm: Option<u64>,
    /// Degradation level that keeps the budget; 0 is no degradation.
    pub overhead_level: Option<u64>,
    /// 1 while the budget is exceeded at the highest level.
    pub overhead_exceeded: Option<u64>,
    /// Changes of the degradation level.
    pub overhead_changes: u64,
    /// Responses with metrics.
    pub scrapes: u64,
    /// Time until responses with metrics were ready.
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
    /// Requests to the collector that failed.
    pub failed_pushes: u64,
    /// Data points that the collector rejected.
    pub rejected_points: u64,
    /// Windows that the collector did not accept completely.
    pub lost_pushes: u64,
    /// CPU time of this process.
    pub cpu_nanos: u64,
    /// Resident memory in bytes.
    pub resident: Option<u64>,
    /// Open file descriptors.
    pub descriptors: Option<u64>,
}
