//! Errors of saving a state and of resuming totals.

use std::{io, path::PathBuf};

/// Why a state cannot be saved, or totals start from zero. Each message says what is lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The file cannot be read.
    #[error(
        "cannot read {path}: {source}; totals start from zero. Make it readable, or remove it",
        path = path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file cannot be written.
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
    /// The file is no state.
    #[error(
        "{path} is no state of pmuscope: totals start from zero, and it will be replaced",
        path = .0.display()
    )]
    Foreign(PathBuf),
    /// The file is of a version with another format or another layout of the maps.
    #[error(
        "{path} has format {found} and this program reads {known}: totals start from zero",
        path = path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The file's format.
        found: String,
        /// The format that this program reads.
        known: String,
    },
    /// The file is truncated or changed.
    #[error(
        "{path} is damaged: totals start from zero, and it will be replaced",
        path = .0.display()
    )]
    Damaged(PathBuf),
    /// The machine was rebooted since the state was saved.
    #[error(
        "{path} is of an earlier boot of the machine: totals start from zero, as all counters of \
         the kernel do", path = .0.display()
    )]
    OtherBoot(PathBuf),
    /// The plan has other groups of events.
    #[error(
        "an event is counted together with others than before: totals start from zero, since \
         events of one group are scaled as one"
    )]
    OtherEvents,
}
