//! Trees of files that tests put in place of sysfs and procfs: made up, or recorded.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// A file or directory of `tests/fixtures`.
pub(crate) fn fixture(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures")).join(path)
}

/// A directory that grows, and goes with this value.
pub(crate) struct Tree(tempfile::TempDir);

impl Tree {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn join(&self, path: &str) -> PathBuf {
        self.path().join(path)
    }

    /// A directory, with those above it.
    pub(crate) fn dir(&self, path: &str) {
        fs::create_dir_all(self.join(path)).unwrap();
    }

    /// A file, with the directories above it.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        fs::write(self.place(path), content).unwrap();
    }

    /// A symbolic link, with the directories above it.
    pub(crate) fn link(&self, path: &str, target: impl AsRef<Path>) {
        symlink(target, self.place(path)).unwrap();
    }

    /// Files of a PMU, where this tree stands for sysfs.
    pub(crate) fn pmu(&self, name: &str, files: &[(&str, &str)]) {
        for (file, text) in files {
            self.write(&format!("bus/event_source/devices/{name}/{file}"), text);
        }
    }

    fn place(&self, path: &str) -> PathBuf {
        let path = self.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }
}
