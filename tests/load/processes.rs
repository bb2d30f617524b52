//! Processes that reuse an id, or that take long to exit.

use std::{io, path::Path, time::Duration};

use rustix::{
    process::{Pid, WaitOptions, test_kill_process, waitpid},
    thread::UnshareFlags,
};

use crate::burn;

/// Starts a process with this id and the name `successor`, which uses a CPU until its parent ends.
pub(crate) fn successor(pid: u64) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    // SAFETY: plain integers.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.exit_signal = libc::SIGCHLD as u64;
    arguments.set_tid = (&raw const pid).addr() as u64;
    arguments.set_tid_size = 1;
    let size = size_of_val(&arguments);
    // SAFETY: a valid structure of that size, as fork; this process has no other thread.
    let child = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size) };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            rustix::thread::set_name(c"successor")?;
            burn(Duration::from_secs(600));
            Ok(())
        }
        _ => {
            waitpid(Pid::from_raw(pid), WaitOptions::empty())?;
            Ok(())
        }
    }
}

/// The first process of a pid namespace exits while another process of the namespace is not yet
/// waited for, so that the first one's exit does not complete. Writes the id of the first process
/// to `file`, and waits for both processes when the file is removed.
pub(crate) fn long_exit(file: &Path) -> io::Result<()> {
    // SAFETY: this process has one thread, and shares nothing with others.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) }?;
    let first = child(|| {
        // The second process has this id in the namespace.
        let second = Pid::from_raw(2);
        while second.is_some_and(|second| test_kill_process(second).is_err()) {
            std::thread::yield_now();
        }
        burn(Duration::from_millis(10));
    })?;
    // Killed with the namespace.
    let second = child(|| burn(Duration::from_secs(600)))?;
    let written = file.with_extension("new");
    std::fs::write(&written, first.as_raw_nonzero().to_string())?;
    std::fs::rename(&written, file)?;
    while file.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    for pid in [second, first] {
        waitpid(Some(pid), WaitOptions::empty())?;
    }
    Ok(())
}

/// A child that runs `work` and exits.
fn child(work: impl FnOnce()) -> io::Result<Pid> {
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            work();
            std::process::exit(0)
        }
        pid => Pid::from_raw(pid).ok_or_else(|| io::ErrorKind::NotFound.into()),
    }
}
