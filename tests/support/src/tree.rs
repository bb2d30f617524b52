//! File trees that replace sysfs and procfs in tests: made up, or recorded.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// A file or directory of `tests/fixtures`.
#[must_use]
pub fn fixture(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures")).join(path)
}

/// `/sys` of a machine in `tests/fixtures/sysfs`, as files.
///
/// The files are unpacked beside the test's program, once for all tests.
#[must_use]
pub fn sysfs(machine: &str) -> PathBuf {
    let text = fs::read_to_string(fixture(&format!("sysfs/{machine}.txt"))).unwrap();
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let machines = env::current_exe().unwrap().with_file_name("sysfs");
    let unpacked = machines.join(format!("{machine}-{:016x}", hasher.finish()));
    if !unpacked.exists() {
        fs::create_dir_all(&machines).unwrap();
        let tree = Tree(tempfile::tempdir_in(&machines).unwrap());
        for line in text.lines() {
            let (file, value) = line.split_once('\t').unwrap();
            tree.write(file, format!("{value}\n"));
        }
        // Fails if another test has renamed its tree first.
        let _renamed = fs::rename(tree.path(), &unpacked);
        assert!(unpacked.exists(), "{}", unpacked.display());
    }
    unpacked
}

/// A temporary directory, removed on drop.
pub struct Tree(tempfile::TempDir);

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// An empty tree.
    #[must_use]
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path below the directory.
    #[must_use]
    pub fn join(&self, path: &str) -> PathBuf {
        self.path().join(path)
    }

    /// Creates a directory and its parents.
    pub fn dir(&self, path: &str) {
        fs::create_dir_all(self.join(path)).unwrap();
    }

    /// Writes a file; creates its parent directories.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        fs::write(self.create_parents(path), content).unwrap();
    }

    /// Creates a symbolic link and its parent directories.
    pub fn link(&self, path: &str, target: impl AsRef<Path>) {
        symlink(target, self.create_parents(path)).unwrap();
    }

    /// Writes files of a PMU; the tree is a sysfs.
    pub fn pmu(&self, name: &str, files: &[(&str, &str)]) {
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
