//! Reads a recording: its head at once, its snapshots one by one.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use super::{
    END, FORMAT, MARK, RecordingEnd, RecordingHead, RecordingMark,
    lines::{GZIP, Lines},
    write::{UNFINISHED, resolved, unfinished},
};
use crate::{samples::PARQUET_MAGIC, snapshot::Snapshot};

/// Why a recording cannot be read. Each message says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("cannot read {file}: {reason}")]
    Open {
        /// The file's name.
        file: String,
        /// The kernel's error.
        reason: io::Error,
    },
    /// The first line is not that of a recording.
    #[error(
        "{0} is no recording of `pmuscope record`: its first line has no pmuscope_recording; give \
         a file that is"
    )]
    Foreign(String),
    /// The file is a Parquet file.
    #[error(
        "{0} is no recording of `pmuscope record`: it is a Parquet file, as the samples of \
         `pmuscope mem record` are, and recordings before format 3; record it again, or read it \
         with the version that wrote it"
    )]
    Parquet(String),
    /// The file was written by a program with another format.
    #[error(
        "{file} has format {found} of pmuscope {version}, and this program reads format {FORMAT} \
         only: record it again, or read it with that version"
    )]
    Format {
        /// The file's name.
        file: String,
        /// The file's format.
        found: u32,
        /// Version of the program that wrote it.
        version: String,
    },
    /// The last lines of the file are missing.
    #[error(
        "{file} has lost its end, from line {line} on: record it again, or give it a name that \
         ends in .unfinished to read the windows until there"
    )]
    Cut {
        /// The file's name.
        file: String,
        /// The first missing line, counted from 1.
        line: usize,
    },
    /// A line is invalid.
    #[error("{file} is damaged in line {line}: {reason}; record it again")]
    Damaged {
        /// The file's name.
        file: String,
        /// The invalid line, counted from 1.
        line: usize,
        /// What is wrong with the line.
        reason: String,
    },
    /// The recording has no window.
    #[error("{0} has no window: it ended before its first; record it again")]
    Empty(String),
}

/// A recording, and an iterator over its snapshots.
pub struct Recording {
    /// The content of the first line.
    pub head: RecordingHead,
    lines: RecordingLines,
}

/// The lines of a recording.
struct RecordingLines {
    file: String,
    lines: Lines,
    /// Number of the last line read, from 1.
    number: usize,
    /// Whether the file is an unfinished recording, whose last line may be missing.
    is_unfinished: bool,
    /// Whether the end of the recording or damage was reached.
    is_over: bool,
}

impl Recording {
    /// Opens a recording. An unfinished recording has the windows so far, and can be opened by its
    /// final name too.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not a recording.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let unfinished = unfinished(&resolved(path));
        let is_missing = |opened: &io::Result<File>| {
            let kind = opened.as_ref().err().map(io::Error::kind);
            kind == Some(io::ErrorKind::NotFound)
        };
        let mut opened = (path, File::open(path));
        if is_missing(&opened.1) {
            opened = (&unfinished, File::open(&unfinished));
        }
        if is_missing(&opened.1) {
            // The recording may have been finished, and so renamed, in the meantime.
            opened = (path, File::open(path));
        }
        let (path, opened) = opened;
        let file = path.display().to_string();
        let input = opened.map_err(|reason| ReadError::Open {
            file: file.clone(),
            reason,
        })?;
        let is_unfinished = path.extension().is_some_and(|it| it == UNFINISHED);
        Self::from_lines(RecordingLines::new(input, file, is_unfinished)?)
    }

    /// Reads a recording from `input`. Errors name it `file`.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not a recording.
    pub fn read(input: impl Read + 'static, file: &str) -> Result<Self, ReadError> {
        Self::from_lines(RecordingLines::new(input, file.to_owned(), false)?)
    }

    /// The file's name, for messages.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.lines.file
    }

    fn from_lines(mut lines: RecordingLines) -> Result<Self, ReadError> {
        Ok(Self {
            head: lines.head()?,
            lines,
        })
    }
}

impl RecordingLines {
    fn new(
        input: impl Read + 'static,
        file: String,
        is_unfinished: bool,
    ) -> Result<Self, ReadError> {
        match Lines::new(input) {
            Ok(lines) => Ok(Self {
                file,
                lines,
                number: 0,
                is_unfinished,
                is_over: false,
            }),
            Err(reason) => Err(ReadError::Open { file, reason }),
        }
    }

    fn head(&mut self) -> Result<RecordingHead, ReadError> {
        let begin = &self.lines.begin;
        let may_be_ours = begin.first() == Some(&GZIP) || begin.starts_with(MARK);
        let foreign = match begin.starts_with(PARQUET_MAGIC) {
            true => ReadError::Parquet(self.file.clone()),
            false => ReadError::Foreign(self.file.clone()),
        };
        let first = match self.next_line() {
            Ok(Some(first)) => first,
            Err(error @ ReadError::Open { .. }) => return Err(error),
            Err(error) if may_be_ours => return Err(error),
            Ok(None) | Err(_) => return Err(foreign),
        };
        let mark: RecordingMark = match serde_json::from_slice(&first) {
            Ok(mark) => mark,
            Err(_) => return Err(foreign),
        };
        if mark.pmuscope_recording != FORMAT {
            return Err(ReadError::Format {
                file: self.file.clone(),
                found: mark.pmuscope_recording,
                version: mark.version,
            });
        }
        let head: RecordingHead =
            serde_json::from_slice(&first).map_err(|error| self.damaged(&error))?;
        match head.plan.flaw() {
            Some(flaw) => Err(self.damaged(&flaw)),
            None => Ok(head),
        }
    }

    /// The next line; None at the end of the file.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        self.number += 1;
        self.lines.next().map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.cut(),
            _ if error.raw_os_error().is_none() => self.damaged(&error),
            _ => ReadError::Open {
                file: self.file.clone(),
                reason: error,
            },
        })
    }

    fn next_snapshot(&mut self) -> Result<Option<Snapshot>, ReadError> {
        let line = match self.next_line() {
            Err(ReadError::Cut { .. }) | Ok(None) if self.is_unfinished => return Ok(None),
            line => line?.ok_or_else(|| self.cut())?,
        };
        if line.starts_with(END) {
            return match serde_json::from_slice::<RecordingEnd>(&line) {
                // The head, the first snapshot and this line are no windows.
                Ok(end) if end.windows as usize + 3 != self.number => {
                    Err(self.damaged(&format!("it is the end of {} windows", end.windows)))
                }
                Ok(_) if !self.lines.is_at_end().is_ok_and(|is_at_end| is_at_end) => {
                    Err(self.damaged(&"it is the end, and more follows"))
                }
                Ok(_) => Ok(None),
                Err(error) => Err(self.damaged(&error)),
            };
        }
        let snapshot = serde_json::from_slice(&line).map_err(|error| self.damaged(&error))?;
        Ok(Some(snapshot))
    }

    fn cut(&self) -> ReadError {
        ReadError::Cut {
            file: self.file.clone(),
            line: self.number,
        }
    }

    fn damaged(&self, reason: &dyn ToString) -> ReadError {
        ReadError::Damaged {
            file: self.file.clone(),
            line: self.number,
            reason: reason.to_string(),
        }
    }
}

impl Iterator for Recording {
    type Item = Result<Snapshot, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.lines.is_over {
            return None;
        }
        let next = self.lines.next_snapshot().transpose();
        // After damage, nothing more is read: it is unknown which snapshots were lost.
        self.lines.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}
