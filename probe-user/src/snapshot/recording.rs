//! Recordings: the snapshots of a session in a file, with all that is needed to compute from them
//! again what was computed then.
//!
//! A recording is lines of JSON. The first is the head: the format's version and the plan, whose
//! metrics bring the machine they are for and their definitions from the catalogue. Each other line
//! is a [`Snapshot`]. It does not say how rows are named and shown: a replay chooses that again.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use super::Snapshot;
use crate::plan::Plan;

/// The format that this program writes, and the only one that it reads. To be raised with every
/// change after which older recordings are read wrongly, or not at all.
pub const FORMAT: u32 = 1;

/// What tells a recording from any other file.
#[derive(Deserialize, Serialize)]
struct Mark {
    /// [`FORMAT`].
    pmuscope_recording: u32,
    /// Version of the program that wrote it.
    version: String,
}

/// The first line.
#[derive(Serialize)]
struct Head<'a> {
    #[serde(flatten)]
    mark: Mark,
    plan: &'a Plan,
}

impl<'a> Head<'a> {
    fn of(plan: &'a Plan) -> Self {
        let mark = Mark {
            pmuscope_recording: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Self { mark, plan }
    }
}

/// The first line of a recording of a session with this plan, without its end.
///
/// # Errors
/// Where the plan cannot be written as JSON.
pub fn head(plan: &Plan) -> serde_json::Result<String> {
    serde_json::to_string(&Head::of(plan))
}

/// What is read of the first line, once its mark is known.
#[derive(Deserialize)]
struct Body {
    plan: Plan,
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The kernel does not give it.
    #[error("cannot read the recording {file}: {reason}")]
    Read {
        /// Its name.
        file: String,
        /// What the kernel said.
        reason: io::Error,
    },
    /// Its first line is not that of a recording.
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
        /// The program that wrote it.
        version: String,
    },
    /// A line ends before its end.
    #[error("{file} was cut in line {line}: record it again, or remove that line")]
    Cut {
        /// Its name.
        file: String,
        /// From 1.
        line: usize,
    },
    /// A line that no recording has.
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
    /// Where the writer fails.
    pub fn new(out: W, plan: &Plan) -> io::Result<Self> {
        let mut writer = Self { out };
        writer.line(&Head::of(plan))?;
        Ok(writer)
    }

    /// Adds a snapshot.
    ///
    /// # Errors
    /// Where the writer fails.
    pub fn write(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        self.line(snapshot)
    }

    /// In one piece, so that a recording that ends early ends with a whole line where it can.
    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.out.write_all(&line)
    }
}

/// Reads a recording: its plan at once, its snapshots one after the other.
#[derive(Debug)]
pub struct Reader<R> {
    lines: io::Lines<R>,
    file: String,
    /// Of the line that was read last, from 1.
    line: usize,
    plan: Plan,
}

impl<R: BufRead> Reader<R> {
    /// Reads the head; `file` names the recording in errors.
    ///
    /// # Errors
    /// It cannot be read, is no recording, or one in another format.
    pub fn new(input: R, file: &str) -> Result<Self, RecordingError> {
        let mut lines = input.lines();
        let file = file.to_owned();
        let first = match lines.next() {
            Some(Ok(first)) => first,
            Some(Err(reason)) if reason.kind() != io::ErrorKind::InvalidData => {
                return Err(RecordingError::Read { file, reason });
            }
            // Nothing, or no text.
            _ => return Err(RecordingError::Foreign { file }),
        };
        let of_line = |reason| at_line(&file, 1, reason);
        match serde_json::from_str::<Mark>(&first) {
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
                let body: Body = serde_json::from_str(&first).map_err(of_line)?;
                if let Some(flaw) = body.plan.flaw() {
                    return Err(of_line(serde::de::Error::custom(flaw)));
                }
                Ok(Self {
                    lines,
                    file,
                    line: 1,
                    plan: body.plan,
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
