//! Ends a run: when its command or its watched processes end, on Ctrl-C, on SIGTERM (which service
//! managers and container runtimes send), at the end of a terminal's session, or after a time. Also
//! creates the tokio runtime of a run.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    process::{ExitCode, ExitStatus},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use probe_user::{
    machine::Machine,
    session::{Command, RunningCommand},
};
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep_until},
};

/// The command could not be started.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotStarted(pub(crate) io::Error);

/// The tokio runtime of a run: its timers, signals and descriptors all use this thread.
pub(crate) fn runtime() -> Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the timers")
}

/// Waits for the end of a run.
pub(crate) struct Ending {
    command: Option<RunningCommand>,
    interrupt: Signal,
    terminate: Signal,
    /// SIGHUP: the terminal's session was closed. None if this process ignores it, as behind
    /// `nohup`.
    hangup: Option<Signal>,
    /// Processes of the user's choice: the run ends when all of them have ended.
    watched: Vec<AsyncFd<OwnedFd>>,
    /// When the timeout of the user ends the run; None: no timeout, or it has passed.
    deadline: Option<Instant>,
    /// SIGTERM was sent to the command.
    is_terminating: bool,
}

impl Ending {
    /// Catches signals: from here on they end the run, not this process. Must be called in a tokio
    /// runtime.
    pub(crate) fn listen() -> Result<Self> {
        let interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
        let terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let hangup = match ignores_hangup() {
            true => None,
            false => Some(signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?),
        };
        Ok(Self {
            command: None,
            interrupt,
            terminate,
            hangup,
            watched: Vec::new(),
            deadline: None,
            is_terminating: false,
        })
    }

    /// Starts the command, if there is one. The run ends with it, after `timeout`, or when the
    /// processes `pids` have ended.
    pub(crate) fn start(
        &mut self,
        command: Option<Command>,
        timeout: Option<Duration>,
        pids: &[u32],
    ) -> Result<()> {
        self.watched = pids.iter().map(|pid| watch(*pid)).collect::<Result<_>>()?;
        self.deadline = timeout.map(|timeout| Instant::now() + timeout);
        self.command = command
            .map(Command::start)
            .transpose()
            .map_err(NotStarted)?;
        Ok(())
    }

    /// Whether the run has a command.
    pub(crate) fn has_command(&self) -> bool {
        self.command.is_some()
    }

    /// Waits for the end, and returns the status of the command if it ended. The first signal, and
    /// the timeout, end the command. A second signal of the user ends the run without waiting for
    /// the command. Cancel safe: may be dropped and called again.
    pub(crate) async fn wait(&mut self) -> Result<Option<ExitStatus>> {
        loop {
            let is_from_user = tokio::select! {
                status = ended(self.command.as_ref()) => return Ok(Some(status?)),
                _ = self.interrupt.recv() => true,
                _ = self.terminate.recv() => true,
                // SIGHUP does not count as the user's second signal: the shell and the kernel may
                // both send it.
                () = received(self.hangup.as_mut()) => false,
                () = all_ended(&self.watched) => return Ok(None),
                () = reached(self.deadline) => {
                    self.deadline = None;
                    false
                }
            };
            match &self.command {
                Some(command) if !self.is_terminating => {
                    self.is_terminating = true;
                    command.terminate().context("cannot end the command")?;
                }
                Some(_) if !is_from_user => {}
                // There is no command, or it ignored SIGTERM.
                _ => return Ok(None),
            }
        }
    }
}

async fn ended(command: Option<&RunningCommand>) -> io::Result<ExitStatus> {
    match command {
        Some(command) => command.ended().await,
        None => std::future::pending().await,
    }
}

/// Opens a descriptor that is readable once the process has ended.
fn watch(pid: u32) -> Result<AsyncFd<OwnedFd>> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let opened = number.map_or(Err(Errno::SRCH), |pid| {
        pidfd_open(pid, PidfdFlags::NONBLOCK)
    });
    let descriptor = opened.map_err(|error| match error {
        // An id that belongs only to a thread is no process either.
        Errno::SRCH | Errno::INVAL | Errno::NOENT => {
            anyhow!("--pid {pid}: there is no such process")
        }
        error => anyhow!("--pid {pid}: cannot wait for its end: {error}"),
    })?;
    // SAFETY: the AsyncFd owns the descriptor.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    Ok(watched?)
}

/// Waits for the end of all processes, if there are any.
async fn all_ended(watched: &[AsyncFd<OwnedFd>]) {
    if watched.is_empty() {
        return std::future::pending().await;
    }
    for process in watched {
        // An error would repeat, so the process then counts as ended.
        drop(process.readable().await);
    }
}

async fn received(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Whether this process ignores a hangup, as it does behind `nohup`.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string(Machine::this().roots().proc.join("self/status"));
    let status = status.unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Bit 0 is signal 1, SIGHUP.
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// The exit code that a shell reports for this status; success for None: no command ended.
pub(crate) fn exit_code(status: Option<ExitStatus>) -> ExitCode {
    let Some(status) = status else {
        return ExitCode::SUCCESS;
    };
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
