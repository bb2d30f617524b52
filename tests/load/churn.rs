//! Processes that enter a cgroup by themselves, and the kernel's account of their CPU time in it.

use std::{
    io::{self, Error, PipeReader, PipeWriter, Read as _, Write as _},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

use crate::{
    burn,
    clocks::{count, task_clock},
    usage,
};

/// Children enter the cgroups 0, 1, ... below a directory one after another, run for `each` and
/// exit.
///
/// Prints the least and the most CPU time that each child can have used in its cgroup, in ns, and
/// how often it was switched out before its end. The least is the child's task-clock from the end
/// of the call that moves it to its last reading. The most also includes the whole call and the
/// exit, which ends before the parent runs again, since both are on one CPU. perf's task-clock
/// includes time that a hypervisor took.
pub(crate) fn churn(directory: &str, count: u64, each: Duration) -> io::Result<()> {
    let (mut from, mut to) = io::pipe()?;
    for at in 0..count {
        let procs = format!("{directory}/{at}/cgroup.procs");
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            -1 => return Err(Error::last_os_error()),
            0 => {
                let done = child(&procs, each, &mut to);
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(done.is_err())) }
            }
            pid => println!("{}", used(pid, &mut from)?),
        }
    }
    Ok(())
}

/// Runs the child. It writes its task-clock before and after it enters the cgroup and at its end,
/// then the time of its end, and how often it was switched out.
fn child(procs: &str, each: Duration, to: &mut PipeWriter) -> io::Result<()> {
    let clock = task_clock()?;
    let outside = count(&clock)?;
    std::fs::write(procs, std::process::id().to_string())?;
    let inside = count(&clock)?;
    burn(each);
    let words = [outside, inside, count(&clock)?, now(), switches()];
    to.write_all(words.map(u64::to_ne_bytes).as_flattened())
}

/// Waits for the child's end; returns the line to print.
fn used(pid: libc::pid_t, from: &mut PipeReader) -> io::Result<String> {
    let mut status = 0;
    // SAFETY: waits for our child.
    if unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid || status != 0 {
        return Err(Error::other("the child failed"));
    }
    let reaped = now();
    let mut bytes = [0; 40];
    from.read_exact(&mut bytes)?;
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[8 * at + byte]));
    let [outside, inside, last, last_read_at, switches] = [0, 1, 2, 3, 4].map(word);
    Ok(format!(
        "{} {} {switches}",
        last - inside,
        last - outside + reaped - last_read_at
    ))
}

fn switches() -> u64 {
    let usage = usage(libc::RUSAGE_SELF);
    (usage.ru_nvcsw + usage.ru_nivcsw).cast_unsigned()
}

fn now() -> u64 {
    let time = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
