//! A line of JSON for each window, in a file or on standard output.

use std::{
    fs::File,
    io::{self, Write},
};

use super::config::JsonTo;
use crate::{
    derive::Report,
    emit::{Emitter, Format},
};

/// Where lines go.
pub(super) struct JsonLines {
    to: JsonTo,
    emitter: Emitter<Lines>,
    /// The last line was not written, and that was said.
    fails: bool,
}

impl JsonLines {
    /// Opens a file at its end, which is made if it is not there.
    pub(super) fn open(to: &JsonTo) -> io::Result<Self> {
        Ok(Self {
            to: to.clone(),
            emitter: Emitter::new(Lines::open(to)?, Format::Json, true).with_time(),
            fails: false,
        })
    }

    /// Opens it again: a file may have another name by now.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        *self.emitter.get_mut() = Lines::open(&self.to)?;
        Ok(())
    }

    /// Writes a window; false where it could not, which is said once.
    pub(super) fn write(&mut self, report: &Report) -> bool {
        let written = self.emitter.write(report);
        match (&written, self.fails) {
            (Err(error), false) => tracing::warn!(
                "cannot write {}: {error}; lines are lost until that works again",
                self.to
            ),
            (Ok(()), true) => tracing::info!("{} takes lines again", self.to),
            _ => {}
        }
        self.fails = written.is_err();
        written.is_ok()
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

/// Whole lines: a part of one, where the disk is full, is taken back.
enum Lines {
    Stdout,
    File(File),
}

impl Lines {
    fn open(to: &JsonTo) -> io::Result<Self> {
        Ok(match to {
            JsonTo::Stdout => Self::Stdout,
            JsonTo::File(path) => Self::File(File::options().append(true).create(true).open(path)?),
        })
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout => io::stdout().write_all(line)?,
            Self::File(file) => {
                let before = file.metadata()?.len();
                if let Err(error) = file.write_all(line) {
                    // A pipe or a device has no length.
                    let _ = file.set_len(before);
                    return Err(error);
                }
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().flush(),
            Self::File(file) => file.flush(),
        }
    }
}
