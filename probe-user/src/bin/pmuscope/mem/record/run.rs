//! Runs a recording: drains its buffers when the kernel wakes it and by a timer, until its target
//! ends or Ctrl-C.

use std::{
    io::{self, IsTerminal as _, Write as _},
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    process::ExitStatus,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use probe_user::{
    pipeline::readable,
    samples::{RecordError, RecordTarget, Recorder, Sink},
    session::Command,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{MissedTickBehavior, interval},
};

use crate::{ending::Ending, print::note};

/// What ends a recording, apart from Ctrl-C.
pub(crate) enum End {
    /// The exit of the command, if there is one.
    Command,
    /// The exit of a process that already ran.
    Process(AsyncFd<OwnedFd>),
}

impl End {
    pub(crate) fn for_target(target: &RecordTarget) -> Result<Self, RecordError> {
        let RecordTarget::Process(pid) = target else {
            return Ok(Self::Command);
        };
        let process = i32::try_from(*pid).ok().and_then(Pid::from_raw);
        let fd = process
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
            .ok_or(RecordError::NoProcess(*pid))?;
        // SAFETY: the AsyncFd owns the descriptor.
        let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        registered
            .map(Self::Process)
            .map_err(|error| RecordError::Poll(error.into()))
    }
}

/// Starts the command, and drains records into `sink` until the recording ends, and once more after
/// that. The returned time excludes this last drain.
pub(crate) async fn until_the_end(
    recorder: &mut Recorder,
    sink: &dyn Sink,
    command: Option<Command>,
    end: End,
    show_progress: bool,
) -> Result<Option<CommandExit>> {
    let mut ending = Ending::listen()?;
    // From here on Ctrl-C is caught.
    if command.is_none() {
        note(format_args!("recording; Ctrl-C ends it"));
    }
    let hotplug = { recorder.hotplug_fd() }
        .map(|fd| listen(fd, recorder))
        .transpose()?;
    let poll = listen(recorder.poll().as_raw_fd(), recorder)?;
    let start = Instant::now();
    ending.start(command, None, &[])?;
    let mut timer = interval(recorder.pace());
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut progress = Progress::new(show_progress);
    let ended = loop {
        tokio::select! {
            ended = ending.wait() => {
                let time = start.elapsed();
                break ended?.map(|status| CommandExit { status, time });
            }
            process = process_exit(&end) => {
                process?;
                break None;
            }
            ready = poll.readable() => {
                ready.context("cannot wait for the buffers")?.clear_ready();
                recorder.woken()?;
                recorder.round(sink)?;
            }
            ready = readable(hotplug.as_ref()) => {
                ready.context("cannot listen for CPUs that come and go")?.clear_ready();
                recorder.round(sink)?;
            }
            _ = timer.tick() => {
                recorder.round(sink)?;
                progress.show(recorder);
            }
        }
    };
    drop((poll, hotplug));
    recorder.finish(sink)?;
    progress.clear();
    Ok(ended)
}

/// The exit of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandExit {
    pub(crate) status: ExitStatus,
    /// The time from the command's start to its end.
    pub(crate) time: Duration,
}

/// Registers one of the recorder's descriptors, which must outlive the returned `AsyncFd`.
fn listen(fd: RawFd, _owner: &Recorder) -> Result<AsyncFd<RawFd>> {
    // SAFETY: the recorder owns the descriptor, and its caller drops the AsyncFd first.
    let listening = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    listening.context("cannot wait for the buffers")
}

async fn process_exit(end: &End) -> io::Result<()> {
    match end {
        End::Process(fd) => fd.readable().await.map(drop),
        End::Command => std::future::pending().await,
    }
}

/// A progress line on the terminal, overwritten each second.
struct Progress {
    is_on: bool,
    /// When the rate was last measured, and the number of samples until then.
    last: Option<(Instant, u64)>,
}

impl Progress {
    fn new(is_on: bool) -> Self {
        Self {
            is_on: is_on && io::stderr().is_terminal(),
            last: None,
        }
    }

    fn show(&mut self, recorder: &Recorder) {
        let now = Instant::now();
        let counts = recorder.counts();
        let Some((then, before)) = self.last else {
            self.last = Some((now, counts.samples));
            return;
        };
        let since = now - then;
        if !self.is_on || since < Duration::from_secs(1) {
            return;
        }
        self.last = Some((now, counts.samples));
        #[expect(clippy::cast_precision_loss, reason = "a rate for the eye")]
        let rate = (counts.samples - before) as f64 / since.as_secs_f64();
        let losses = counts.losses();
        let lost = if losses.is_empty() {
            "nothing lost"
        } else {
            &losses
        };
        // The terminal may be gone.
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{} samples, {rate:.0}/s; {lost}",
            counts.samples
        );
    }

    fn clear(&self) {
        if self.is_on && self.last.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
