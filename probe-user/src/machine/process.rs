//! Facts of a process in procfs (`proc_pid_stat(5)`, `proc_pid_status(5)`), except its mappings.

use std::{fs, path::Path};

use rustix::time::{ClockId, clock_gettime};

use crate::sys::clock::{nanos, now};

/// Maximum error of [`start_time`] in ns: procfs has whole ticks, and clocks are read one by one.
pub(crate) const START_TIME_ERROR: u64 = 10_000_000;

/// Fields of a process's `stat`.
pub(super) struct ProcessStat {
    pub(super) name: String,
    /// CPU time in ticks, with the times of threads that ended.
    pub(super) cpu_time: u64,
    /// Start in ticks since the boot.
    pub(super) start: u64,
    pub(super) resident_pages: u64,
}

/// Reads `stat`; None if the process is gone.
pub(super) fn stat(proc: &Path, pid: u32) -> Option<ProcessStat> {
    let stat = fs::read(proc.join(format!("{pid}/stat"))).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name is in parentheses, and may contain parentheses.
    let (name, fields) = stat.rsplit_once(") ")?;
    let (_, name) = name.split_once('(')?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let number = |at: usize| fields.get(at)?.trim().parse::<u64>().ok();
    Some(ProcessStat {
        name: name.to_owned(),
        cpu_time: number(11)? + number(12)?,
        start: number(19)?,
        resident_pages: number(21)?,
    })
}

/// Start time of a process in ns of `CLOCK_MONOTONIC`, within [`START_TIME_ERROR`]. None if it is
/// gone.
pub(crate) fn start_time(proc: &Path, pid: u32) -> Option<u64> {
    let ticks = stat(proc, pid)?.start;
    let boot = clock_gettime(ClockId::Boottime);
    let boot =
        u64::try_from(boot.tv_sec).ok()? * 1_000_000_000 + u64::try_from(boot.tv_nsec).ok()?;
    // Only `CLOCK_BOOTTIME` includes time in suspend.
    let suspended = boot.saturating_sub(nanos(now()));
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    Some(ticks.saturating_mul(tick).saturating_sub(suspended))
}

/// The process that created or adopted this one; None without one.
pub(crate) fn parent(proc: &Path, pid: u32) -> Option<u32> {
    field(proc, pid, "PPid:")?
        .parse()
        .ok()
        .filter(|parent| *parent != 0)
}

/// The id of a process in its own pid namespace.
pub(crate) fn pid_in_own_namespace(proc: &Path, pid: u32) -> Option<u32> {
    field(proc, pid, "NSpid:")?
        .split_whitespace()
        .next_back()?
        .parse()
        .ok()
}

/// The id of a thread that still has the process's memory and root: `pid`, unless the main thread
/// has ended. In procfs this id has all files of a process.
pub(crate) fn surviving_thread(proc: &Path, pid: u32) -> u32 {
    if !has_ended(proc, pid) {
        return pid;
    }
    let entries = fs::read_dir(proc.join(format!("{pid}/task")));
    let mut threads = entries.into_iter().flatten().filter_map(|thread| {
        let thread = thread.ok()?.file_name();
        thread.to_str()?.parse::<u32>().ok()
    });
    threads
        .find(|tid| *tid != pid && !has_ended(proc, *tid))
        .unwrap_or(pid)
}

/// Whether a thread has ended (zombie or dead).
fn has_ended(proc: &Path, tid: u32) -> bool {
    let state = field(proc, tid, "State:");
    state.is_some_and(|state| state.starts_with(['Z', 'X']))
}

/// The effective user id of a process.
pub(crate) fn effective_uid(proc: &Path, pid: u32) -> Option<u32> {
    field(proc, pid, "Uid:")?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// Whether a process has more than one thread.
pub(crate) fn has_threads(proc: &Path, pid: u32) -> bool {
    let threads = field(proc, pid, "Threads:").and_then(|threads| threads.parse::<u32>().ok());
    threads.is_some_and(|threads| threads > 1)
}

fn field(proc: &Path, pid: u32, name: &str) -> Option<String> {
    let status = fs::read(proc.join(format!("{pid}/status"))).ok()?;
    let status = String::from_utf8_lossy(&status);
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().to_owned())
}
