//! A private bpffs in a private mount namespace.

use std::{
    fs,
    path::{Path, PathBuf},
};

use probe_user::session::PinPath;
use rustix::{
    mount::{MountFlags, MountPropagationFlags, UnmountFlags},
    thread::UnshareFlags,
};
use tempfile::TempDir;

/// A bpffs that only this thread and its children see. The kernel removes it with the namespace,
/// also when the test is killed.
pub(crate) struct Bpffs {
    directory: TempDir,
}

impl Bpffs {
    pub(crate) fn mount() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // SAFETY: no other thread relies on the state that this thread unshares.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).unwrap();
        let none = MountFlags::empty();
        rustix::mount::mount("bpf", directory.path(), "bpf", none, None).unwrap();
        Self { directory }
    }

    pub(crate) fn place(&self) -> PinPath {
        PinPath(self.path().join("pmuscope"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The directories of the sessions that are pinned in it.
    pub(crate) fn sessions(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.place().0) else {
            return Vec::new();
        };
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Every path in it, except the kernel's own files.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.path()).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let is_ours = |path: &PathBuf| path.extension().is_none_or(|name| name != "debug");
        files.filter(is_ours).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files().is_empty()
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.path(), UnmountFlags::DETACH);
    }
}
