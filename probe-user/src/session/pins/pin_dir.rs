//! The directory of pins: on a bpffs, and locked by one process at a time.

use std::{
    fs::{self, TryLockError},
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use rustix::fs::statfs;

use super::{PinError, stamp::PREFIX};
use crate::sys::trusted_files::TrustedDirectory;

/// `BPF_FS_MAGIC` of `linux/magic.h`.
const BPFFS_MAGIC: u32 = 0xcafe_4a11;

/// Suffix of the names of links. Links are removed first, so that no attached program loses a map.
pub(super) const LINK: &str = "_link";

/// A directory of pins, locked by this process. The kernel releases the lock of a killed process.
#[derive(Debug)]
pub(super) struct PinDir {
    /// The directory, which is locked as long as it is open.
    directory: TrustedDirectory,
}

impl PinDir {
    /// Locks the directory, and creates it if it is missing.
    pub(super) fn lock_or_create(path: &Path) -> Result<Self, PinError> {
        loop {
            check_is_on_bpffs(path)?;
            let directory = match TrustedDirectory::make(path) {
                // Another process removed it at its end, between the check and the opening.
                Err(error) if is_gone(&error) => continue,
                created => {
                    created.map_err(|error| PinError::from_io("make", path.to_owned(), error))?
                }
            };
            if let Some(locked) = Self::lock(directory)? {
                return Ok(locked);
            }
        }
    }

    /// Locks the directory; None if it does not exist.
    pub(super) fn lock_existing(path: &Path) -> Result<Option<Self>, PinError> {
        match TrustedDirectory::open(path) {
            Err(error) if is_gone(&error) => Ok(None),
            opened => Self::lock(
                opened.map_err(|error| PinError::from_io("open", path.to_owned(), error))?,
            ),
        }
    }

    /// Locks an opened directory; None if it was removed meanwhile.
    fn lock(directory: TrustedDirectory) -> Result<Option<Self>, PinError> {
        let path = || directory.path().to_owned();
        let failed = |source| PinError::from_io("open", path(), source);
        match directory.descriptor().try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(PinError::InUse(path())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let locked_inode = directory.descriptor().metadata().map_err(failed)?.ino();
        let is_same = match fs::symlink_metadata(directory.path()) {
            Err(error) if is_gone(&error) => false,
            now => now.map_err(failed)?.ino() == locked_inode,
        };
        Ok(is_same.then_some(Self { directory }))
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The names of the sessions' directories, sorted.
    pub(super) fn sessions(&self) -> Result<Vec<String>, PinError> {
        let mut names = self
            .directory
            .names()
            .map_err(|error| PinError::from_io("list", self.path().to_owned(), error))?;
        names.retain(|name| name.starts_with(PREFIX) && self.is_ours(name));
        Ok(names)
    }

    /// Whether `name` is a directory of this user or root, and no link. Warns if not.
    fn is_ours(&self, name: &str) -> bool {
        let opened = self.directory.directory(name);
        if let Err(error) = &opened {
            let path = self.path().join(name);
            tracing::warn!("skipped {}: {error}; remove it", path.display());
        }
        opened.is_ok()
    }

    /// Creates the directory of a session.
    pub(super) fn make(&self, name: &str) -> Result<(), PinError> {
        let created = self.directory.make_directory(name);
        created.map_err(|error| PinError::from_io("make", self.path().join(name), error))
    }

    /// Renames the directory of a session.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<(), PinError> {
        let renamed = self.directory.rename(from, to);
        renamed.map_err(|error| PinError::from_io("rename", self.path().join(from), error))
    }

    /// Removes a session's pins. This detaches its programs, and the kernel frees the objects that
    /// have no other references.
    pub(super) fn remove(&self, name: &str) -> Result<(), PinError> {
        let remove = || {
            let session = self.directory.directory(name)?;
            let mut files = session.names()?;
            files.sort_by_key(|name| !name.ends_with(LINK));
            for file in files {
                session.remove_file(&file)?;
            }
            self.directory.remove_directory(name)
        };
        remove().map_err(|source| {
            PinError::from_io("remove the pins in", self.path().join(name), source)
        })
    }

    /// Removes the directory itself, if it is empty and nothing is mounted on it.
    pub(super) fn remove_if_empty(&self) {
        let _ = fs::remove_dir(self.path());
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Fails if the directory is on another file system than bpffs, or would be created there.
fn check_is_on_bpffs(path: &Path) -> Result<(), PinError> {
    let parent = path.parent().unwrap_or(path);
    let existing = if path.exists() { path } else { parent };
    let file_system = statfs(existing)
        .map_err(|error| PinError::from_io("look at", existing.into(), error.into()))?;
    // The type is a signed number on some architectures.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a magic number of 32 bits"
    )]
    if file_system.f_type as u32 == BPFFS_MAGIC {
        Ok(())
    } else {
        Err(PinError::NoBpffs {
            path: path.to_owned(),
            mount: parent.to_owned(),
        })
    }
}
