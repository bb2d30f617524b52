//! Loads whose CPU time differs between the scheduler's clock and perf's.

use std::{
    error::Error,
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd as _, FromRawFd as _},
    time::{Duration, Instant},
};

use perf_event_open_sys::{
    bindings::{PERF_COUNT_SW_TASK_CLOCK, PERF_TYPE_SOFTWARE, perf_event_attr},
    perf_event_open,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Resource, getrlimit, setrlimit},
};

use crate::burn;

/// Makes system calls that take as long as the kernel allows: polls one file many times in each.
/// A kernel that is not preemptible ends the call before it switches to a task that wakes.
pub(crate) fn long_calls(time: Duration) -> Result<(), Box<dyn Error>> {
    /// Polling this many files takes some 0.3 ms.
    const MOST_FILES: u64 = 20_000;
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    let (from, _to) = io::pipe()?;
    let count = usize::try_from(limit.maximum.unwrap_or(MOST_FILES).min(MOST_FILES))?;
    let mut files = vec![PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN); count];
    let end = Instant::now() + time;
    while Instant::now() < end {
        poll(&mut files, Some(&Timespec::default()))?;
    }
    Ok(())
}

/// Runs and sleeps in turns. Prints its task-clock as perf counts it, in ns.
pub(crate) fn naps(count_of_naps: u64, run: Duration, sleep: Duration) -> io::Result<()> {
    let clock = task_clock()?;
    for _ in 0..count_of_naps {
        burn(run);
        std::thread::sleep(sleep);
    }
    println!("{}", count(&clock)?);
    Ok(())
}

/// This thread's own task-clock.
pub(crate) fn task_clock() -> io::Result<File> {
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
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor.
    Ok(unsafe { File::from_raw_fd(event) })
}

pub(crate) fn count(mut event: &File) -> io::Result<u64> {
    let mut bytes = [0; 8];
    event.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
