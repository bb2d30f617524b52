//! The directory of the state: one agent at a time goes on with its totals.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use crate::sys::own_files::{LockError, OwnDirectory};

/// The file that is locked.
const LOCK: &str = "lock";

/// Why an agent cannot have the directory.
#[derive(Debug, thiserror::Error)]
pub enum StateDirectoryError {
    /// It cannot be made, or is not this user's alone.
    #[error("cannot use the directory {}: {source}; name another one by state.path", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another agent saves its totals there: both would count on from the same ones.
    #[error(
        "another agent{} saves its totals in {}; name another directory by state.path",
        pid.as_ref().map_or_else(String::new, |pid| format!(", process {pid},")),
        path.display()
    )]
    Held {
        /// The directory.
        path: PathBuf,
        /// The other agent.
        pid: Option<String>,
    },
}

/// The directory of the state, held until this is dropped.
#[derive(Debug)]
pub(super) struct StateDirectory {
    path: PathBuf,
    _lock: File,
}

impl StateDirectory {
    /// Takes it.
    pub(super) fn take(path: &Path) -> Result<Self, StateDirectoryError> {
        let own = OwnDirectory::make(path).map_err(LockError::from);
        match own.and_then(|own| own.lock(LOCK)) {
            Ok(lock) => Ok(Self {
                path: path.to_owned(),
                _lock: lock,
            }),
            Err(LockError::Held(pid)) => Err(StateDirectoryError::Held {
                path: path.to_owned(),
                pid,
            }),
            Err(LockError::Io(source)) => Err(StateDirectoryError::Directory {
                path: path.to_owned(),
                source,
            }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
