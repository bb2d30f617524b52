//! Where the raw file is: what its path has from an earlier recording stays until this one runs.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// The place of a file that is being written.
pub(super) struct Place {
    path: PathBuf,
    /// Where it is until the recording runs, beside an earlier file.
    beside: Mutex<Option<PathBuf>>,
    /// Nothing was at its path before.
    made: bool,
}

impl Place {
    /// Opens the file, empty. A link or a device is written as it is.
    pub(super) fn open(path: &Path) -> io::Result<(Self, File)> {
        let old = match fs::symlink_metadata(path) {
            Ok(old) => Some(old),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let made = old.is_none();
        let beside = match old.filter(fs::Metadata::is_file) {
            Some(old) => {
                // At once, so that it is known that it can be written.
                File::options().write(true).open(path)?;
                Some((beside(path), old.permissions()))
            }
            None => None,
        };
        let file = match &beside {
            Some((beside, permissions)) => {
                let file = File::create(beside)?;
                file.set_permissions(permissions.clone())?;
                file
            }
            None => File::create(path)?,
        };
        let place = Self {
            path: path.to_owned(),
            beside: Mutex::new(beside.map(|(beside, _)| beside)),
            made,
        };
        Ok((place, file))
    }

    /// The recording runs: the file takes the place of an earlier one.
    pub(super) fn take(&self) -> io::Result<()> {
        let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        match beside.take() {
            Some(beside) => fs::rename(beside, &self.path),
            None => Ok(()),
        }
    }

    /// Removes the file, and leaves what was there before: nothing was recorded.
    pub(super) fn discard(self) -> io::Result<()> {
        let beside = { self.beside.into_inner() }.unwrap_or_else(PoisonError::into_inner);
        match beside {
            Some(beside) => fs::remove_file(beside),
            None if self.made => fs::remove_file(self.path),
            None => Ok(()),
        }
    }
}

/// A name in the same directory that readers of all its files pass over.
fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".open");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn an_earlier_file_stays_until_the_recording_runs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("perf.data");
        fs::write(&path, "old").unwrap();
        let (place, mut file) = Place::open(&path).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        place.discard().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        let (place, mut file) = Place::open(&path).unwrap();
        file.write_all(b"new").unwrap();
        for _ in 0..2 {
            place.take().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        }
        file.write_all(b" and more").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new and more");
        assert_eq!(names(directory.path()), ["perf.data"]);
    }

    #[test]
    fn a_file_that_was_not_there_is_not_left() {
        let directory = tempfile::tempdir().unwrap();
        let (place, _file) = Place::open(&directory.path().join("perf.data")).unwrap();
        assert_eq!(names(directory.path()), ["perf.data"]);
        place.discard().unwrap();
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn a_link_is_written_as_it_is_and_left() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("perf.data");
        let file = directory.path().join("elsewhere");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let (place, mut out) = Place::open(&link).unwrap();
        out.write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        place.discard().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
