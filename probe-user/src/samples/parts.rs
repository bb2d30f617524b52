//! Writes a Parquet file in parts. A Parquet file without its footer cannot be read, so a recording
//! is written into a directory of parts, each of which is a complete file. At the end,
//! [`Parts::finish`] copies their row groups into the file that the user named.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{
    column::writer::ColumnCloseResult,
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::WriterProperties,
        reader::{FileReader as _, SerializedFileReader},
        writer::SerializedFileWriter,
    },
    schema::types::TypePtr,
};

/// Suffix of the directory of parts.
pub(super) const PARTS_SUFFIX: &str = ".parts";

/// Prefix of all metadata keys.
pub(crate) const PREFIX: &str = "pmuscope.";

/// A file that is being written.
pub(crate) type ParquetWriter = SerializedFileWriter<File>;

/// Schema and properties of all parts, and of the merged file.
pub(crate) struct Layout {
    pub(crate) schema: TypePtr,
    pub(crate) properties: Arc<WriterProperties>,
}

impl Layout {
    /// Begins a file.
    pub(crate) fn begin(&self, file: File) -> io::Result<ParquetWriter> {
        let (schema, properties) = (Arc::clone(&self.schema), Arc::clone(&self.properties));
        SerializedFileWriter::new(file, schema, properties).map_err(into_io_error)
    }
}

/// Writes the metadata (keys and values) and the footer of a file.
pub(crate) fn close(mut file: ParquetWriter, about: &[(String, String)]) -> io::Result<()> {
    for (key, value) in about {
        let entry = KeyValue::new(format!("{PREFIX}{key}"), value.clone());
        file.append_key_value_metadata(entry);
    }
    file.close().map(drop).map_err(into_io_error)
}

/// The file that the user named, and the directory of its parts. The file of an earlier recording
/// stays until the new one is whole.
pub(crate) struct Parts {
    path: PathBuf,
    directory: PathBuf,
    /// Whether [`Self::begin`] created the file.
    created: bool,
}

impl Parts {
    /// Creates the directory and the file.
    ///
    /// # Errors
    ///
    /// If they cannot be written, or the directory has parts of an earlier recording.
    pub(crate) fn begin(path: &Path) -> io::Result<Self> {
        let directory = parts_directory(path);
        fs::create_dir(&directory).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => io::Error::new(
                error.kind(),
                format!(
                    "{} has the parts of a recording that did not come to its end, or of one \
                     that is running: move it away, or name another file",
                    directory.display()
                ),
            ),
            _ => with_path(&directory, &error),
        })?;
        // Creates the file now, so that a file that cannot be written is reported at the start.
        let created = create_or_check(path).map_err(|error| {
            // The directory is empty, so nothing is lost.
            let _ = fs::remove_dir(&directory);
            with_path(path, &error)
        })?;
        Ok(Self {
            path: path.to_owned(),
            directory,
            created,
        })
    }

    /// Creates a part; returns its path and file. Its name begins with a dot, so readers of the
    /// directory skip it until [`make_whole`] renames it.
    pub(crate) fn open(&self, name: &str) -> io::Result<(PathBuf, File)> {
        let path = self.directory.join(format!(".{name}.open"));
        let file = File::create_new(&path).map_err(|error| with_path(&path, &error))?;
        Ok((path, file))
    }

    /// Merges the `whole` parts into the file, and removes the directory of parts. `ended` is the
    /// result of ending the last parts: if that failed, the directory is kept.
    ///
    /// # Errors
    ///
    /// If the file cannot be written (its parts are kept), or `ended` is an error.
    pub(crate) fn finish(
        self,
        whole: &[PathBuf],
        layout: &Layout,
        about: &[(String, String)],
        ended: io::Result<()>,
    ) -> io::Result<()> {
        let naming_parts = |error: io::Error| {
            let (path, directory) = (self.path.display(), self.directory.display());
            let message = format!("{path}: {error}; its parts are in {directory}");
            io::Error::new(error.kind(), message)
        };
        self.replace(|file| merge(file, whole, layout, about))
            .map_err(naming_parts)?;
        ended?;
        fs::remove_dir_all(&self.directory).map_err(|error| with_path(&self.directory, &error))
    }

    /// Replaces the file atomically: writes a new file under a name that readers skip, then renames
    /// it. A link or a device is written in place.
    fn replace(&self, write: impl FnOnce(File) -> io::Result<()>) -> io::Result<()> {
        let metadata = fs::symlink_metadata(&self.path);
        let old = match metadata.map(|old| (old.is_file(), old.permissions())) {
            Ok((true, permissions)) => Some(permissions),
            Ok((false, _)) => return write(File::create(&self.path)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let (new, file) = self.open("whole")?;
        let replaced = old
            .map_or(Ok(()), |permissions| file.set_permissions(permissions))
            .and_then(|()| write(file))
            .and_then(|()| fs::rename(&new, &self.path));
        if replaced.is_err() {
            // The parts still have all data, and on a full disk this file would only take space.
            let _ = fs::remove_file(&new);
        }
        replaced
    }

    /// Removes the parts of a recording without data, and the file if [`Self::begin`] created it.
    pub(crate) fn discard(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.directory).map_err(|error| with_path(&self.directory, &error))?;
        if !self.created {
            return Ok(());
        }
        fs::remove_file(&self.path).map_err(|error| with_path(&self.path, &error))
    }
}

/// Creates the file if it does not exist, else checks that it can be written. Returns whether it
/// was created.
fn create_or_check(path: &Path) -> io::Result<bool> {
    match File::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // If the path is a dangling link, its target is created.
            let created = !path.exists();
            let mut options = File::options();
            options.write(true).create(true).truncate(false);
            options.open(path).map(|_| created)
        }
        created => created.map(|_| true),
    }
}

/// The directory of a file's parts while it is written.
pub(crate) fn parts_directory(path: &Path) -> PathBuf {
    let mut directory = path.as_os_str().to_owned();
    directory.push(PARTS_SUFFIX);
    PathBuf::from(directory)
}

/// Renames an ended part to its final name, replacing an earlier part of that name.
pub(crate) fn make_whole(open: &Path) -> io::Result<PathBuf> {
    let stem = open.file_stem().unwrap_or_default().to_string_lossy();
    let name = format!("{}.parquet", stem.trim_start_matches('.'));
    let whole = open.with_file_name(name);
    fs::rename(open, &whole).map_err(|error| with_path(open, &error))?;
    Ok(whole)
}

/// Copies the row groups of `parts` into `file` in order, and writes the metadata.
fn merge(
    file: File,
    parts: &[PathBuf],
    layout: &Layout,
    about: &[(String, String)],
) -> io::Result<()> {
    let mut merged = layout.begin(file)?;
    for part in parts {
        append(&mut merged, File::open(part)?).map_err(into_io_error)?;
    }
    close(merged, about)
}

fn append(merged: &mut ParquetWriter, part: File) -> Result<(), ParquetError> {
    let bytes = part.try_clone()?;
    let part = SerializedFileReader::new(part)?;
    for copied in part.metadata().row_groups() {
        let mut group = merged.next_row_group()?;
        for column in copied.columns() {
            let close = ColumnCloseResult {
                bytes_written: column.compressed_size().unsigned_abs(),
                rows_written: copied.num_rows().unsigned_abs(),
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            group.append_column(&bytes, close)?;
        }
        group.close()?;
    }
    Ok(())
}

/// Converts an error; an I/O error inside it is returned as it is.
pub(crate) fn into_io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}

/// Adds the file's name to an error.
pub(crate) fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
