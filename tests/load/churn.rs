//! Processes that enter a cgroup by themselves, and what the kernel says each used there.

use std::{
    fs::File,
    io::{self, Error, PipeReader, PipeWriter, Read as _, Write as _},
    os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd},
    time::Duration,
};

use perf_event_open_sys::{
    bindings::{PERF_COUNT_SW_TASK_CLOCK, PERF_TYPE_SOFTWARE, perf_event_attr},
    perf_event_open,
};
use rustix::time::{ClockId, clock_gettime};

use crate::burn;

/// One child after the other enters the cgroups 0, 1, ... below a directory, runs for `each` and
/// exits.
///
/// Prints for each what it used there in ns, by two accounts of the kernel: that of the scheduler,
/// without time that the hypervisor took, and that of perf's task-clock. All run on one CPU, so
/// that a child that was waited for has left it: the scheduler's account of a running task is as
/// old as its last tick.
pub(crate) fn churn(directory: &str, count: u64, each: Duration) -> io::Result<()> {
    let (mut from, mut to) = io::pipe()?;
    for at in 0..count {
        let procs = format!("{directory}/{at}/cgroup.procs");
        // SAFETY: this process has one thread, and the child makes nothing that outlives it.
        match unsafe { clone_with_files() }? {
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

/// fork(2) whose child shares the descriptors: what it opens stays open after its end.
///
/// # Safety
///
/// As of fork.
unsafe fn clone_with_files() -> io::Result<libc::pid_t> {
    let flags = libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: without CLONE_VM the child runs on a copy of this stack.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if pid < 0 {
        return Err(Error::last_os_error());
    }
    Ok(libc::pid_t::try_from(pid).expect("a process id"))
}

/// What the child does.
fn child(procs: &str, each: Duration, to: &mut PipeWriter) -> io::Result<()> {
    let clock = task_clock()?;
    std::fs::write(procs, std::process::id().to_string())?;
    let entered = [process_clock(), count(&clock)?];
    burn(each);
    let number = clock.into_raw_fd();
    let words = [entered[0], entered[1], number.cast_unsigned().into()];
    to.write_all(words.map(u64::to_ne_bytes).as_flattened())
}

/// The end of the child: what it used since it entered.
fn used(pid: libc::pid_t, from: &mut PipeReader) -> io::Result<String> {
    let mut status = 0;
    // SAFETY: rusage is plain integers, filled by the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::wait4(pid, &raw mut status, 0, &raw mut usage) != pid || status != 0 {
            return Err(Error::other("the child failed"));
        }
        usage
    };
    let mut bytes = [0; 24];
    from.read_exact(&mut bytes)?;
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[8 * at + byte]));
    let number = i32::try_from(word(2)).map_err(Error::other)?;
    // SAFETY: the child opened it in our table and gave it to us.
    let clock = File::from(unsafe { OwnedFd::from_raw_fd(number) });
    let nanos = |time: libc::timeval| 1_000 * (1_000_000 * time.tv_sec + time.tv_usec);
    let scheduled = nanos(usage.ru_utime) + nanos(usage.ru_stime);
    let scheduled = scheduled.cast_unsigned() - word(0);
    Ok(format!("{scheduled} {}", count(&clock)? - word(1)))
}

fn process_clock() -> u64 {
    let time = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// This thread's own task-clock.
fn task_clock() -> io::Result<File> {
    let mut attr = perf_event_attr {
        type_: PERF_TYPE_SOFTWARE,
        config: PERF_COUNT_SW_TASK_CLOCK.into(),
        ..Default::default()
    };
    attr.size = u32::try_from(size_of_val(&attr)).unwrap_or(0);
    // SAFETY: a valid structure of the size it states.
    #[expect(clippy::disallowed_methods, reason = "without pmuscope")]
    let event = unsafe { perf_event_open(&mut attr, 0, -1, -1, 0) };
    if event < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: a new descriptor.
    Ok(unsafe { File::from_raw_fd(event) })
}

fn count(mut event: &File) -> io::Result<u64> {
    let mut bytes = [0; 8];
    event.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
