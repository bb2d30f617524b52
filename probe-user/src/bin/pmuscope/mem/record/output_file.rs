//! The path of the raw file. A file of an earlier recording stays there until this recording runs.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// The path of a file that is being written.
pub(super) struct OutputFile {
    path: PathBuf,
    /// The temporary path next to an earlier file, until the recording runs; None: `path` is
    /// written directly.
    temporary: Mutex<Option<PathBuf>>,
    /// Nothing existed at `path` before.
    is_new: bool,
}

impl OutputFile {
    /// Opens the file, empty. A link or a device is written directly.
    pub(super) fn open(path: &Path) -> io::Result<(Self, File)> {
        let old = match fs::symlink_metadata(path) {
            Ok(old) => Some(old),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let is_new = old.is_none();
        let temporary = match old.filter(fs::Metadata::is_file) {
            Some(old) => {
                // Fails now, and not later, if the earlier file cannot be written.
                File::options().write(true).open(path)?;
                Some((temporary_path(path), old.permissions()))
            }
            None => None,
        };
        let file = match &temporary {
            Some((temporary, permissions)) => {
                let file = File::create(temporary)?;
                file.set_permissions(permissions.clone())?;
                file
            }
            None => File::create(path)?,
        };
        let output = Self {
            path: path.to_owned(),
            temporary: Mutex::new(temporary.map(|(temporary, _)| temporary)),
            is_new,
        };
        Ok((output, file))
    }

    /// Moves the file to its path, over an earlier one, once the recording runs.
    pub(super) fn commit(&self) -> io::Result<()> {
        let mut temporary = self
            .temporary
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match temporary.take() {
            Some(temporary) => fs::rename(temporary, &self.path),
            None => Ok(()),
        }
    }

    /// Removes the file, since nothing was recorded. An earlier file stays.
    pub(super) fn discard(self) -> io::Result<()> {
        let temporary = { self.temporary.into_inner() }.unwrap_or_else(PoisonError::into_inner);
        match temporary {
            Some(temporary) => fs::remove_file(temporary),
            None if self.is_new => fs::remove_file(self.path),
            None => Ok(()),
        }
    }
}

/// A hidden name in the same directory: programs that read all files there ignore it.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".open");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn file_names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn an_earlier_file_stays_until_the_recording_runs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("perf.data");
        fs::write(&path, "old").unwrap();
        let (output, mut file) = OutputFile::open(&path).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        output.discard().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        let (output, mut file) = OutputFile::open(&path).unwrap();
        file.write_all(b"new").unwrap();
        for _ in 0..2 {
            output.commit().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        }
        file.write_all(b" and more").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new and more");
        assert_eq!(file_names(directory.path()), ["perf.data"]);
    }

    #[test]
    fn a_new_file_is_removed_if_nothing_was_recorded() {
        let directory = tempfile::tempdir().unwrap();
        let (output, _file) = OutputFile::open(&directory.path().join("perf.data")).unwrap();
        assert_eq!(file_names(directory.path()), ["perf.data"]);
        output.discard().unwrap();
        assert!(file_names(directory.path()).is_empty());
    }

    #[test]
    fn a_link_is_written_through_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("perf.data");
        let file = directory.path().join("elsewhere");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let (output, mut out) = OutputFile::open(&link).unwrap();
        out.write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        output.discard().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
