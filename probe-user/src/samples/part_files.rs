//! Opens a file of samples: the file itself, or the parts of an unfinished recording.

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _},
    path::{Path, PathBuf},
};

use parquet::{
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        reader::{FileReader as _, SerializedFileReader},
    },
};

use super::parts::{PARTS_SUFFIX, PREFIX, parts_directory};

/// Parquet's magic number, at both ends of a file.
pub(crate) const PARQUET_MAGIC: &[u8; 4] = b"PAR1";

/// Why a file of samples cannot be read. Each message says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum SampleReadError {
    /// The file cannot be opened or read.
    #[error("cannot read {file}: {reason}")]
    Open {
        /// The file's name.
        file: String,
        /// The kernel's error.
        reason: io::Error,
    },
    /// A Parquet file that is damaged, such as one without its footer.
    #[error("{file} is damaged, or has lost its end: {reason}; give a file that is whole")]
    Parquet {
        /// The file's name.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A part is damaged.
    #[error("{file} is damaged after {number} samples: {reason}; record it again")]
    Damaged {
        /// The file's name.
        file: String,
        /// Number of samples before the damage.
        number: usize,
        /// What is wrong.
        reason: String,
    },
    /// The recording ended before its first sample.
    #[error("{0} has no sample: it ended before its first; record it again")]
    Empty(String),
}

/// The metadata that pmuscope wrote; keys have no prefix.
pub(super) fn metadata(part: &SerializedFileReader<File>) -> Vec<(String, String)> {
    let entries = part.metadata().file_metadata().key_value_metadata();
    entries
        .into_iter()
        .flatten()
        .filter_map(without_prefix)
        .collect()
}

/// Whether a file begins with Parquet's magic number.
pub(super) fn is_parquet(path: &Path) -> Result<bool, SampleReadError> {
    let first_bytes = || {
        let mut bytes = Vec::new();
        let mut file = File::open(path)?.take(PARQUET_MAGIC.len() as u64);
        file.read_to_end(&mut bytes).map(|_| bytes)
    };
    let first_bytes = first_bytes().map_err(|reason| SampleReadError::Open {
        file: path.display().to_string(),
        reason,
    });
    Ok(first_bytes? == PARQUET_MAGIC)
}

/// Opens a whole file, or a part.
pub(super) fn open(part: &Path) -> Result<SerializedFileReader<File>, SampleReadError> {
    let file = || part.display().to_string();
    let unreadable = |reason| SampleReadError::Open {
        file: file(),
        reason,
    };
    let bytes = File::open(part).map_err(unreadable)?;
    SerializedFileReader::new(bytes).map_err(|error| match failed_read(error) {
        Ok(reason) => unreadable(reason),
        Err(error) => SampleReadError::Parquet {
            file: file(),
            reason: error.to_string(),
        },
    })
}

/// The kernel's error inside `error`; `error` itself as `Err` if it has none.
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
pub(super) fn parts_of(path: &Path) -> Result<Vec<PathBuf>, SampleReadError> {
    let file = || path.display().to_string();
    let parts = parts_directory(path);
    let metadata = fs::metadata(path);
    let directory = match &metadata {
        Ok(metadata) if metadata.is_dir() => path.to_owned(),
        // A new file is empty until its parts are merged. A file behind a link is written in place,
        // so it may lack its end.
        Ok(metadata) if metadata.is_file() && parts.is_dir() && !has_end(path) => parts,
        Err(error) if error.kind() == io::ErrorKind::NotFound && parts.is_dir() => parts,
        Ok(_) => return Ok(vec![path.to_owned()]),
        Err(_) => {
            let reason = metadata
                .err()
                .unwrap_or_else(|| io::ErrorKind::Other.into());
            return Err(SampleReadError::Open {
                file: file(),
                reason,
            });
        }
    };
    let entries = fs::read_dir(&directory).map_err(|reason| SampleReadError::Open {
        file: directory.display().to_string(),
        reason,
    })?;
    let names = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_whole = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".parquet") && !name.starts_with('.')
    };
    let mut whole_parts: Vec<PathBuf> = names.filter(is_whole).collect();
    whole_parts.sort();
    if whole_parts.is_empty() {
        let is_ours = directory.to_string_lossy().ends_with(PARTS_SUFFIX);
        return Err(match is_ours {
            true => SampleReadError::Empty(file()),
            false => SampleReadError::Open {
                file: file(),
                reason: io::ErrorKind::IsADirectory.into(),
            },
        });
    }
    Ok(whole_parts)
}

/// Whether a file ends with Parquet's magic number.
fn has_end(path: &Path) -> bool {
    let last_bytes = || {
        let mut file = File::open(path)?;
        file.seek(io::SeekFrom::End(-4))?;
        let mut bytes = [0; 4];
        file.read_exact(&mut bytes).map(|()| bytes)
    };
    last_bytes().is_ok_and(|bytes| bytes == *PARQUET_MAGIC)
}

fn without_prefix(entry: &KeyValue) -> Option<(String, String)> {
    let key = entry.key.strip_prefix(PREFIX)?;
    Some((key.to_owned(), entry.value.clone()?))
}
