//! What procfs tells of a process besides its mappings (`proc_pid_stat(5)`, `proc_pid_status(5)`).

use std::{fs, path::Path};

use rustix::time::{ClockId, clock_gettime};

use crate::sys::clock::{nanos, now};

/// ns by which [`born`] may be wrong: procfs has whole ticks, and the clocks are read one by one.
pub(crate) const TICK: u64 = 10_000_000;

/// When a process began, in ns of `CLOCK_MONOTONIC`, give or take [`TICK`]; None where it is gone.
pub(crate) fn born(proc: &Path, pid: u32) -> Option<u64> {
    let stat = fs::read(proc.join(format!("{pid}/stat"))).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name is in parentheses, and may have such in it.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks: u64 = fields.split(' ').nth(19)?.parse().ok()?;
    let boot = clock_gettime(ClockId::Boottime);
    let boot =
        u64::try_from(boot.tv_sec).ok()? * 1_000_000_000 + u64::try_from(boot.tv_nsec).ok()?;
    // Time in suspend is in one of the clocks only.
    let suspended = boot.saturating_sub(nanos(now()));
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    Some(ticks.saturating_mul(tick).saturating_sub(suspended))
}

/// The process that made it, or took it over.
pub(crate) fn parent(proc: &Path, pid: u32) -> Option<u32> {
    field(proc, pid, "PPid:")?
        .parse()
        .ok()
        .filter(|parent| *parent != 0)
}

/// Its number in its own pid namespace, by which it knows itself.
pub(crate) fn own_number(proc: &Path, pid: u32) -> Option<u32> {
    field(proc, pid, "NSpid:")?
        .split_whitespace()
        .next_back()?
        .parse()
        .ok()
}

/// The number of a thread of it that still has its memory and its root: its own, unless its first
/// thread has ended. In procfs that number has all that a process has.
pub(crate) fn living(proc: &Path, pid: u32) -> u32 {
    if !has_ended(proc, pid) {
        return pid;
    }
    let threads = fs::read_dir(proc.join(format!("{pid}/task")));
    let mut threads = threads.into_iter().flatten().filter_map(|thread| {
        let thread = thread.ok()?.file_name();
        thread.to_str()?.parse::<u32>().ok()
    });
    threads
        .find(|tid| *tid != pid && !has_ended(proc, *tid))
        .unwrap_or(pid)
}

/// Whether a thread has ended, and waits for its process or its parent.
fn has_ended(proc: &Path, tid: u32) -> bool {
    let state = field(proc, tid, "State:");
    state.is_some_and(|state| state.starts_with(['Z', 'X']))
}

/// Its effective user.
pub(crate) fn user(proc: &Path, pid: u32) -> Option<u32> {
    field(proc, pid, "Uid:")?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// Whether it has more threads than its first one.
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
