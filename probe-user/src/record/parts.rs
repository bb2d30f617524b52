//! A Parquet file that is written in parts. A file without its end cannot be read, so a recording
//! is written into a directory, each part a whole file; at its end their row groups, copied as they
//! are, become the one file that the user named.

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

/// What is put behind the file's name for the directory of its parts.
const PARTS: &str = ".parts";

/// What all metadata begins with.
pub(crate) const PREFIX: &str = "pmuscope.";

/// A file that is being written.
pub(crate) type Writer = SerializedFileWriter<File>;

/// What is the same in every part, and in the file that they become.
pub(crate) struct Layout {
    pub(crate) schema: TypePtr,
    pub(crate) properties: Arc<WriterProperties>,
}

impl Layout {
    /// Begins a file.
    pub(crate) fn begin(&self, file: File) -> io::Result<Writer> {
        let (schema, properties) = (Arc::clone(&self.schema), Arc::clone(&self.properties));
        SerializedFileWriter::new(file, schema, properties).map_err(other)
    }
}

/// Ends a file, with what is known of the recording: names and values.
pub(crate) fn end(mut file: Writer, about: &[(String, String)]) -> io::Result<()> {
    for (key, value) in about {
        let entry = KeyValue::new(format!("{PREFIX}{key}"), value.clone());
        file.append_key_value_metadata(entry);
    }
    file.close().map(drop).map_err(other)
}

/// The file that the user named, and the directory of its parts. What the file has from an earlier
/// recording stays until all of the new one is there.
pub(crate) struct Parts {
    path: PathBuf,
    directory: PathBuf,
    /// Whether the file was not there before.
    made: bool,
}

impl Parts {
    /// Begins both.
    ///
    /// # Errors
    ///
    /// Where they cannot be written, or where parts of an earlier recording are in the way.
    pub(crate) fn begin(path: &Path) -> io::Result<Self> {
        let directory = directory(path);
        fs::create_dir(&directory).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => io::Error::new(
                error.kind(),
                format!(
                    "{} has the parts of a recording that did not come to its end, or of one \
                     that is running: move it away, or name another file",
                    directory.display()
                ),
            ),
            _ => at(&directory, &error),
        })?;
        // At once, so that it is known that it can be written.
        let made = make(path).map_err(|error| {
            // It is empty.
            let _ = fs::remove_dir(&directory);
            at(path, &error)
        })?;
        Ok(Self {
            path: path.to_owned(),
            directory,
            made,
        })
    }

    /// Begins a part. Those who read the whole directory pass over it until [`make_whole`]: its
    /// name has a point before it.
    pub(crate) fn open(&self, name: &str) -> io::Result<(PathBuf, File)> {
        let path = self.directory.join(format!(".{name}.open"));
        let file = File::create_new(&path).map_err(|error| at(&path, &error))?;
        Ok((path, file))
    }

    /// Makes the one file of the whole parts, and removes them. `ended` is how the last parts
    /// ended: what of them is whole becomes the file all the same, but no part is removed then.
    ///
    /// # Errors
    ///
    /// Where it cannot be written: then its parts are still there.
    pub(crate) fn finish(
        self,
        whole: &[PathBuf],
        layout: &Layout,
        about: &[(String, String)],
        ended: io::Result<()>,
    ) -> io::Result<()> {
        let left = |error: io::Error| {
            let (path, directory) = (self.path.display(), self.directory.display());
            let message = format!("{path}: {error}; its parts are in {directory}");
            io::Error::new(error.kind(), message)
        };
        self.replace(|file| merge(file, whole, layout, about))
            .map_err(left)?;
        ended?;
        fs::remove_dir_all(&self.directory).map_err(|error| at(&self.directory, &error))
    }

    /// Writes the file again, all of it or nothing: under a name that readers of the directory
    /// skip, then in place of the old one. A link or a device is written as it is.
    fn replace(&self, write: impl FnOnce(File) -> io::Result<()>) -> io::Result<()> {
        let old = fs::symlink_metadata(&self.path);
        let old = match old.map(|old| (old.is_file(), old.permissions())) {
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
            // Its parts have what it has; where there is no room it is in the way.
            let _ = fs::remove_file(&new);
        }
        replaced
    }

    /// Removes the parts, and the file where there was none before: nothing was recorded.
    pub(crate) fn discard(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.directory).map_err(|error| at(&self.directory, &error))?;
        if !self.made {
            return Ok(());
        }
        fs::remove_file(&self.path).map_err(|error| at(&self.path, &error))
    }
}

/// Makes the file where there is none, and says whether it did; else finds out whether it can be
/// written.
fn make(path: &Path) -> io::Result<bool> {
    match File::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Through a link to nowhere it is made.
            let made = !path.exists();
            let mut options = File::options();
            options.write(true).create(true).truncate(false);
            options.open(path).map(|_| made)
        }
        made => made.map(|_| true),
    }
}

/// Where the parts of a file are while it is written.
pub(crate) fn directory(path: &Path) -> PathBuf {
    let mut directory = path.as_os_str().to_owned();
    directory.push(PARTS);
    PathBuf::from(directory)
}

/// Gives a part that has its end the name of a whole one, in place of an earlier one of that name.
pub(crate) fn make_whole(open: &Path) -> io::Result<PathBuf> {
    let name = open.file_stem().unwrap_or_default().to_string_lossy();
    let name = format!("{}.parquet", name.trim_start_matches('.'));
    let whole = open.with_file_name(name);
    fs::rename(open, &whole).map_err(|error| at(open, &error))?;
    Ok(whole)
}

/// Writes the row groups of `parts` into `file` in order, then what is known of the recording.
fn merge(
    file: File,
    parts: &[PathBuf],
    layout: &Layout,
    about: &[(String, String)],
) -> io::Result<()> {
    let mut merged = layout.begin(file)?;
    for part in parts {
        append(&mut merged, File::open(part)?).map_err(other)?;
    }
    end(merged, about)
}

fn append(merged: &mut Writer, part: File) -> Result<(), ParquetError> {
    let bytes = part.try_clone()?;
    let part = SerializedFileReader::new(part)?;
    for from in part.metadata().row_groups() {
        let mut group = merged.next_row_group()?;
        for column in from.columns() {
            let close = ColumnCloseResult {
                bytes_written: column.compressed_size().unsigned_abs(),
                rows_written: from.num_rows().unsigned_abs(),
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

/// An error of the file below it as it is.
pub(crate) fn other(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}

/// An error with the file that it is about.
pub(crate) fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
