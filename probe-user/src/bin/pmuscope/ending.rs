//! The end of a run: by its command, by Ctrl-C, or by SIGTERM, which service managers and container
//! runtimes send. Also the tokio runtime of a run.

use std::{
    io,
    os::unix::process::ExitStatusExt as _,
    process::{ExitCode, ExitStatus},
};

use anyhow::{Context as _, Result};
use probe_user::session::{Command, RunningCommand};
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
};

/// The command could not be started.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotStarted(pub(crate) io::Error);

/// Timers, signals and descriptors, all on this thread.
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
    /// SIGTERM was sent to the command.
    is_terminating: bool,
}

impl Ending {
    /// Catches signals: from here on they end the run, not this process. Must be called in a tokio
    /// runtime.
    pub(crate) fn listen() -> Result<Self> {
        let interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
        let terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        Ok(Self {
            command: None,
            interrupt,
            terminate,
            is_terminating: false,
        })
    }

    /// Starts the command, if there is one. The run ends with it.
    pub(crate) fn start(&mut self, command: Option<Command>) -> Result<(), NotStarted> {
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

    /// Waits for the end, and returns the status of the command if it ended. The first signal ends
    /// the command, the second one the run without it. Cancel safe: may be dropped and called
    /// again.
    pub(crate) async fn wait(&mut self) -> Result<Option<ExitStatus>> {
        loop {
            tokio::select! {
                status = ended(self.command.as_ref()) => return Ok(Some(status?)),
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
            match &self.command {
                Some(command) if !self.is_terminating => {
                    self.is_terminating = true;
                    command.terminate().context("cannot end the command")?;
                }
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

/// A shell's exit code for this status; success without a command.
pub(crate) fn exit_code(status: Option<ExitStatus>) -> ExitCode {
    let Some(status) = status else {
        return ExitCode::SUCCESS;
    };
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
