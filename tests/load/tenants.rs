//! Containers on a node: those that stay, with a task each that works a little at a time, and those
//! that come and go.

use std::{
    fs,
    io::{self, Error},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::burn;

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
/// per second, until a file is gone. Prints how many there were.
pub(crate) fn visit(directory: &str, rate: u32, work: Duration, file: &str) -> io::Result<()> {
    let begun = Instant::now();
    let mut visits = 0;
    while Path::new(file).exists() {
        // Of an id that no other container has.
        let id = format!("{:08x}{visits:056x}", std::process::id());
        let cgroup = Path::new(directory).join(format!("docker-{id}.scope"));
        fs::create_dir(&cgroup)?;
        let pid = fork(&cgroup, || burn(work))?;
        let mut status = 0;
        // SAFETY: waits for the child that was made.
        if unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid || status != 0 {
            return Err(Error::other("a visitor failed"));
        }
        // A process that was waited for may leave its cgroup a moment later.
        while let Err(error) = fs::remove_dir(&cgroup) {
            if error.kind() != io::ErrorKind::ResourceBusy {
                return Err(error);
            }
            thread::yield_now();
        }
        visits += 1;
        thread::sleep((begun + visits * Duration::from_secs(1) / rate) - Instant::now());
    }
    println!("{visits}");
    Ok(())
}

/// A child in a cgroup. It enters by itself, so that all that it does from there on is the
/// cgroup's.
fn fork(cgroup: &Path, work: impl FnOnce()) -> io::Result<libc::pid_t> {
    let procs = cgroup.join("cgroup.procs");
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        0 => {
            let entered = set_parent_process_death_signal(Some(Signal::KILL))
                .map_err(Error::from)
                .and_then(|()| fs::write(procs, std::process::id().to_string()));
            if entered.is_ok() {
                work();
            }
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(entered.is_err())) }
        }
        pid if pid > 0 => Ok(pid),
        _ => Err(Error::last_os_error()),
    }
}
