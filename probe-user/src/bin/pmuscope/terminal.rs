//! Writes the report of each measurement window to a file, a pipe or a terminal. On a terminal it
//! may replace the previous one. Also writes messages, which must not mix with reports.

mod drawing;

use std::mem;
use std::{
    env,
    fs::File,
    io::{self, IsTerminal as _, Write},
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context as _, Result};
use probe_user::emit::{OutputFormat, Screen};
use rustix::{io::Errno, termios::tcgetwinsize};

use self::drawing::{Drawing, TerminalSize};
use crate::live;

/// A message was written since the last window.
static MESSAGE_WRITTEN: AtomicBool = AtomicBool::new(false);

/// The output of messages: standard error, or a view that has the terminal to itself. No window is
/// drawn over a message.
pub(crate) struct Messages;

/// Messages for a view: all bytes, and how many of these the view has taken. None without a view.
static BUFFERED: Mutex<Option<(Vec<u8>, usize)>> = Mutex::new(None);

pub(crate) fn messages() -> Messages {
    MESSAGE_WRITTEN.store(true, Ordering::Relaxed);
    Messages
}

impl Write for Messages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match buffered().as_mut() {
            Some((all, taken)) => {
                all.extend_from_slice(bytes);
                // The oldest messages are dropped.
                let excess = all.len().saturating_sub(MOST_BUFFERED);
                all.drain(..excess);
                *taken = taken.saturating_sub(excess);
                Ok(bytes.len())
            }
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The most bytes of messages that are kept until a view ends. They are printed then.
const MOST_BUFFERED: usize = 256 << 10;

fn buffered() -> MutexGuard<'static, Option<(Vec<u8>, usize)>> {
    BUFFERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// If `buffer`, keeps messages for a view from here on. Otherwise the view has ended: prints those
/// that were kept.
pub(crate) fn buffer_messages(buffer: bool) {
    let before = mem::replace(&mut *buffered(), buffer.then(Default::default));
    if let Some((all, _)) = before {
        // A failure could not be printed either.
        let _ = io::stderr().write_all(&all);
    }
}

/// Returns the lines of messages since the last call. They are still printed when the view ends.
pub(crate) fn take_messages() -> Vec<String> {
    let mut buffered = buffered();
    let Some((all, taken)) = buffered.as_mut() else {
        return Vec::new();
    };
    let new = String::from_utf8_lossy(&all[*taken..]);
    let lines = new.lines().map(|line| line.trim().to_owned()).collect();
    *taken = all.len();
    lines
}

/// Duplicates a descriptor that this program inherited from its caller.
fn duplicate(number: i32) -> io::Result<File> {
    // SAFETY: the number is borrowed for one call of fcntl, which fails if no file is open there.
    let borrowed = (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) });
    let borrowed = borrowed.ok_or(io::Error::from(Errno::BADF))?;
    Ok(borrowed.try_clone_to_owned()?.into())
}

/// The output of windows, each written by one call.
pub(crate) struct Output {
    file: File,
    /// The name of the output in messages.
    name: String,
    is_terminal: bool,
    wide: bool,
    all_rows: bool,
    exact: bool,
    /// The size of the terminal when it was last read; 0 if unknown.
    size: TerminalSize,
    /// The window on the screen, if each window is drawn over the one before.
    drawing: Option<Drawing>,
}

impl Output {
    /// Opens the file, or standard output. With a command the output is standard error: standard
    /// output is the command's.
    pub(crate) fn open(args: &live::Args) -> Result<Self> {
        let live::Args {
            session,
            output: options,
        } = args;
        let (name, file) = match (&options.output, options.output_fd) {
            (Some(path), _) => (path.display().to_string(), File::create(path)),
            (None, Some(number)) => {
                let name = format!("to file descriptor {number}");
                (name, duplicate(number))
            }
            (None, None) if session.command.is_empty() => {
                let duplicate = io::stdout().as_fd().try_clone_to_owned();
                ("to standard output".to_owned(), duplicate.map(File::from))
            }
            (None, None) => {
                let duplicate = io::stderr().as_fd().try_clone_to_owned();
                ("to standard error".to_owned(), duplicate.map(File::from))
            }
        };
        let file = file.with_context(|| format!("cannot write {name}"))?;
        let is_terminal = file.is_terminal();
        let is_table = options.format == OutputFormat::Table;
        if is_terminal && is_table && options.wide {
            tracing::warn!(
                "--wide is for files and pipes: on a terminal tables are as wide as the terminal"
            );
        }
        // A command may write to the terminal at any time.
        let is_alone = session.window_length().is_some() && session.command.is_empty();
        let is_drawn = is_terminal && is_table && is_alone && moves_the_cursor();
        Ok(Self {
            file,
            name,
            is_terminal,
            wide: options.wide,
            all_rows: options.all_rows,
            exact: options.exact,
            size: TerminalSize::default(),
            drawing: is_drawn.then(Drawing::default),
        })
    }

    /// The text of an error for a failed write.
    pub(crate) fn write_error(&self) -> String {
        format!("cannot write {}", self.name)
    }

    /// The screen for the next window. The size of the terminal is read again.
    pub(crate) fn screen(&mut self) -> Screen {
        let standard = Screen::default();
        let screen = if self.is_terminal {
            self.size = size(&self.file);
            Screen::for_terminal(self.size.columns, self.size.lines)
        } else {
            Screen {
                width: standard.width.filter(|_| !self.wide),
                ..standard
            }
        };
        Screen {
            height: screen.height.filter(|_| !self.all_rows),
            exact: self.exact,
            in_place: self.drawing.is_some() && self.size.is_drawable(),
            ..screen
        }
    }

    /// Draws the next window below, since another process wrote to the terminal.
    pub(crate) fn forget_drawing(&mut self) {
        if let Some(drawing) = &mut self.drawing {
            *drawing = Drawing::default();
        }
    }

    /// Leaves the last window on the screen, in full.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let Some(drawing) = &self.drawing else {
            return Ok(());
        };
        let end = drawing.end(size(&self.file), message_was_written());
        self.file.write_all(&end)
    }
}

impl Write for Output {
    fn write(&mut self, window: &[u8]) -> io::Result<usize> {
        match &mut self.drawing {
            Some(drawing) => {
                let drawn = drawing.draw(window, self.size, message_was_written());
                self.file.write_all(&drawn)?;
                Ok(window.len())
            }
            None => self.file.write(window),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Columns of standard output; None if it is no terminal: lines may then have any length.
pub(crate) fn stdout_width() -> Option<usize> {
    let out = io::stdout();
    let TerminalSize { columns, lines } = size(&out);
    let screen = Screen::for_terminal(columns, lines);
    screen.width.filter(|_| out.is_terminal())
}

/// The size of a terminal; 0 if unknown.
fn size(terminal: impl AsFd) -> TerminalSize {
    tcgetwinsize(terminal).map_or_else(|_| TerminalSize::default(), TerminalSize::from)
}

/// Whether a message was written to the terminal since the last call.
fn message_was_written() -> bool {
    MESSAGE_WRITTEN.swap(false, Ordering::Relaxed) && io::stderr().is_terminal()
}

/// Whether the terminal can move the cursor, by the variable TERM.
pub(crate) fn moves_the_cursor() -> bool {
    env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb")
}
