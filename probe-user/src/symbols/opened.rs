//! Opening a file that may be a container's: nothing but a regular file is ever opened, so that no
//! device answers and no FIFO waits.

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

/// The file at a path of this process's own root, or behind a link of procfs.
pub(super) fn link(path: &Path) -> Option<File> {
    let place = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    regular(&place)
}

/// The file that a process names by `path`, below its root: links lead nowhere out of it, and those
/// of procfs nowhere at all. `proc` is procfs.
pub(super) fn in_root(proc: &Path, pid: u32, path: &[u8]) -> Option<File> {
    let of = |pid: u32| below(&proc.join(format!("{pid}/root")), path);
    of(pid).or_else(|| {
        let thread = process::living(proc, pid);
        (thread != pid).then(|| of(thread)).flatten()
    })
}

/// Whether the kernel does not let this process look below the root of another one.
pub(super) fn is_refused(proc: &Path, pid: u32) -> bool {
    let root = proc.join(format!("{pid}/root"));
    let opened = open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    opened.is_err_and(|error| error == Errno::ACCESS || error == Errno::PERM)
}

/// As [`in_root`], by the root's directory.
pub(super) fn below(root: &Path, path: &[u8]) -> Option<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = open(root, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let path = Path::new(OsStr::from_bytes(path));
    regular(&openat2(root, path, flags, Mode::empty(), resolve).ok()?)
}

/// Opens what a descriptor of `O_PATH` stands for.
fn regular(place: &OwnedFd) -> Option<File> {
    let kind = FileType::from_raw_mode(fstat(place).ok()?.st_mode);
    (kind == FileType::RegularFile).then_some(())?;
    let own = format!("self/fd/{}", place.as_raw_fd());
    let path = Roots::default().proc.join(own);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Some(open(path, flags, Mode::empty()).ok()?.into())
}
