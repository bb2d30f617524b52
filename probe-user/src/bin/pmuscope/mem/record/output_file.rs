//! The path of the raw file. A file of an earlier recording stays there until this recording runs.
//! A file is locked (`flock(2)`) while a recording writes or replaces it. The kernel releases the
//! lock of a killed process.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// The path of a file that is being written.
pub(super) struct OutputFile {
    path: PathBuf,
    /// The temporary path next to an earlier file, and this file, until the recording runs; None:
    /// `path` is written directly.
    temporary: Mutex<Option<(PathBuf, File)>>,
    /// Nothing existed at `path` before.
    is_new: bool,
}

impl OutputFile {
    /// Opens the file, empty. A link or a device is written directly.
    pub(super) fn open(path: &Path) -> io::Result<(Self, File)> {
        loop {
            let old = match fs::symlink_metadata(path) {
                Ok(old) => Some(old),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            let is_new = old.is_none();
            // Fails now, and not later, if an earlier file cannot be written.
            let mut options = File::options();
            options.write(true).create(true).create_new(is_new);
            let file = match options.truncate(false).open(path) {
                Err(error) if is_new && error.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            if !lock(&file, path)? {
                continue;
            }
            let (file, temporary) = match old.filter(fs::Metadata::is_file) {
                Some(old) => {
                    let temporary = temporary_path(path);
                    let new = File::create(&temporary)?;
                    new.set_permissions(old.permissions())?;
                    lock(&new, &temporary)?;
                    (new, Some((temporary, file)))
                }
                None => {
                    if file.metadata()?.is_file() {
                        file.set_len(0)?;
                    }
                    (file, None)
                }
            };
            let output = Self {
                path: path.to_owned(),
                temporary: Mutex::new(temporary),
                is_new,
            };
            return Ok((output, file));
        }
    }

    /// Moves the file to its path, over an earlier one, once the recording runs.
    pub(super) fn commit(&self) -> io::Result<()> {
        let mut temporary = self
            .temporary
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match temporary.take() {
            Some((temporary, _earlier)) => fs::rename(temporary, &self.path),
            None => Ok(()),
        }
    }

    /// Removes the file, since nothing was recorded. An earlier file stays.
    pub(super) fn discard(self) -> io::Result<()> {
        let temporary = { self.temporary.into_inner() }.unwrap_or_else(PoisonError::into_inner);
        match temporary {
            Some((temporary, _earlier)) => fs::remove_file(temporary),
            None if self.is_new => fs::remove_file(self.path),
            None => Ok(()),
        }
    }
}

/// Locks a file until it is closed. False if another file has its path by now.
fn lock(file: &File, path: &Path) -> io::Result<bool> {
    let identity = |data: &fs::Metadata| (data.dev(), data.ino());
    let data = file.metadata()?;
    if !data.is_file() {
        return Ok(true);
    }
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another recording is writing it: name another file",
        )),
        // Some file systems have no locks.
        Ok(()) | Err(TryLockError::Error(_)) => {
            Ok(fs::metadata(path).is_ok_and(|now| identity(&now) == identity(&data)))
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
    fn a_file_that_another_recording_writes_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("perf.data");
        let refused = || OutputFile::open(&path).map(drop).unwrap_err();
        // The first recording writes a new file, the second one replaces it.
        for text in ["first", "second"] {
            let (output, mut file) = OutputFile::open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            assert_eq!(refused().kind(), io::ErrorKind::ResourceBusy);
            output.commit().unwrap();
            let message = refused().to_string();
            assert_eq!(
                message,
                "another recording is writing it: name another file"
            );
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        // A killed recording has left its temporary file.
        let (output, mut file) = OutputFile::open(&path).unwrap();
        file.write_all(b"killed").unwrap();
        drop((output, file));
        let (output, _file) = OutputFile::open(&path).unwrap();
        output.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
        assert_eq!(file_names(directory.path()), ["perf.data"]);
    }

    #[test]
    fn a_device_is_shared_by_recordings() {
        let null = Path::new("/dev/null");
        let _first = OutputFile::open(null).unwrap();
        let (second, _file) = OutputFile::open(null).unwrap();
        second.discard().unwrap();
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
