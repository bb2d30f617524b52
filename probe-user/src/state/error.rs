//! Why a state cannot be saved, or totals cannot go on.

use std::{io, path::PathBuf};

/// Why a state cannot be saved, or totals begin anew. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The kernel does not give the file.
    #[error(
        "cannot read {path}: {source}; totals begin anew. Make it readable, or remove it",
        path = path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel does not take the file.
    #[error(
        "cannot save totals to {path}: {source}; a restart would lose what came since the last \
         save. Free space, or give a directory that can be written", path = path.display()
    )]
    Save {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no state.
    #[error(
        "{path} is no state of pmuscope: totals begin anew, and it will be replaced",
        path = .0.display()
    )]
    Foreign(PathBuf),
    /// That of a version that saves other things, or whose maps have another layout.
    #[error(
        "{path} has format {found} and this program reads {known}: totals begin anew",
        path = path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: String,
        /// The one that is known.
        known: String,
    },
    /// Its end is missing, or its bytes are not those that were written.
    #[error("{path} is damaged: totals begin anew, and it will be replaced", path = .0.display())]
    Damaged(PathBuf),
    /// The machine was started since.
    #[error(
        "{path} is of an earlier boot of the machine: totals begin anew, as all counters of the \
         kernel do", path = .0.display()
    )]
    OtherBoot(PathBuf),
    /// The groups of the plan are others.
    #[error(
        "an event is counted together with others than before: totals begin anew, since events of \
         one group are scaled as one"
    )]
    OtherEvents,
}
