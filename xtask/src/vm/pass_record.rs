//! Remembers which guests passed with the same command line, kernel and root file system.
//!
//! Builds are reproducible. A new version of QEMU or of its firmware does not count as a change.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{boots::Boot, guest};

/// The record of one guest's last successful run.
pub(super) struct PassRecord {
    file: PathBuf,
    /// Hash of the command line, kernel and root file system.
    fingerprint: String,
}

impl PassRecord {
    pub(super) fn new(vm: &Path, boot: &Boot, kernel: &Path, initramfs: &Path) -> Result<Self> {
        let mut hasher = DefaultHasher::new();
        format!("{:?}", guest::qemu(boot, kernel, initramfs)).hash(&mut hasher);
        for file in [kernel, initramfs] {
            let content =
                fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            content.hash(&mut hasher);
        }
        Ok(Self {
            file: vm.join("passed").join(boot.name),
            fingerprint: format!("{:016x}", hasher.finish()),
        })
    }

    /// Whether a complete run of this guest has passed.
    pub(super) fn has_passed(&self) -> bool {
        fs::read_to_string(&self.file).is_ok_and(|passed| passed == self.fingerprint)
    }

    /// Records that a complete run has passed.
    pub(super) fn write(&self) -> Result<()> {
        fs::create_dir_all(self.file.parent().unwrap_or(&self.file))?;
        fs::write(&self.file, &self.fingerprint)
            .with_context(|| format!("cannot write {}", self.file.display()))
    }
}
