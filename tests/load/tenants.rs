//! Containers on a node: permanent ones with a mostly idle task each, and short-lived ones.

use std::{
    fs,
    io::{self, Error},
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::burn;

/// linux/sched.h; libc's constant of this name does not hold 34 bits.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Starts a task in each cgroup below a directory. The tasks alternately work and sleep, and end
/// with this process.
pub(crate) fn stay(directory: &str, work: Duration, sleep: Duration) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        fork(&entry.path(), || {
            loop {
                burn(work);
                thread::sleep(sleep);
            }
        })?;
    }
    loop {
        thread::park();
    }
}

/// Makes cgroups below a directory, `rate` per second, until a file is removed. A task runs briefly
/// in each cgroup, which is then removed. Prints the ids of all cgroups.
pub(crate) fn visit(directory: &str, rate: u32, work: Duration, file: &str) -> io::Result<()> {
    let begun = Instant::now();
    let mut visits = 0;
    let mut ids = Vec::new();
    while Path::new(file).exists() {
        // A unique container id.
        let id = format!("{:08x}{visits:056x}", std::process::id());
        let cgroup = Path::new(directory).join(format!("docker-{id}.scope"));
        fs::create_dir(&cgroup)?;
        ids.push(fs::metadata(&cgroup)?.ino());
        let pid = fork(&cgroup, || burn(work))?;
        let mut status = 0;
        // SAFETY: waits for our child.
        if unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid || status != 0 {
            return Err(Error::other("a visitor failed"));
        }
        remove(&cgroup)?;
        visits += 1;
        thread::sleep((begun + visits * Duration::from_secs(1) / rate) - Instant::now());
    }
    ids.iter().for_each(|id| println!("{id}"));
    Ok(())
}

/// Removes an empty cgroup. Retries, since a process may leave it only some time after it was
/// waited for.
pub(crate) fn remove(cgroup: &Path) -> io::Result<()> {
    loop {
        match fs::remove_dir(cgroup) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::yield_now(),
            done => return done,
        }
    }
}

/// Starts a child in a cgroup, so that all its time belongs to the cgroup. (A process that enters
/// by itself also brings earlier time, since the kernel accounts a running task only at ticks.)
pub(crate) fn fork(cgroup: &Path, work: impl FnOnce()) -> io::Result<libc::pid_t> {
    let directory = fs::File::open(cgroup)?;
    // SAFETY: plain integers; all zeros is valid.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = CLONE_INTO_CGROUP;
    args.exit_signal = libc::SIGCHLD.cast_unsigned().into();
    args.cgroup = directory.as_raw_fd().cast_unsigned().into();
    // SAFETY: as fork(2): the child runs on a copy of this stack, and this process has one thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of_val(&args)) };
    if pid < 0 {
        return Err(Error::last_os_error());
    }
    if pid == 0 {
        let bound = set_parent_process_death_signal(Some(Signal::KILL));
        if bound.is_ok() {
            work();
        }
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(bound.is_err())) }
    }
    Ok(libc::pid_t::try_from(pid).expect("a process id"))
}
