//! Opens files that may belong to a container. Only regular files are opened, since opening a
//! device or a FIFO may have effects or block.

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

/// Opens a regular file by a path in this process's own root; the path may be a link of procfs.
/// None for other files.
pub(super) fn regular_file(path: &Path) -> Option<File> {
    let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    reopen_if_regular(&file)
}

/// Opens the file at `path` below a process's root. Links stay within the root, and links of procfs
/// are not followed. `proc` is procfs.
pub(super) fn in_root(proc: &Path, pid: u32, path: &[u8]) -> Option<File> {
    let below_root_of = |pid: u32| below(&proc.join(format!("{pid}/root")), path);
    below_root_of(pid).or_else(|| {
        let thread = process::surviving_thread(proc, pid);
        (thread != pid).then(|| below_root_of(thread)).flatten()
    })
}

/// Whether the kernel denies access to the root of a process.
pub(super) fn is_refused(proc: &Path, pid: u32) -> bool {
    let root = proc.join(format!("{pid}/root"));
    let opened = open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    opened.is_err_and(|error| error == Errno::ACCESS || error == Errno::PERM)
}

/// Like [`in_root`], for the root directory `root`.
pub(super) fn below(root: &Path, path: &[u8]) -> Option<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = open(root, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let path = Path::new(OsStr::from_bytes(path));
    reopen_if_regular(&openat2(root, path, flags, Mode::empty(), resolve).ok()?)
}

/// Opens the file of an `O_PATH` descriptor if it is a regular file.
fn reopen_if_regular(descriptor: &OwnedFd) -> Option<File> {
    let kind = FileType::from_raw_mode(fstat(descriptor).ok()?.st_mode);
    (kind == FileType::RegularFile).then_some(())?;
    let link = format!("self/fd/{}", descriptor.as_raw_fd());
    let path = Roots::default().proc.join(link);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Some(open(path, flags, Mode::empty()).ok()?.into())
}
