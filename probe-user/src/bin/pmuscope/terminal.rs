//! Where windows go: a file, a pipe, or a terminal.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Write},
    os::fd::AsFd as _,
};

use anyhow::{Context as _, Result};
use probe_user::emit::{Format, Screen};
use rustix::termios::tcgetwinsize;

use crate::live;

/// Where windows are written to.
pub(crate) struct Output {
    file: File,
    is_terminal: bool,
    wide: bool,
    all_rows: bool,
    exact: bool,
}

impl Output {
    /// The file, or standard output.
    pub(crate) fn open(args: &live::Args) -> Result<Self> {
        let file = match &args.output {
            Some(path) => {
                File::create(path).with_context(|| format!("cannot write {}", path.display()))?
            }
            None => {
                let own = io::stdout().as_fd().try_clone_to_owned();
                File::from(own.context("cannot write to standard output")?)
            }
        };
        let is_terminal = file.is_terminal();
        let table = args.format == Format::Table;
        if is_terminal && table && args.wide {
            tracing::warn!(
                "--wide is for files and pipes: on a terminal tables are as wide as the terminal"
            );
        }
        Ok(Self {
            file,
            is_terminal,
            wide: args.wide,
            all_rows: args.all_rows,
            exact: args.exact,
        })
    }

    /// What the next window is drawn on: a terminal may have another size than before.
    pub(crate) fn screen(&self) -> Screen {
        let usual = Screen::default();
        let screen = if self.is_terminal {
            let size = tcgetwinsize(&self.file);
            size.map_or(usual, |size| Screen::of_terminal(size.ws_col, size.ws_row))
        } else {
            Screen {
                width: usual.width.filter(|_| !self.wide),
                ..usual
            }
        };
        Screen {
            height: screen.height.filter(|_| !self.all_rows),
            exact: self.exact,
            ..screen
        }
    }
}

impl Write for Output {
    fn write(&mut self, window: &[u8]) -> io::Result<usize> {
        self.file.write(window)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
