//! Errors of pins.

use std::{io, path::PathBuf};

/// Why pins cannot be created, kept or removed. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The directory is on another kind of file system.
    #[error(
        "cannot keep pins in {path}: that is on no bpffs; mount one (`mount -t bpf \
         -o mode=0700 bpf {mount}`), or give a directory on one",
        path = path.display(), mount = mount.display()
    )]
    NoBpffs {
        /// The directory.
        path: PathBuf,
        /// The mount point at which a bpffs is missing.
        mount: PathBuf,
    },
    /// The bpffs cannot be written.
    #[error(
        "cannot keep pins in {path}: its bpffs is mounted read-only; remount it (`mount -o \
         remount,rw`), or give a directory on another", path = .0.display()
    )]
    ReadOnly(PathBuf),
    /// This process may not write to the directory.
    #[error(
        "cannot keep pins in {path}: permission denied (the directory may belong to root, or the \
         container's AppArmor profile may forbid writes below /sys/fs/bpf); mount a separate \
         bpffs for pmuscope, or give a writable directory", path = .0.display()
    )]
    Denied(PathBuf),
    /// Another process uses the directory.
    #[error(
        "another pmuscope keeps its pins in {path}: end it, or give another directory",
        path = .0.display()
    )]
    InUse(PathBuf),
    /// This session cannot be pinned. The field says why.
    #[error("cannot pin this session: {0}; run it without pins")]
    Unsuited(&'static str),
    /// Any other error of the kernel.
    #[error(
        "cannot {what} {path}: {source}; give another directory, or remove what is there (`rm -r`)",
        path = path.display()
    )]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl PinError {
    /// The error for an I/O error of a file of pins. `what` is the action that failed.
    pub(super) fn from_io(what: &'static str, path: PathBuf, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(path),
            io::ErrorKind::PermissionDenied => Self::Denied(path),
            _ => Self::Io { what, path, source },
        }
    }
}
