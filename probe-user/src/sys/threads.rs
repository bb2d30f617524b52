//! Threads that work together, each on its own CPU.

use std::{
    io,
    thread::{Builder, Scope, ScopedJoinHandle},
};

use rustix::thread::{CpuSet, sched_setaffinity};

/// Starts all threads. If one cannot start, calls `release`, which must end the threads that were
/// started before it: they may wait for all threads.
pub(crate) fn spawn_all<'scope, W, T>(
    scope: &'scope Scope<'scope, '_>,
    threads: impl IntoIterator<Item = (Builder, W)>,
    release: impl FnOnce(),
) -> io::Result<Vec<ScopedJoinHandle<'scope, T>>>
where
    W: FnOnce() -> T + Send + 'scope,
    T: Send + 'scope,
{
    let spawned = threads
        .into_iter()
        .map(|(builder, work)| builder.spawn_scoped(scope, work));
    let spawned = spawned.collect();
    if io::Result::is_err(&spawned) {
        release();
    }
    spawned
}

/// Pins this thread to a CPU.
pub(crate) fn pin(cpu: u32) -> io::Result<()> {
    let cpu = usize::try_from(cpu).map_err(io::Error::other)?;
    let mut only = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    only.set(cpu);
    Ok(sched_setaffinity(None, &only)?)
}
