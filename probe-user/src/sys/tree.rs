//! File trees that replace sysfs and procfs in tests: made up, or recorded.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// A file or directory of `tests/fixtures`.
pub(crate) fn fixture(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures")).join(path)
}

/// A temporary directory, removed on drop.
pub(crate) struct Tree(tempfile::TempDir);

impl Tree {
    /// An empty tree.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn join(&self, path: &str) -> PathBuf {
        self.path().join(path)
    }

    /// Creates a directory and its parents.
    pub(crate) fn dir(&self, path: &str) {
        fs::create_dir_all(self.join(path)).unwrap();
    }

    /// Writes a file; creates its parent directories.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        fs::write(self.create_parents(path), content).unwrap();
    }

    /// Creates a symbolic link and its parent directories.
    pub(crate) fn link(&self, path: &str, target: impl AsRef<Path>) {
        symlink(target, self.create_parents(path)).unwrap();
    }

    /// Writes files of a PMU; the tree is a sysfs.
    pub(crate) fn pmu(&self, name: &str, files: &[(&str, &str)]) {
        for (file, text) in files {
            self.write(&format!("bus/event_source/devices/{name}/{file}"), text);
        }
    }

    fn create_parents(&self, path: &str) -> PathBuf {
        let path = self.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }
}
