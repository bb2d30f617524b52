//! The directory of pins: on a bpffs, and one process' at a time.

use std::{
    fs::{self, TryLockError},
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use rustix::fs::statfs;

use super::{PinError, stamp::PREFIX};
use crate::sys::own_files::OwnDirectory;

/// `BPF_FS_MAGIC` of `linux/magic.h`.
const BPFFS: u32 = 0xcafe_4a11;

/// How the names of links end; links go first, so that no program runs into a map that is gone.
pub(super) const LINK: &str = "_link";

/// A directory of pins, held by this process: the kernel takes the lock from one that is killed.
#[derive(Debug)]
pub(super) struct Place {
    /// Locked.
    directory: OwnDirectory,
}

impl Place {
    /// Makes the directory where it is missing, and holds it.
    pub(super) fn hold(path: &Path) -> Result<Self, PinError> {
        loop {
            check(path)?;
            let made = match OwnDirectory::make(path) {
                // By the end of another process.
                Err(error) if is_gone(&error) => continue,
                made => made.map_err(|error| PinError::of("make", path.to_owned(), error))?,
            };
            if let Some(held) = Self::lock(made)? {
                return Ok(held);
            }
        }
    }

    /// The same; None where there is no such directory.
    pub(super) fn hold_existing(path: &Path) -> Result<Option<Self>, PinError> {
        match OwnDirectory::open(path) {
            Err(error) if is_gone(&error) => Ok(None),
            opened => {
                Self::lock(opened.map_err(|error| PinError::of("open", path.to_owned(), error))?)
            }
        }
    }

    /// Locks it; None where it is no longer there.
    fn lock(directory: OwnDirectory) -> Result<Option<Self>, PinError> {
        let path = || directory.path().to_owned();
        let failed = |source| PinError::of("open", path(), source);
        match directory.descriptor().try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(PinError::InUse(path())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let held = directory.descriptor().metadata().map_err(failed)?.ino();
        let same = match fs::symlink_metadata(directory.path()) {
            Err(error) if is_gone(&error) => false,
            now => now.map_err(failed)?.ino() == held,
        };
        Ok(same.then_some(Self { directory }))
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The names of sessions' directories in it, in their order.
    pub(super) fn sessions(&self) -> Result<Vec<String>, PinError> {
        let names = self.directory.names();
        let mut names =
            names.map_err(|error| PinError::of("list", self.path().to_owned(), error))?;
        names.retain(|name| name.starts_with(PREFIX) && self.is_ours(name));
        Ok(names)
    }

    /// Whether a directory of this name is no link, and of nobody else.
    fn is_ours(&self, name: &str) -> bool {
        let opened = self.directory.directory(name);
        if let Err(error) = &opened {
            let path = self.path().join(name);
            tracing::warn!("skipped {}: {error}; remove it", path.display());
        }
        opened.is_ok()
    }

    /// Makes the directory of a session.
    pub(super) fn make(&self, name: &str) -> Result<(), PinError> {
        let made = self.directory.make_directory(name);
        made.map_err(|error| PinError::of("make", self.path().join(name), error))
    }

    /// Gives the directory of a session another name.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<(), PinError> {
        let renamed = self.directory.rename(from, to);
        renamed.map_err(|error| PinError::of("rename", self.path().join(from), error))
    }

    /// Removes a session's pins: its programs are detached, and what nobody else holds is freed.
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
        remove()
            .map_err(|source| PinError::of("remove the pins in", self.path().join(name), source))
    }

    /// Removes the directory itself, where nothing of others is in it and nothing is mounted on it.
    pub(super) fn leave(&self) {
        let _ = fs::remove_dir(self.path());
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
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
