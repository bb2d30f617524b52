//! The directory of pins: on a bpffs, and one process' at a time.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::statfs;

use super::{PinError, stamp::PREFIX};

/// `BPF_FS_MAGIC` of `linux/magic.h`.
const BPFFS: u32 = 0xcafe_4a11;

/// How the names of links end; links go first, so that no program runs into a map that is gone.
pub(super) const LINK: &str = "_link";

/// A directory of pins, held by this process: the kernel takes the lock from one that is killed.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    _lock: File,
}

impl Place {
    /// Makes the directory where it is missing, and holds it.
    pub(super) fn hold(path: &Path) -> Result<Self, PinError> {
        loop {
            check(path)?;
            make(path)?;
            // It may go between the two, by the end of another process.
            if let Some(held) = Self::hold_existing(path)? {
                return Ok(held);
            }
        }
    }

    /// The same; None where there is no such directory.
    pub(super) fn hold_existing(path: &Path) -> Result<Option<Self>, PinError> {
        let failed = |source| PinError::of("open", path.to_owned(), source);
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let lock = match File::open(path) {
            Err(error) if gone(&error) => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(PinError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let same = match fs::metadata(path) {
            Err(error) if gone(&error) => false,
            now => now.map_err(failed)?.ino() == lock.metadata().map_err(failed)?.ino(),
        };
        Ok(same.then(|| Self {
            path: path.to_owned(),
            _lock: lock,
        }))
    }

    /// The names of sessions' directories in it, in their order.
    pub(super) fn sessions(&self) -> Result<Vec<String>, PinError> {
        let failed = |source| PinError::of("list", self.path.clone(), source);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Makes the directory of a session.
    pub(super) fn make(&self, name: &str) -> Result<PathBuf, PinError> {
        let path = self.path.join(name);
        make(&path)?;
        Ok(path)
    }

    /// Removes a session's pins: its programs are detached, and what nobody else holds is freed.
    pub(super) fn remove(&self, name: &str) -> Result<(), PinError> {
        let directory = self.path.join(name);
        let failed = |source| PinError::of("remove the pins in", directory.clone(), source);
        let mut files = Vec::new();
        for entry in fs::read_dir(&directory).map_err(failed)? {
            files.push(entry.map_err(failed)?.path());
        }
        files.sort_by_key(|path| !is_link(path));
        for file in files {
            fs::remove_file(file).map_err(failed)?;
        }
        fs::remove_dir(&directory).map_err(failed)
    }

    /// Removes the directory itself, where nothing of others is in it and nothing is mounted on it.
    pub(super) fn leave(&self) {
        let _ = fs::remove_dir(&self.path);
    }
}

fn is_link(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.ends_with(LINK))
}

fn make(path: &Path) -> Result<(), PinError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(PinError::of("make", path.to_owned(), error))
        }
        _ => Ok(()),
    }
}

/// An error where the directory is, or would be, on another file system.
fn check(path: &Path) -> Result<(), PinError> {
    let parent = path.parent().unwrap_or(path);
    let there = if path.exists() { path } else { parent };
    let found =
        statfs(there).map_err(|error| PinError::of("look at", there.into(), error.into()))?;
    // The type is a signed number on some architectures.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a magic number of 32 bits"
    )]
    if found.f_type as u32 == BPFFS {
        Ok(())
    } else {
        Err(PinError::NoBpffs {
            path: path.to_owned(),
            mount: parent.to_owned(),
        })
    }
}
