//! A line of JSON for each window, in a file or on standard output. A thread of its own writes the
//! lines, so that a slow reader or disk delays no window.

use std::{
    fs::File,
    io::{self, Write},
    mem,
    os::{fd::AsFd as _, unix::fs::FileTypeExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::{config::JsonDestination, privileges, published::JsonCounters};
use crate::{
    derive::Report,
    emit::{Emitter, OutputFormat},
    sys::trusted_files,
};

/// The JSON lines of an agent, and the thread that writes them.
pub(super) struct JsonLines {
    destination: JsonDestination,
    emitter: Emitter<LineSender>,
    /// A reopened output, which the thread uses from the next line on.
    reopened: Arc<Mutex<Option<LineOutput>>>,
    /// Receives once the thread has written the last line.
    ended: Receiver<()>,
}

impl JsonLines {
    /// Opens the output, and starts the thread. A file is created, or appended to.
    ///
    /// # Errors
    ///
    /// If the output cannot be opened, or the thread cannot be started. A named pipe without a
    /// reader is no error.
    pub(super) fn open(
        destination: &JsonDestination,
        counters: &Arc<JsonCounters>,
    ) -> io::Result<Self> {
        let output = LineOutput::open(destination)?;
        let (sender, receiver) = sync_channel(1);
        let (end, ended) = channel();
        let reopened = Arc::new(Mutex::new(None));
        let writer = WriterThread {
            destination: destination.clone(),
            output,
            reopened: Arc::clone(&reopened),
            counters: Arc::clone(counters),
            failing: false,
        };
        let run = move || {
            writer.run(&receiver);
            // Sending fails if `finish` no longer waits.
            let _ = end.send(());
        };
        privileges::run_without(|| thread::Builder::new().name("json".into()).spawn(run))?;
        let sender = LineSender {
            sender,
            counters: Arc::clone(counters),
        };
        Ok(Self {
            destination: destination.clone(),
            emitter: Emitter::new(sender, OutputFormat::Json, true),
            reopened,
            ended,
        })
    }

    /// Opens the output again: log rotation may have renamed the file.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        let output = LineOutput::open(&self.destination)?;
        let mut reopened = self.reopened.lock().unwrap_or_else(PoisonError::into_inner);
        *reopened = Some(output);
        Ok(())
    }

    /// Writes a window. It is lost if the previous window's line is still queued.
    pub(super) fn write(&mut self, report: &Report) {
        if let Err(error) = self.emitter.write(report) {
            tracing::debug!("a line of JSON is lost: {error}");
        }
    }

    /// Waits until the last line is written, at most for `within`.
    pub(super) fn finish(self, within: Duration) {
        drop(self.emitter);
        let _ = self.ended.recv_timeout(within);
    }
}

impl std::fmt::Display for JsonDestination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Sends lines to the thread; at most one is queued.
struct LineSender {
    sender: SyncSender<Vec<u8>>,
    counters: Arc<JsonCounters>,
}

impl Write for LineSender {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.sender.try_send(line.to_owned()) {
            Ok(()) => Ok(line.len()),
            Err(TrySendError::Full(_)) => {
                self.counters.lost.fetch_add(1, Relaxed);
                Err(io::ErrorKind::WouldBlock.into())
            }
            Err(TrySendError::Disconnected(_)) => {
                self.counters.lost.fetch_add(1, Relaxed);
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The thread that writes.
struct WriterThread {
    destination: JsonDestination,
    output: LineOutput,
    reopened: Arc<Mutex<Option<LineOutput>>>,
    counters: Arc<JsonCounters>,
    /// The last line was not written, which was logged.
    failing: bool,
}

impl WriterThread {
    fn run(mut self, lines: &Receiver<Vec<u8>>) {
        for line in lines {
            let reopened = self
                .reopened
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(reopened) = reopened {
                self.output = reopened;
            }
            let written = self.output.write(&line);
            match (&written, self.failing) {
                (Err(error), false) => tracing::warn!(
                    "cannot write {}: {error}; lines are lost until that works again",
                    self.destination
                ),
                (Ok(()), true) => tracing::info!("{} takes lines again", self.destination),
                _ => {}
            }
            self.failing = written.is_err();
            let count = match self.failing {
                true => &self.counters.lost,
                false => &self.counters.lines,
            };
            count.fetch_add(1, Relaxed);
        }
    }
}

/// An output of whole lines: a partial line, as on a full disk, is removed.
enum LineOutput {
    /// Standard output, unbuffered. The flag is true if it ends with a partial line, which cannot
    /// be removed.
    Stdout(File, bool),
    File(File),
    /// A named pipe, while it has a reader.
    Pipe(File, PathBuf),
    /// A named pipe without a reader.
    Unread(PathBuf),
}

impl LineOutput {
    fn open(destination: &JsonDestination) -> io::Result<Self> {
        match destination {
            JsonDestination::Stdout => {
                let own = io::stdout().as_fd().try_clone_to_owned()?;
                Ok(Self::Stdout(File::from(own), false))
            }
            JsonDestination::File(path) => Self::open_file(path),
        }
    }

    fn open_file(path: &Path) -> io::Result<Self> {
        let file = match trusted_files::append(path) {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                return Ok(Self::Unread(path.to_owned()));
            }
            opened => opened?,
        };
        // Writes must block, since a line may be longer than a pipe's buffer.
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        Ok(match file.metadata()?.file_type().is_fifo() {
            true => Self::Pipe(file, path.to_owned()),
            false => Self::File(file),
        })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if let Self::Unread(path) = self {
            *self = Self::open_file(path)?;
        }
        match self {
            Self::Stdout(out, has_partial_line) => {
                if *has_partial_line {
                    out.write_all(b"\n")?;
                }
                let written = out.write_all(line);
                *has_partial_line = written.is_err();
                written
            }
            Self::File(file) => {
                let before = file.metadata()?.len();
                file.write_all(line).inspect_err(|_| {
                    // Fails for a device, which has no length.
                    let _ = file.set_len(before);
                })
            }
            Self::Pipe(file, path) => {
                let written = file.write_all(line);
                if written.is_err() {
                    *self = Self::Unread(mem::take(path));
                }
                written
            }
            Self::Unread(_) => Err(io::Error::other("nobody reads it")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        os::{fd::OwnedFd, unix::net::UnixStream},
    };

    use super::*;

    #[test]
    fn a_line_after_a_partial_line_is_whole() {
        let (ours, mut reader) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut output = LineOutput::Stdout(File::from(OwnedFd::from(ours)), false);
        let long = vec![b'a'; 16 << 20];
        output.write(&long).unwrap_err();
        // The newline that would end the partial line does not fit either.
        output.write(b"lost\n").unwrap_err();
        reader.set_nonblocking(true).unwrap();
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap_err();
        output.write(b"first\n").unwrap();
        output.write(b"second\n").unwrap();
        drop(output);
        reader.read_to_end(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let whole: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(whole, ["first", "second"]);
    }
}
