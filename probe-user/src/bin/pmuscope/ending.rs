//! The end of a run: by its command, by Ctrl-C, or by the signal of service managers and container
//! runtimes. Also the tokio runtime that a run waits in.

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

/// What ends a run.
pub(crate) struct Ending {
    command: Option<RunningCommand>,
    interrupt: Signal,
    terminate: Signal,
    /// The command was asked to end.
    asked: bool,
}

impl Ending {
    /// Catches signals: from here on they end the run, not this process. To be called in a runtime.
    pub(crate) fn listen() -> Result<Self> {
        let interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
        let terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        Ok(Self {
            command: None,
            interrupt,
            terminate,
            asked: false,
        })
    }

    /// Starts the command whose end is that of the run.
    pub(crate) fn start(&mut self, command: Option<Command>) -> Result<(), NotStarted> {
        self.command = command
            .map(Command::start)
            .transpose()
            .map_err(NotStarted)?;
        Ok(())
    }

    /// Whether there is a command.
    pub(crate) fn is_of_command(&self) -> bool {
        self.command.is_some()
    }

    /// Waits for the end, and returns how the command ended, if it did. The first signal is passed
    /// on to the command, the second ends the run without it. May be dropped and called again.
    pub(crate) async fn wait(&mut self) -> Result<Option<ExitStatus>> {
        loop {
            tokio::select! {
                status = ended(self.command.as_ref()) => return Ok(Some(status?)),
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
            match &self.command {
                Some(command) if !self.asked => {
                    self.asked = true;
                    command.terminate().context("cannot end the command")?;
                }
                // No command, or one that does not want to end.
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

/// The exit code of a shell for this status; success without a command.
pub(crate) fn exit_code(status: Option<ExitStatus>) -> ExitCode {
    let Some(status) = status else {
        return ExitCode::SUCCESS;
    };
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
