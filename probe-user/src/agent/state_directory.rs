//! The state directory: one agent at a time saves its totals there.

use std::{
    fs::TryLockError,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
};

use super::saver::Saver;
use crate::{
    state::{EncodedState, StateError},
    sys::trusted_files::TrustedDirectory,
};

/// Another agent has the directory: both would continue the same totals.
#[derive(Debug, thiserror::Error)]
#[error(
    "another agent saves its totals in {}; name another directory by state.path",
    _0.display()
)]
pub struct StateDirectoryLocked(PathBuf);

/// The locked state directory.
pub(super) struct StateDirectory {
    path: PathBuf,
    saver: Saver,
    /// Locked until this is dropped; None if it cannot be used, and then each save fails.
    _locked: Option<TrustedDirectory>,
}

impl StateDirectory {
    /// Locks the directory. `save` is the command of the process that saves.
    pub(super) fn take(
        path: &Path,
        save: fn(&Path) -> Command,
    ) -> Result<Self, StateDirectoryLocked> {
        let mut saver = Saver::new(path, save);
        let own = match TrustedDirectory::open(path) {
            // The child makes it: this process must not wait for a frozen file system.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let made = saver.save(Vec::new());
                made.and_then(|()| TrustedDirectory::open(path))
            }
            opened => opened,
        };
        let own = own.ok();
        // The directory itself is locked: a lock file would have to be written.
        let locked = own.as_ref().map(|own| own.descriptor().try_lock());
        if let Some(Err(TryLockError::WouldBlock)) = locked {
            return Err(StateDirectoryLocked(path.to_owned()));
        }
        Ok(Self {
            path: path.to_owned(),
            saver,
            _locked: own,
        })
    }

    /// Saves files in the given order.
    pub(super) fn save(&mut self, files: Vec<EncodedState>) -> Result<(), StateError> {
        self.saver.save(files).map_err(|source| StateError::Save {
            path: self.path.clone(),
            source,
        })
    }
}
