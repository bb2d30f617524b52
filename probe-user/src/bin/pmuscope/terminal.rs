//! The output of windows: a file, a pipe, or a terminal, where each may replace the one before.

mod drawing;

use std::{
    env,
    fs::File,
    io::{self, IsTerminal as _, Write},
    os::fd::AsFd as _,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context as _, Result};
use probe_user::emit::{Format, Screen};
use rustix::termios::tcgetwinsize;

use self::drawing::{Drawing, Size};
use crate::live;

/// A message was written since the last window.
static MESSAGE: AtomicBool = AtomicBool::new(false);

/// Standard error, for a message: no window is drawn over it.
pub(crate) fn messages() -> io::Stderr {
    MESSAGE.store(true, Ordering::Relaxed);
    io::stderr()
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
