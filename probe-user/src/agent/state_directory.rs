//! The state directory: one agent at a time saves its totals there.

use std::{
    fs::TryLockError,
    io,
    path::{Path, PathBuf},
    process::Command,
};

use tokio::sync::watch;

use super::saver::Saver;
use crate::{
    state::{EncodedState, StateError},
    sys::trusted_files::TrustedDirectory,
};

/// Another agent has locked the directory: both agents would continue the same totals.
#[derive(Debug, thiserror::Error)]
#[error(
    "another agent saves its totals in {}; name another directory by state.path",
    _0.display()
)]
pub struct StateDirectoryLocked(PathBuf);

/// The state directory of an agent.
pub(super) struct StateDirectory {
    path: PathBuf,
    saver: Saver,
    /// Locked until this is dropped; None while the directory cannot be opened.
    locked: Option<TrustedDirectory>,
}

impl StateDirectory {
    /// Locks the directory. `save` makes the command of the process that saves; `saving` is true
    /// during a save.
    pub(super) fn acquire(
        path: &Path,
        save: fn(&Path) -> Command,
        saving: &watch::Sender<bool>,
    ) -> Result<Self, StateDirectoryLocked> {
        let mut acquired = Self {
            path: path.to_owned(),
            saver: Saver::new(path, save, saving.clone()),
            locked: None,
        };
        // If the directory cannot be opened, each save reports why.
        let _locked = acquired.lock()?;
        Ok(acquired)
    }

    /// Locks the directory unless it is locked already. Creates it if it does not exist. The outer
    /// error means that another agent has locked it, the inner error that it cannot be opened.
    fn lock(&mut self) -> Result<io::Result<()>, StateDirectoryLocked> {
        if self.locked.is_none() {
            let opened = match TrustedDirectory::open(&self.path) {
                // The child creates it: this process must not wait for a frozen file system.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let created = self.saver.save(Vec::new());
                    created.and_then(|()| TrustedDirectory::open(&self.path))
                }
                opened => opened,
            };
            let directory = match opened {
                Ok(directory) => directory,
                Err(error) => return Ok(Err(error)),
            };
            // The directory itself is locked: a lock file would have to be written, which a frozen
            // file system blocks.
            if let Err(TryLockError::WouldBlock) = directory.descriptor().try_lock() {
                return Err(StateDirectoryLocked(self.path.clone()));
            }
            self.locked = Some(directory);
        }
        Ok(Ok(()))
    }

    /// Saves files in the given order. Without the lock nothing is saved.
    pub(super) fn save(&mut self, files: Vec<EncodedState>) -> Result<(), StateError> {
        let locked = self
            .lock()
            .unwrap_or_else(|locked| Err(io::Error::other(locked)));
        let saved = locked.and_then(|()| self.saver.save(files));
        saved.map_err(|source| StateError::Save {
            path: self.path.clone(),
            source,
        })
    }
}
