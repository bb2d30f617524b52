//! Reads a recording: its plan and view at once, its snapshots one after the other.

use std::{
    collections::VecDeque,
    error::Error,
    fs::{self, File},
    io::{self, Read as _, Seek as _},
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;
use parquet::{
    column::reader::ColumnReader,
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        reader::{FileReader as _, SerializedFileReader},
    },
};

use super::{columns::SNAPSHOT, key};
use crate::{
    join::View,
    plan::Plan,
    record::{
        RING_BYTES,
        parts::{PREFIX, directory},
    },
    snapshot::{
        Snapshot,
        recording::{self, RecordingError},
    },
};

/// Why a recording cannot be read. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The kernel does not give it.
    #[error("cannot read {file}: {reason}")]
    Open {
        /// Its name.
        file: String,
        /// What the kernel said.
        reason: io::Error,
    },
    /// No Parquet file, or one without its end.
    #[error(
        "{file} is no Parquet file, or has lost its end: {reason}; give a file of `pmuscope \
         record`"
    )]
    NoParquet {
        /// Its name.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A Parquet file of something else.
    #[error("{file} is no recording of `pmuscope record`: {what}; give a file that is")]
    Foreign {
        /// Its name.
        file: String,
        /// What it is.
        what: &'static str,
    },
    /// Of another format, or its head is damaged.
    #[error(transparent)]
    Head(#[from] RecordingError),
    /// A part of it is not what was written.
    #[error("{file} is damaged at snapshot {number}: {reason}; record it again")]
    Damaged {
        /// Its name.
        file: String,
        /// Snapshots before it.
        number: usize,
        /// What is wrong.
        reason: String,
    },
    /// The same of a file of samples.
    #[error("{file} is damaged after {number} samples: {reason}; record it again")]
    DamagedSamples {
        /// Its name.
        file: String,
        /// Samples before it.
        number: usize,
        /// What is wrong.
        reason: String,
    },
    /// Nothing to show.
    #[error("{0} has no window: it ended before its first; record it again")]
    Empty(String),
}

/// A recording.
pub struct Recording {
    /// Its name, for messages.
    pub file: String,
    /// What was counted.
    pub plan: Plan,
    /// How rows were made.
    pub view: View,
    /// All metadata, without what each key begins with.
    pub about: Vec<(String, String)>,
    parts: VecDeque<PathBuf>,
}

/// The most bytes of a snapshot: of one with a million rows.
const LARGEST: u64 = 1 << 30;

impl Recording {
    /// Opens it. Of one that did not come to its end its parts are read, also where `path` is their
    /// directory.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, or is none.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let file = path.display().to_string();
        let parts = VecDeque::from(parts_of(path)?);
        let first = parts.front().map(|part| open(part)).transpose()?;
        let about = first.as_ref().map(metadata).unwrap_or_default();
        let of = |key: &str| {
            let entry = about.iter().find(|(own, _)| own == key);
            entry.map(|(_, value)| value.as_str())
        };
        let foreign = |what| ReadError::Foreign {
            file: file.clone(),
            what,
        };
        let Some(head) = of(key::HEAD) else {
            return Err(foreign(match of(RING_BYTES) {
                Some(_) => "it has the samples of `pmuscope mem record`",
                None => "its metadata has no pmuscope.recording",
            }));
        };
        let plan = recording::Reader::new(head.as_bytes(), &file)?
            .plan()
            .clone();
        let view = of(key::VIEW).and_then(|view| serde_json::from_str(view).ok());
        let view = view.ok_or_else(|| foreign("its metadata has no pmuscope.view"))?;
        Ok(Self {
            file,
            plan,
            view,
            about,
            parts,
        })
    }

    /// What the metadata says under this key.
    #[must_use]
    pub fn about(&self, key: &str) -> Option<&str> {
        let entry = self.about.iter().find(|(own, _)| own == key);
        entry.map(|(_, value)| value.as_str())
    }

    /// Its snapshots.
    #[must_use]
    pub fn into_snapshots(self) -> Snapshots {
        Snapshots {
            file: self.file,
            parts: self.parts,
            part: None,
            group: 0,
            read: VecDeque::new(),
            number: 0,
        }
    }
}

/// The snapshots of a recording, in their order.
pub struct Snapshots {
    file: String,
    /// Those that follow. There may be more of them than files that can be open.
    parts: VecDeque<PathBuf>,
    part: Option<SerializedFileReader<File>>,
    /// Of this part, the next to be read.
    group: usize,
    /// Compressed.
    read: VecDeque<Vec<u8>>,
    number: usize,
}

impl Snapshots {
    /// Those of the next row group; false where there is none.
    fn read_group(&mut self) -> Result<bool, ReadError> {
        let Some(part) = &self.part else {
            self.part = self.parts.pop_front().map(|part| open(&part)).transpose()?;
            self.group = 0;
            return Ok(self.part.is_some());
        };
        if self.group == part.num_row_groups() {
            self.part = None;
            return Ok(true);
        }
        let read = snapshots(part, self.group);
        self.read = read.map_err(|error| self.damaged(&error))?;
        self.group += 1;
        Ok(true)
    }

    fn next_snapshot(&mut self) -> Result<Option<Snapshot>, ReadError> {
        while self.read.is_empty() {
            if !self.read_group()? {
                return Ok(None);
            }
        }
        let bytes = self.read.pop_front().unwrap_or_default();
        let text = unpacked(&bytes, LARGEST).map_err(|error| self.damaged(&error))?;
        let snapshot = serde_json::from_slice(&text).map_err(|error| self.damaged(&error))?;
        self.number += 1;
        Ok(Some(snapshot))
    }

    fn damaged(&self, reason: &dyn Error) -> ReadError {
        ReadError::Damaged {
            file: self.file.clone(),
            number: self.number,
            reason: reason.to_string(),
        }
    }
}

impl Iterator for Snapshots {
    type Item = Result<Snapshot, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_snapshot().inspect_err(|_| {
            // Nothing that follows can be told from what is lost.
            self.parts.clear();
            self.part = None;
            self.read.clear();
        });
        next.transpose()
    }
}

/// The text of a snapshot, of which a few bytes may be made to stand for any length.
pub(super) fn unpacked(bytes: &[u8], most: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut gzip = GzDecoder::new(bytes).take(most);
    gzip.read_to_end(&mut text)?;
    if gzip.limit() == 0 {
        let sentence = format!("it has {most} bytes or more");
        return Err(io::Error::new(io::ErrorKind::InvalidData, sentence));
    }
    Ok(text)
}

/// What this program put into the metadata, without what each key begins with.
pub(super) fn metadata(part: &SerializedFileReader<File>) -> Vec<(String, String)> {
    let entries = part.metadata().file_metadata().key_value_metadata();
    entries.into_iter().flatten().filter_map(own).collect()
}

/// Opens one of the files.
pub(super) fn open(part: &Path) -> Result<SerializedFileReader<File>, ReadError> {
    let file = || part.display().to_string();
    let unread = |reason| ReadError::Open {
        file: file(),
        reason,
    };
    let bytes = File::open(part).map_err(unread)?;
    SerializedFileReader::new(bytes).map_err(|error| match failed_read(error) {
        Ok(reason) => unread(reason),
        Err(error) => ReadError::NoParquet {
            file: file(),
            reason: error.to_string(),
        },
    })
}

/// What the kernel said, where it was the kernel.
fn failed_read(error: ParquetError) -> Result<io::Error, ParquetError> {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) if error.raw_os_error().is_some() => Ok(*error),
            Ok(error) => Err(ParquetError::External(error)),
            Err(error) => Err(ParquetError::External(error)),
        },
        error => Err(error),
    }
}

/// The files to read: the file itself, or its parts in the order of their names.
pub(super) fn parts_of(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let file = || path.display().to_string();
    let parts = directory(path);
    let metadata = fs::metadata(path);
    let directory = match &metadata {
        Ok(found) if found.is_dir() => path.to_owned(),
        // Until it is made of its parts it is empty; a link's or a device's file is made in place.
        Ok(found) if found.is_file() && parts.is_dir() && !has_end(path) => parts,
        Err(error) if error.kind() == io::ErrorKind::NotFound && parts.is_dir() => parts,
        Ok(_) => return Ok(vec![path.to_owned()]),
        Err(_) => {
            let reason = metadata
                .err()
                .unwrap_or_else(|| io::ErrorKind::Other.into());
            return Err(ReadError::Open {
                file: file(),
                reason,
            });
        }
    };
    let entries = fs::read_dir(&directory).map_err(|reason| ReadError::Open {
        file: directory.display().to_string(),
        reason,
    })?;
    let names = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let whole = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".parquet") && !name.starts_with('.')
    };
    let mut found: Vec<PathBuf> = names.filter(whole).collect();
    found.sort();
    if found.is_empty() {
        return Err(ReadError::Empty(file()));
    }
    Ok(found)
}

/// Whether a file ends as Parquet files do.
fn has_end(path: &Path) -> bool {
    let last = || {
        let mut file = File::open(path)?;
        file.seek(io::SeekFrom::End(-4))?;
        let mut last = [0; 4];
        file.read_exact(&mut last).map(|()| last)
    };
    last().is_ok_and(|last| last == *b"PAR1")
}

fn own(entry: &KeyValue) -> Option<(String, String)> {
    let key = entry.key.strip_prefix(PREFIX)?;
    Some((key.to_owned(), entry.value.clone()?))
}

/// The snapshots of a row group.
fn snapshots(
    part: &SerializedFileReader<File>,
    group: usize,
) -> Result<VecDeque<Vec<u8>>, ParquetError> {
    let schema = part.metadata().file_metadata().schema_descr();
    let mut columns = schema.columns().iter();
    let column = columns.position(|column| column.name() == SNAPSHOT);
    let column = column.ok_or_else(|| ParquetError::General("no column snapshot".to_owned()))?;
    let group = part.get_row_group(group)?;
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
    let ColumnReader::ByteArrayColumnReader(mut reader) = group.get_column_reader(column)? else {
        return Err(ParquetError::General(
            "column snapshot has no bytes".to_owned(),
        ));
    };
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let mut read = 0;
    while read < rows {
        let (records, ..) =
            reader.read_records(rows - read, Some(&mut levels), None, &mut values)?;
        if records == 0 {
            break;
        }
        read += records;
    }
    Ok(values.iter().map(|value| value.data().to_vec()).collect())
}
