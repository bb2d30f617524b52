//! Opens files that may be a container's: only regular files, so that neither a device nor a FIFO
//! is ever opened.

use std::{
    ffi::OsStr,
    fs::File,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2},
    io::Errno,
};

use crate::{machine::process, sys::roots::Roots};

/// Opens the file at a path in this process's own root, or the target of a link of procfs.
pub(super) fn link(path: &Path) -> Option<File> {
    let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    regular(&file)
}

/// Opens the file at `path` below a process's root. Links stay within the root, and links of procfs
/// are not followed. `proc` is procfs.
pub(super) fn in_root(proc: &Path, pid: u32, path: &[u8]) -> Option<File> {
    let of_thread = |pid: u32| below(&proc.join(format!("{pid}/root")), path);
    of_thread(pid).or_else(|| {
        let thread = process::surviving_thread(proc, pid);
        (thread != pid).then(|| of_thread(thread)).flatten()
    })
}

/// Whether the kernel denies access to the root of a process.
pub(super) fn is_refused(proc: &Path, pid: u32) -> bool {
    let root = proc.join(format!("{pid}/root"));
    let opened = open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    opened.is_err_and(|error| error == Errno::ACCESS || error == Errno::PERM)
}

/// As [`in_root`], with the root directory.
pub(super) fn below(root: &Path, path: &[u8]) -> Option<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = open(root, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let path = Path::new(OsStr::from_bytes(path));
    regular(&openat2(root, path, flags, Mode::empty(), resolve).ok()?)
}

/// Opens the file of an `O_PATH` descriptor, if it is regular.
fn regular(descriptor: &OwnedFd) -> Option<File> {
    let kind = FileType::from_raw_mode(fstat(descriptor).ok()?.st_mode);
    (kind == FileType::RegularFile).then_some(())?;
    let own = format!("self/fd/{}", descriptor.as_raw_fd());
    let path = Roots::default().proc.join(own);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Some(open(path, flags, Mode::empty()).ok()?.into())
}
