//! Containers on a node: those that stay, with a task each that works a little at a time, and those
//! that come and go.

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

/// A task in each cgroup below a directory, which works and sleeps for ever. They end with this
/// process.
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

/// Makes a cgroup below a directory, runs a task in it for a moment, removes it, and so on: so many
/// per second, until a file is gone. Prints the id of each.
pub(crate) fn visit(directory: &str, rate: u32, work: Duration, file: &str) -> io::Result<()> {
    let begun = Instant::now();
    let mut visits = 0;
    let mut ids = Vec::new();
    while Path::new(file).exists() {
        // Of an id that no other container has.
        let id = format!("{:08x}{visits:056x}", std::process::id());
        let cgroup = Path::new(directory).join(format!("docker-{id}.scope"));
        fs::create_dir(&cgroup)?;
        ids.push(fs::metadata(&cgroup)?.ino());
        let pid = fork(&cgroup, || burn(work))?;
        let mut status = 0;
        // SAFETY: waits for the child that was made.
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

/// Removes a cgroup that nobody is in: a process that was waited for may leave it a moment later.
pub(crate) fn remove(cgroup: &Path) -> io::Result<()> {
    loop {
        match fs::remove_dir(cgroup) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::yield_now(),
            done => return done,
        }
    }
}

/// A child that is born in a cgroup, so that all that it does is the cgroup's. (One that enters by
/// itself brings time with it, where the kernel's account of a running task is as old as its last
/// tick.)
pub(crate) fn fork(cgroup: &Path, work: impl FnOnce()) -> io::Result<libc::pid_t> {
    let directory = fs::File::open(cgroup)?;
    // SAFETY: plain integers, of which all zeros asks for nothing.
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
