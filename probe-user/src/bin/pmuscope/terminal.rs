//! The output of windows: a file, a pipe, or a terminal, where each may replace the one before.

mod drawing;

use std::mem;
use std::{
    env,
    fs::File,
    io::{self, IsTerminal as _, Write},
    os::fd::AsFd as _,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context as _, Result};
use probe_user::emit::{Format, Screen};
use rustix::termios::tcgetwinsize;

use self::drawing::{Drawing, Size};
use crate::live;

/// A message was written since the last window.
static MESSAGE: AtomicBool = AtomicBool::new(false);

/// Where messages go: to standard error, over which no window is drawn, or to a view that has the
/// terminal to itself.
pub(crate) struct Messages;

/// What a view has to show: all messages, and how many bytes of them it was given.
static KEPT: Mutex<Option<(Vec<u8>, usize)>> = Mutex::new(None);

pub(crate) fn messages() -> Messages {
    MESSAGE.store(true, Ordering::Relaxed);
    Messages
}

impl Write for Messages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match kept().as_mut() {
            Some((all, given)) => {
                all.extend_from_slice(bytes);
                // The first ones are the oldest.
                let over = all.len().saturating_sub(MOST_KEPT);
                all.drain(..over);
                *given = given.saturating_sub(over);
                Ok(bytes.len())
            }
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Bytes of messages that a view keeps to be printed at its end.
const MOST_KEPT: usize = 256 << 10;

fn kept() -> MutexGuard<'static, Option<(Vec<u8>, usize)>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Messages are kept for a view from here on; or the view has ended, and they are printed.
pub(crate) fn keep_messages(keep: bool) {
    let before = mem::replace(&mut *kept(), keep.then(Default::default));
    if let Some((all, _)) = before {
        // There is nobody to tell.
        let _ = io::stderr().write_all(&all);
    }
}

/// The lines that were kept since the last call.
pub(crate) fn kept_messages() -> Vec<String> {
    let mut kept = kept();
    let Some((all, given)) = kept.as_mut() else {
        return Vec::new();
    };
    let new = String::from_utf8_lossy(&all[*given..]);
    let lines = new.lines().map(|line| line.trim().to_owned()).collect();
    *given = all.len();
    lines
}

/// Where windows are written to, each by one call.
pub(crate) struct Output {
    file: File,
    /// For messages.
    name: String,
    is_terminal: bool,
    wide: bool,
    all_rows: bool,
    exact: bool,
    /// The size of the terminal when it was last read; 0 where it is not known.
    size: Size,
    /// Where each window is drawn over the one before.
    drawing: Option<Drawing>,
}

impl Output {
    /// The file, or standard output.
    pub(crate) fn open(args: &live::Args) -> Result<Self> {
        let live::Args { shown, counted } = args;
        let (name, file) = match &shown.output {
            Some(path) => (path.display().to_string(), File::create(path)),
            None => {
                let own = io::stdout().as_fd().try_clone_to_owned();
                ("to standard output".to_owned(), own.map(File::from))
            }
        };
        let file = file.with_context(|| format!("cannot write {name}"))?;
        let is_terminal = file.is_terminal();
        let table = shown.format == Format::Table;
        if is_terminal && table && shown.wide {
            tracing::warn!(
                "--wide is for files and pipes: on a terminal tables are as wide as the terminal"
            );
        }
        // A command may write to the terminal whenever it likes.
        let alone = counted.interval.is_some() && counted.command.is_empty();
        let drawn = is_terminal && table && alone && moves_the_cursor();
        Ok(Self {
            file,
            name,
            is_terminal,
            wide: shown.wide,
            all_rows: shown.all_rows,
            exact: shown.exact,
            size: Size::default(),
            drawing: drawn.then(Drawing::default),
        })
    }

    /// What to say of a write that failed.
    pub(crate) fn unwritten(&self) -> String {
        format!("cannot write {}", self.name)
    }

    /// What the next window is drawn on: a terminal may have another size than before.
    pub(crate) fn screen(&mut self) -> Screen {
        let usual = Screen::default();
        let screen = if self.is_terminal {
            self.size = size(&self.file);
            Screen::of_terminal(self.size.columns, self.size.lines)
        } else {
            Screen {
                width: usual.width.filter(|_| !self.wide),
                ..usual
            }
        };
        Screen {
            height: screen.height.filter(|_| !self.all_rows),
            exact: self.exact,
            in_place: self.drawing.is_some() && self.size.has_room(),
            ..screen
        }
    }

    /// Others wrote to the terminal: the next window is drawn below that.
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
        let end = drawing.end(size(&self.file), message());
        self.file.write_all(&end)
    }
}

impl Write for Output {
    fn write(&mut self, window: &[u8]) -> io::Result<usize> {
        match &mut self.drawing {
            Some(drawing) => {
                let drawn = drawing.draw(window, self.size, message());
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

/// Of a terminal.
fn size(terminal: &File) -> Size {
    tcgetwinsize(terminal).map_or_else(|_| Size::default(), Size::from)
}

/// Whether a message stands on the terminal since the last call.
fn message() -> bool {
    MESSAGE.swap(false, Ordering::Relaxed) && io::stderr().is_terminal()
}

/// Whether the terminal says that it is one that can.
fn moves_the_cursor() -> bool {
    env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb")
}
