//! Why a file or directory of sysfs could not be used.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{cpus::ParseCpuListError, format::FormatError};

/// A file or directory of sysfs that could not be used.
#[derive(Debug, Error)]
#[error("{}: {problem}", path.display())]
pub struct SysfsError {
    /// The file or directory.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: SysfsProblem,
}

/// What is wrong with a file or directory of sysfs.
#[derive(Debug, Error)]
#[allow(
    missing_docs,
    reason = "each variant's message says what it and its fields are"
)]
pub enum SysfsProblem {
    #[error("is missing")]
    Missing,
    #[error("is missing: mount sysfs with `mount -t sysfs none /sys`")]
    NotMounted,
    #[error("cannot be read: {0}")]
    Read(io::Error),
    #[error("has a name that is not UTF-8")]
    Name,
    #[error("does not hold {0}")]
    Content(&'static str),
    #[error("holds `{text}`: {reason}")]
    Format { text: String, reason: FormatError },
    #[error("holds `{text}`, which is no list of CPUs: {reason}")]
    Cpus {
        text: String,
        reason: ParseCpuListError,
    },
}

impl SysfsError {
    pub(super) fn read(path: &Path, error: io::Error) -> Self {
        Self {
            path: path.to_owned(),
            problem: SysfsProblem::Read(error),
        }
    }

    pub(super) fn content(path: &Path, wanted: &'static str) -> Self {
        Self {
            path: path.to_owned(),
            problem: SysfsProblem::Content(wanted),
        }
    }
}
