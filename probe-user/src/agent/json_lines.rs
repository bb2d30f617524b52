//! A line of JSON for each window, in a file or on standard output. A thread of its own writes
//! them: a reader that does not read, or a disk that hangs, holds no window up.

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

use super::{config::JsonTo, published::Written, rights};
use crate::{
    derive::Report,
    emit::{Emitter, Format},
    sys::own_files,
};

/// Where lines go.
pub(super) struct JsonLines {
    to: JsonTo,
    emitter: Emitter<Waiting>,
    /// What lines go to from the next one on.
    next: Arc<Mutex<Option<Lines>>>,
    ended: Receiver<()>,
}

impl JsonLines {
    /// Opens a file at its end, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// Where it cannot be opened, or there can be no thread. A named pipe that nobody reads is no
    /// error.
    pub(super) fn open(to: &JsonTo, written: &Arc<Written>) -> io::Result<Self> {
        let lines = Lines::open(to)?;
        let (sender, receiver) = sync_channel(1);
        let (end, ended) = channel();
        let next = Arc::new(Mutex::new(None));
        let writer = Writer {
            to: to.clone(),
            lines,
            next: Arc::clone(&next),
            written: Arc::clone(written),
            fails: false,
        };
        let writes = move || {
            writer.run(&receiver);
            // Nobody may wait for it.
            let _ = end.send(());
        };
        rights::without(|| thread::Builder::new().name("json".into()).spawn(writes))?;
        let waiting = Waiting {
            sender,
            written: Arc::clone(written),
        };
        Ok(Self {
            to: to.clone(),
            emitter: Emitter::new(waiting, Format::Json, true).with_time(),
            next,
            ended,
        })
    }

    /// Opens it again: a file may have another name by now.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        let lines = Lines::open(&self.to)?;
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next = Some(lines);
        Ok(())
    }

    /// Writes a window. It is lost where the line of the one before still waits.
    pub(super) fn write(&mut self, report: &Report) {
        if let Err(error) = self.emitter.write(report) {
            tracing::debug!("a line of JSON is lost: {error}");
        }
    }

    /// Waits until the last line is written, or for so long.
    pub(super) fn finish(self, within: Duration) {
        drop(self.emitter);
        let _ = self.ended.recv_timeout(within);
    }
}

impl std::fmt::Display for JsonTo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// The line that waits for the thread.
struct Waiting {
    sender: SyncSender<Vec<u8>>,
    written: Arc<Written>,
}

impl Write for Waiting {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.sender.try_send(line.to_owned()) {
            Ok(()) => Ok(line.len()),
            Err(TrySendError::Full(_)) => {
                self.written.lost.fetch_add(1, Relaxed);
                Err(io::ErrorKind::WouldBlock.into())
            }
            Err(TrySendError::Disconnected(_)) => {
                self.written.lost.fetch_add(1, Relaxed);
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The thread that writes.
struct Writer {
    to: JsonTo,
    lines: Lines,
    next: Arc<Mutex<Option<Lines>>>,
    written: Arc<Written>,
    /// The last line was not written, and that was said.
    fails: bool,
}

impl Writer {
    fn run(mut self, lines: &Receiver<Vec<u8>>) {
        for line in lines {
            let next = self
                .next
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(next) = next {
                self.lines = next;
            }
            let written = self.lines.write(&line);
            match (&written, self.fails) {
                (Err(error), false) => tracing::warn!(
                    "cannot write {}: {error}; lines are lost until that works again",
                    self.to
                ),
                (Ok(()), true) => tracing::info!("{} takes lines again", self.to),
                _ => {}
            }
            self.fails = written.is_err();
            let count = match self.fails {
                true => &self.written.lost,
                false => &self.written.lines,
            };
            count.fetch_add(1, Relaxed);
        }
    }
}

/// Whole lines: a part of one, where the disk is full, is taken back.
enum Lines {
    /// Unbuffered, and whether a part of a line stands there: what it is does not let that be taken
    /// back.
    Stdout(File, bool),
    File(File),
    /// A named pipe, while it has a reader.
    Pipe(File, PathBuf),
    /// While it has none.
    Unread(PathBuf),
}

impl Lines {
    fn open(to: &JsonTo) -> io::Result<Self> {
        match to {
            JsonTo::Stdout => {
                let own = io::stdout().as_fd().try_clone_to_owned()?;
                Ok(Self::Stdout(File::from(own), false))
            }
            JsonTo::File(path) => Self::open_file(path),
        }
    }

    fn open_file(path: &Path) -> io::Result<Self> {
        let file = match own_files::append(path) {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                return Ok(Self::Unread(path.to_owned()));
            }
            opened => opened?,
        };
        // A line is longer than a pipe takes at once.
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
            Self::Stdout(out, in_a_line) => {
                if *in_a_line {
                    out.write_all(b"\n")?;
                }
                let written = out.write_all(line);
                *in_a_line = written.is_err();
                written
            }
            Self::File(file) => {
                let before = file.metadata()?.len();
                file.write_all(line).inspect_err(|_| {
                    // A device has no length.
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
    fn a_line_after_a_part_of_one_is_whole() {
        let (ours, mut reader) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut lines = Lines::Stdout(File::from(OwnedFd::from(ours)), false);
        let long = vec![b'a'; 16 << 20];
        lines.write(&long).unwrap_err();
        // Nor is there room for the end of that line.
        lines.write(b"lost\n").unwrap_err();
        reader.set_nonblocking(true).unwrap();
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap_err();
        lines.write(b"first\n").unwrap();
        lines.write(b"second\n").unwrap();
        drop(lines);
        reader.read_to_end(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let whole: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(whole, ["first", "second"]);
    }
}
