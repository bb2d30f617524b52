//! Reads a recording: plan and view at once, snapshots one by one.

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
        parts::{PREFIX, parts_directory},
    },
    snapshot::{
        Snapshot,
        recording::{self, RecordingError},
    },
};

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
    /// Not a Parquet file, or without its footer.
    #[error(
        "{file} is no Parquet file, or has lost its end: {reason}; give a file of `pmuscope \
         record`"
    )]
    NoParquet {
        /// The file's name.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// Another kind of Parquet file.
    #[error("{file} is no recording of `pmuscope record`: {what}; give a file that is")]
    Foreign {
        /// The file's name.
        file: String,
        /// What it is.
        what: &'static str,
    },
    /// Another format, or a damaged head.
    #[error(transparent)]
    Head(#[from] RecordingError),
    /// A snapshot is damaged.
    #[error("{file} is damaged at snapshot {number}: {reason}; record it again")]
    Damaged {
        /// The file's name.
        file: String,
        /// Number of snapshots before the damage.
        number: usize,
        /// What is wrong.
        reason: String,
    },
    /// A file of samples is damaged.
    #[error("{file} is damaged after {number} samples: {reason}; record it again")]
    DamagedSamples {
        /// The file's name.
        file: String,
        /// Number of samples before the damage.
        number: usize,
        /// What is wrong.
        reason: String,
    },
    /// It has no window.
    #[error("{0} has no window: it ended before its first; record it again")]
    Empty(String),
}

/// A recording.
pub struct Recording {
    /// The file's name, for messages.
    pub file: String,
    /// The plan of what was counted.
    pub plan: Plan,
    /// The view of its rows.
    pub view: View,
    /// All metadata, keys without their prefix.
    pub about: Vec<(String, String)>,
    parts: VecDeque<PathBuf>,
}

/// Most bytes of an unpacked snapshot: one with a million rows fits.
const MAX_SNAPSHOT_BYTES: u64 = 1 << 30;

impl Recording {
    /// Opens a recording. Of an unfinished one the parts are read; `path` may also be their
    /// directory.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not a recording.
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
        let view = of(key::VIEW)
            .and_then(|view| serde_json::from_str(view).ok())
            .ok_or_else(|| foreign("its metadata has no pmuscope.view"))?;
        Ok(Self {
            file,
            plan,
            view,
            about,
            parts,
        })
    }

    /// The metadata value of a key.
    #[must_use]
    pub fn about(&self, key: &str) -> Option<&str> {
        let entry = self.about.iter().find(|(own, _)| own == key);
        entry.map(|(_, value)| value.as_str())
    }

    /// Iterates over the snapshots.
    #[must_use]
    pub fn into_snapshots(self) -> Snapshots {
        Snapshots {
            file: self.file,
            parts: self.parts,
            part: None,
            group: 0,
            compressed: VecDeque::new(),
            number: 0,
        }
    }
}

/// The snapshots of a recording in order.
pub struct Snapshots {
    file: String,
    /// The parts to read, opened one at a time: there may be more of them than open files are
    /// allowed.
    parts: VecDeque<PathBuf>,
    part: Option<SerializedFileReader<File>>,
    /// Index of the part's next row group.
    group: usize,
    /// Compressed snapshots of the current row group.
    compressed: VecDeque<Vec<u8>>,
    number: usize,
}

impl Snapshots {
    /// Reads the snapshots of the next row group; false at the end.
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
        let snapshots = snapshots(part, self.group);
        self.compressed = snapshots.map_err(|error| self.damaged(&error))?;
        self.group += 1;
        Ok(true)
    }

    fn next_snapshot(&mut self) -> Result<Option<Snapshot>, ReadError> {
        while self.compressed.is_empty() {
            if !self.read_group()? {
                return Ok(None);
            }
        }
        let bytes = self.compressed.pop_front().unwrap_or_default();
        let text = unpacked(&bytes, MAX_SNAPSHOT_BYTES).map_err(|error| self.damaged(&error))?;
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
            // Stops after damage: it is unknown which snapshots were lost.
            self.parts.clear();
            self.part = None;
            self.compressed.clear();
        });
        next.transpose()
    }
}

/// Unpacks a snapshot, up to `most` bytes: a few compressed bytes can expand to any length.
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

/// The metadata that pmuscope wrote, keys without their prefix.
pub(super) fn metadata(part: &SerializedFileReader<File>) -> Vec<(String, String)> {
    let entries = part.metadata().file_metadata().key_value_metadata();
    entries.into_iter().flatten().filter_map(own).collect()
}

/// Opens a file or part.
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

/// The kernel's error inside `error`, if there is one.
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
    let parts = parts_directory(path);
    let metadata = fs::metadata(path);
    let directory = match &metadata {
        Ok(found) if found.is_dir() => path.to_owned(),
        // The file is empty until its parts are merged; a link's or a device's file is written in
        // place.
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

/// Whether a file ends with Parquet's magic number.
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
    let column = columns
        .position(|column| column.name() == SNAPSHOT)
        .ok_or_else(|| ParquetError::General("no column snapshot".to_owned()))?;
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
