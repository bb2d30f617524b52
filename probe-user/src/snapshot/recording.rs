//! Recordings: the snapshots of a session in a file, with everything that a replay needs to compute
//! the same values again. Entries: [`Writer`] and [`Reader`].
//!
//! A recording is lines of JSON. The first is the head: the format's version and the plan,
//! including the machine and the definitions of its metrics from the catalogue. Each other line is
//! a [`Snapshot`]. A recording has no view: a replay chooses how rows are named and shown.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use super::Snapshot;
use crate::plan::Plan;

/// The format that this program writes, and the only one that it reads. To be raised with every
/// change after which older recordings would be misread or unreadable.
pub const FORMAT: u32 = 2;

/// Identifies a recording: the first fields of its head.
#[derive(Deserialize, Serialize)]
struct RecordingMark {
    /// [`FORMAT`].
    pmuscope_recording: u32,
    /// Version of the program that wrote it.
    version: String,
}

/// The first line.
#[derive(Serialize)]
struct RecordingHead<'a> {
    #[serde(flatten)]
    mark: RecordingMark,
    plan: &'a Plan,
}

impl<'a> RecordingHead<'a> {
    fn new(plan: &'a Plan) -> Self {
        let mark = RecordingMark {
            pmuscope_recording: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Self { mark, plan }
    }
}

/// The first line of a recording of a session with this plan, without its newline.
///
/// # Errors
/// The plan cannot be written as JSON.
pub fn head(plan: &Plan) -> serde_json::Result<String> {
    serde_json::to_string(&RecordingHead::new(plan))
}

/// The rest of the first line, read after its mark was checked.
#[derive(Deserialize)]
struct HeadPlan {
    plan: Plan,
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be read.
    #[error("cannot read the recording {file}: {reason}")]
    Read {
        /// Its name.
        file: String,
        /// The kernel's error.
        reason: io::Error,
    },
    /// The first line is not the head of a recording.
    #[error(
        "{file} is no recording of pmuscope: line 1 has no pmuscope_recording; give one that is"
    )]
    Foreign {
        /// Its name.
        file: String,
    },
    /// Written by a program with another format.
    #[error(
        "{file} has format {found} of pmuscope {version}, and this program reads format {FORMAT} \
         only: record it again, or read it with that version"
    )]
    Format {
        /// Its name.
        file: String,
        /// Its format.
        found: u32,
        /// Version of the program that wrote it.
        version: String,
    },
    /// A line is truncated.
    #[error("{file} was cut in line {line}: record it again, or remove that line")]
    Cut {
        /// Its name.
        file: String,
        /// From 1.
        line: usize,
    },
    /// A line is invalid.
    #[error("{file}, line {line} is not what pmuscope wrote: {reason}; record it again")]
    Line {
        /// Its name.
        file: String,
        /// From 1.
        line: usize,
        /// What is wrong with it.
        reason: serde_json::Error,
    },
}

/// Writes a recording.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Begins a recording of snapshots of a session with this plan.
    ///
    /// # Errors
    /// The writer fails.
    pub fn new(out: W, plan: &Plan) -> io::Result<Self> {
        let mut writer = Self { out };
        writer.line(&RecordingHead::new(plan))?;
        Ok(writer)
    }

    /// Adds a snapshot.
    ///
    /// # Errors
    /// The writer fails.
    pub fn write(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        self.line(snapshot)
    }

    /// Writes a line in one piece, so that an interrupted recording ends with a whole line if
    /// possible.
    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.out.write_all(&line)
    }
}

/// Reads a recording: first its plan, then its snapshots one by one.
#[derive(Debug)]
pub struct Reader<R> {
    lines: io::Lines<R>,
    file: String,
    /// Number of the last line read, from 1.
    line: usize,
    plan: Plan,
}

impl<R: BufRead> Reader<R> {
    /// Reads the head; `file` names the recording in errors.
    ///
    /// # Errors
    /// The file cannot be read, is no recording, or has another format.
    pub fn new(input: R, file: &str) -> Result<Self, RecordingError> {
        let mut lines = input.lines();
        let file = file.to_owned();
        let first = match lines.next() {
            Some(Ok(first)) => first,
            Some(Err(reason)) if reason.kind() != io::ErrorKind::InvalidData => {
                return Err(RecordingError::Read { file, reason });
            }
            // Empty, or not UTF-8.
            _ => return Err(RecordingError::Foreign { file }),
        };
        let of_line = |reason| at_line(&file, 1, reason);
        match serde_json::from_str::<RecordingMark>(&first) {
            Ok(mark) if mark.pmuscope_recording != FORMAT => Err(RecordingError::Format {
                file,
                found: mark.pmuscope_recording,
                version: mark.version,
            }),
            Err(reason) if reason.is_eof() && first.starts_with("{\"pmuscope_recording\":") => {
                Err(of_line(reason))
            }
            Err(_) => Err(RecordingError::Foreign { file }),
            Ok(_) => {
                let head: HeadPlan = serde_json::from_str(&first).map_err(of_line)?;
                if let Some(flaw) = head.plan.flaw() {
                    return Err(of_line(serde::de::Error::custom(flaw)));
                }
                Ok(Self {
                    lines,
                    file,
                    line: 1,
                    plan: head.plan,
                })
            }
        }
    }

    /// The plan of the session.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Snapshot, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.lines.next()?;
        self.line += 1;
        let file = &self.file;
        Some(match text {
            Ok(text) => {
                serde_json::from_str(&text).map_err(|reason| at_line(file, self.line, reason))
            }
            Err(reason) => Err(RecordingError::Read {
                file: file.clone(),
                reason,
            }),
        })
    }
}

fn at_line(file: &str, line: usize, reason: serde_json::Error) -> RecordingError {
    let file = file.to_owned();
    match reason.is_eof() {
        true => RecordingError::Cut { file, line },
        false => RecordingError::Line { file, line, reason },
    }
}

#[cfg(test)]
mod tests;
