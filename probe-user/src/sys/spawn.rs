//! Starts a command inside a cgroup: clone3(2) with `CLONE_INTO_CGROUP` (kernel 5.7). No
//! instruction of the command runs outside of that cgroup.

use std::{
    ffi::{CString, OsString},
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
        unix::{ffi::OsStringExt as _, process::ExitStatusExt as _},
    },
    process::ExitStatus,
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

/// A child that waits for [`Child::release`] before it becomes the command.
pub(crate) struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    /// Releases the child by a byte; None once it is released.
    release_pipe: Option<io::PipeWriter>,
    /// Gives the errno of a failed exec, or end of file after a successful one.
    exec_error: io::PipeReader,
}

/// The command, running.
pub(crate) struct RunningChild {
    pidfd: OwnedFd,
}

impl Child {
    /// Creates the child, in `cgroup` (a descriptor of its directory) if given.
    pub(crate) fn new(command: &[OsString], cgroup: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let words: Vec<CString> = command
            .iter()
            .map(|word| CString::new(word.clone().into_vec()))
            .collect::<Result<_, _>>()?;
        let mut argv: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
        argv.push(std::ptr::null());
        let (wait_pipe, release_pipe) = io::pipe()?;
        let (exec_error, report_pipe) = io::pipe()?;

        let close_in_child = [release_pipe.as_raw_fd(), exec_error.as_raw_fd()];
        // SAFETY: the child calls only async-signal-safe functions until it execs or exits.
        let Some((pid, pidfd)) = (unsafe { clone_into(cgroup) })? else {
            // SAFETY: in the child; argv is a null-terminated array of C strings made before.
            unsafe {
                become_command(
                    &argv,
                    wait_pipe.as_raw_fd(),
                    report_pipe.as_raw_fd(),
                    close_in_child,
                )
            }
        };
        Ok(Self {
            pid,
            pidfd,
            release_pipe: Some(release_pipe),
            exec_error,
        })
    }

    /// Process id, in this process's pid namespace.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Starts the command. An error says why it could not be executed.
    pub(crate) fn release(mut self) -> io::Result<RunningChild> {
        let running = RunningChild {
            pidfd: self.pidfd.try_clone()?,
        };
        if let Some(mut release_pipe) = self.release_pipe.take() {
            let released = release_pipe.write_all(b"g");
            if let Err(error) = released {
                // The child ended before: nobody else reads the pipe.
                running.wait()?;
                return Err(error);
            }
        }
        // A successful exec closes the child's end of the pipe; if it fails, the child sends an
        // errno.
        let mut errno = [0; 4];
        match self.exec_error.read_exact(&mut errno) {
            Err(end) if end.kind() == io::ErrorKind::UnexpectedEof => Ok(running),
            Err(error) => Err(error),
            Ok(()) => {
                running.wait()?;
                Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
            }
        }
    }
}

impl Drop for Child {
    /// A child that still waits sees end of file on its pipe, and exits.
    fn drop(&mut self) {
        if self.release_pipe.take().is_some() {
            // Drop cannot report an error.
            let _ended = wait(self.pidfd.as_fd());
        }
    }
}

impl Drop for RunningChild {
    /// Leaves no zombie of a command that has ended. Does not wait for one that runs.
    fn drop(&mut self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        // Drop cannot report an error; a command that was waited for is no longer there.
        let _status = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
    }
}

impl RunningChild {
    /// Asks the command to end.
    pub(crate) fn terminate(&self) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(
            &self.pidfd,
            Signal::TERM,
        )?)
    }

    /// Waits for the command's end.
    pub(crate) fn wait(&self) -> io::Result<ExitStatus> {
        wait(self.pidfd.as_fd())
    }
}

fn wait(pidfd: BorrowedFd<'_>) -> io::Result<ExitStatus> {
    loop {
        match rustix::process::waitid(WaitId::PidFd(pidfd), WaitIdOptions::EXITED) {
            Ok(Some(status)) => {
                let raw = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => code << 8,
                    (None, signal) => signal.unwrap_or_default(),
                };
                return Ok(ExitStatus::from_raw(raw));
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Borrows the pidfd, which is readable once the command has ended.
impl AsFd for RunningChild {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl AsRawFd for RunningChild {
    fn as_raw_fd(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }
}

/// Test load: a child in `cgroup` sleeps `sleeps` times on each CPU, for `pause` each time. Each
/// sleep is a switch out of the cgroup and a switch into it; a hook that counts such switches must
/// see both.
pub(crate) fn sleep_on_cpus(
    cgroup: BorrowedFd<'_>,
    cpus: &[u32],
    sleeps: u64,
    pause: Duration,
) -> io::Result<()> {
    let pause = libc::timespec {
        tv_sec: pause.as_secs().cast_signed(),
        tv_nsec: pause.subsec_nanos().into(),
    };
    // SAFETY: the child calls only async-signal-safe functions until it exits.
    match unsafe { clone_into(Some(cgroup)) }? {
        Some((_, pidfd)) => match (RunningChild { pidfd }).wait()?.code() {
            Some(0) => Ok(()),
            status => Err(io::Error::other(format!(
                "the test load ended with {status:?}"
            ))),
        },
        None => {
            // SAFETY: plain system calls on this process's own memory.
            unsafe {
                for &cpu in cpus {
                    let mut set: libc::cpu_set_t = std::mem::zeroed();
                    libc::CPU_SET(cpu as usize, &mut set);
                    if libc::sched_setaffinity(0, size_of_val(&set), &raw const set) != 0 {
                        libc::_exit(1);
                    }
                    for _ in 0..sleeps {
                        libc::nanosleep(&raw const pause, std::ptr::null_mut());
                    }
                }
                libc::_exit(0)
            }
        }
    }
}

/// `CLONE_INTO_CGROUP` of linux/sched.h, which has 34 bits; libc's constant of this name has fewer.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// clone3(2) into a cgroup; None in the child.
///
/// # Safety
///
/// Without `CLONE_VM` the child has a copy of this memory, as after fork: it must call only
/// async-signal-safe functions until it execs or exits.
unsafe fn clone_into(cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<(Pid, OwnedFd)>> {
    let mut pidfd: RawFd = -1;
    // SAFETY: clone_args is plain integers; zero means not used.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = libc::CLONE_PIDFD as u64;
    args.pidfd = std::ptr::from_mut(&mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
    }
    // SAFETY: args is valid and of the size that is passed; the caller keeps the child's promise.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            std::ptr::from_mut(&mut args),
            size_of::<libc::clone_args>(),
        )
    };
    match pid {
        ..0 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => {
            let pid = i32::try_from(pid)
                .ok()
                .and_then(Pid::from_raw)
                .ok_or(io::ErrorKind::InvalidData)?;
            // SAFETY: the kernel stored a new descriptor there, owned by nobody else.
            Ok(Some((pid, unsafe { OwnedFd::from_raw_fd(pidfd) })))
        }
    }
}

/// Waits for the release, then execs; on failure sends errno to the parent.
///
/// # Safety
///
/// Runs in a child after fork; `argv` is a null-terminated array of C strings.
unsafe fn become_command(
    argv: &[*const libc::c_char],
    wait: RawFd,
    report: RawFd,
    close: [RawFd; 2],
) -> ! {
    // SAFETY: only async-signal-safe functions, on descriptors and memory of this process.
    unsafe {
        // These are the parent's ends of the pipes. If the child kept them open, it would not
        // notice the parent's end.
        for fd in close {
            libc::close(fd);
        }
        let mut byte = 0_u8;
        if libc::read(wait, (&raw mut byte).cast(), 1) == 1 {
            // Rust programs ignore SIGPIPE; the command expects the default.
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::execvp(argv[0], argv.as_ptr());
            let errno = io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(0)
                .to_ne_bytes();
            libc::write(report, errno.as_ptr().cast(), errno.len());
        }
        libc::_exit(127)
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    fn child() -> Child {
        Child::new(&["true".into()], None).unwrap()
    }

    /// Waits until a child has ended, and leaves it to be waited for.
    fn await_end(pid: Pid) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while rustix::process::waitid(WaitId::Pid(pid), options)
            .unwrap()
            .is_none()
        {}
    }

    /// Whether nothing is left of a child.
    fn is_gone(pid: Pid) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        matches!(
            rustix::process::waitid(WaitId::Pid(pid), options),
            Err(Errno::CHILD)
        )
    }

    #[test]
    fn a_child_that_does_not_become_the_command_is_gone() {
        let waiting = child();
        let pid = waiting.pid;
        drop(waiting);
        assert!(is_gone(pid));
        let missing = Child::new(&["/nowhere/command".into()], None).unwrap();
        let pid = missing.pid;
        let error = missing.release().map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(is_gone(pid));
        let killed = child();
        let pid = killed.pid;
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        await_end(pid);
        assert!(killed.release().is_err());
        assert!(is_gone(pid));
    }

    #[test]
    fn an_ended_command_is_gone_once_it_is_dropped() {
        let waiting = child();
        let pid = waiting.pid;
        let running = waiting.release().unwrap();
        await_end(pid);
        drop(running);
        assert!(is_gone(pid));
    }
}
