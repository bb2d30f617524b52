//! The directory of the state: one agent at a time saves its totals there.

use std::{
    fs::TryLockError,
    path::{Path, PathBuf},
    process::Command,
};

use super::saver::Saver;
use crate::{
    state::{Encoded, StateError},
    sys::own_files::OwnDirectory,
};

/// Another agent has the directory: both would count on from the same totals.
#[derive(Debug, thiserror::Error)]
#[error(
    "another agent saves its totals in {}; name another directory by state.path",
    _0.display()
)]
pub struct StateDirectoryHeld(PathBuf);

/// The directory of the state.
pub(super) struct StateDirectory {
    path: PathBuf,
    saver: Saver,
    /// Locked until this is dropped; none where it cannot be used, which each save says.
    _locked: Option<OwnDirectory>,
}

impl StateDirectory {
    /// Takes it. `save` starts the process that saves.
    pub(super) fn take(
        path: &Path,
        save: fn(&Path) -> Command,
    ) -> Result<Self, StateDirectoryHeld> {
        let own = OwnDirectory::make(path).ok();
        // Of the directory, since a file would have to be written.
        let locked = own.as_ref().map(|own| own.descriptor().try_lock());
        if let Some(Err(TryLockError::WouldBlock)) = locked {
            return Err(StateDirectoryHeld(path.to_owned()));
        }
        Ok(Self {
            path: path.to_owned(),
            saver: Saver::new(path, save),
            _locked: own,
        })
    }

    /// Saves files, in their order.
    pub(super) fn save(&mut self, files: Vec<Encoded>) -> Result<(), StateError> {
        self.saver.save(files).map_err(|source| StateError::Save {
            path: self.path.clone(),
            source,
        })
    }
}
