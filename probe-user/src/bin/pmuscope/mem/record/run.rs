//! A recording from its start to its end: drained when a buffer is full enough and by a timer,
//! ended by its target or by Ctrl-C.

use std::{
    io::{self, IsTerminal as _},
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    process::ExitStatus,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use probe_user::{
    pipeline::readable,
    record::{RecordError, Recorder, Sink, Target},
    session::Command,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{MissedTickBehavior, interval},
};

use crate::{ending::Ending, print::note};

/// What ends a recording, besides Ctrl-C.
pub(crate) enum End {
    /// The command's end, if there is a command.
    Command,
    /// The end of a process that existed before.
    Process(AsyncFd<OwnedFd>),
}

impl End {
    pub(crate) fn of(target: &Target) -> Result<Self, RecordError> {
        let Target::Process(pid) = target else {
            return Ok(Self::Command);
        };
        let process = i32::try_from(*pid).ok().and_then(Pid::from_raw);
        let fd = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let fd = fd.ok_or(RecordError::NoProcess(*pid))?;
        // SAFETY: the AsyncFd owns the descriptor.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        fd.map(Self::Process)
            .map_err(|error| RecordError::Poll(error.into()))
    }
}

/// Starts the command, drains what is recorded into `sink` until the end, and drains what is left.
/// The time from the command's start to its end is measured before the last drain.
pub(crate) async fn until_the_end(
    recorder: &mut Recorder,
    sink: &dyn Sink,
    command: Option<Command>,
    end: End,
    progress: bool,
) -> Result<Option<Ended>> {
    let mut ending = Ending::listen()?;
    // From here on it does.
    if command.is_none() {
        note(format_args!("recording; Ctrl-C ends it"));
    }
    let hotplug = recorder.hotplug_fd().map(|fd| listen(fd, recorder));
    let hotplug = hotplug.transpose()?;
    let poll = listen(recorder.poll().as_raw_fd(), recorder)?;
    let start = Instant::now();
    ending.start(command)?;
    let mut timer = interval(recorder.pace());
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut progress = Progress::new(progress);
    let ended = loop {
        tokio::select! {
            ended = ending.wait() => {
                let time = start.elapsed();
                break ended?.map(|status| Ended { status, time });
            }
            process = gone(&end) => {
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

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// From its start to its end.
    pub(crate) time: Duration,
}

/// One of the recorder's descriptors, which outlive the `AsyncFd` made of it here.
fn listen(fd: RawFd, _owner: &Recorder) -> Result<AsyncFd<RawFd>> {
    // SAFETY: the recorder owns the descriptor, and its caller drops the AsyncFd first.
    let listening = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    listening.context("cannot wait for the buffers")
}

async fn gone(end: &End) -> io::Result<()> {
    match end {
        End::Process(fd) => fd.readable().await.map(drop),
        End::Command => std::future::pending().await,
    }
}

/// One line on the terminal, written over each second.
struct Progress {
    on: bool,
    shown: Option<(Instant, u64)>,
}

impl Progress {
    fn new(on: bool) -> Self {
        Self {
            on: on && io::stderr().is_terminal(),
            shown: None,
        }
    }

    fn show(&mut self, recorder: &Recorder) {
        let now = Instant::now();
        let counts = recorder.counts();
        let Some((last, before)) = self.shown else {
            self.shown = Some((now, counts.samples));
            return;
        };
        let since = now - last;
        if !self.on || since < Duration::from_secs(1) {
            return;
        }
        self.shown = Some((now, counts.samples));
        #[expect(clippy::cast_precision_loss, reason = "a rate for the eye")]
        let rate = (counts.samples - before) as f64 / since.as_secs_f64();
        let losses = counts.losses();
        let lost = if losses.is_empty() {
            "nothing lost"
        } else {
            &losses
        };
        eprint!("\r\x1b[K{} samples, {rate:.0}/s; {lost}", counts.samples);
    }

    fn clear(&self) {
        if self.on && self.shown.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}
