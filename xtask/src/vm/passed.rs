//! Which guests have passed with exactly what they would be booted with now.
//!
//! A guest sees only its command line, kernel and root file system, and the same parts always make
//! the same bytes.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{boots::Boot, guest};

pub(super) struct Passed {
    file: PathBuf,
    /// Of everything that the guest sees.
    fingerprint: String,
}

impl Passed {
    pub(super) fn of(vm: &Path, boot: &Boot, kernel: &Path, initramfs: &Path) -> Result<Self> {
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

    /// Whether a whole run of this guest has passed.
    pub(super) fn before(&self) -> bool {
        fs::read_to_string(&self.file).is_ok_and(|passed| passed == self.fingerprint)
    }

    pub(super) fn remember(&self) -> Result<()> {
        fs::create_dir_all(self.file.parent().unwrap_or(&self.file))?;
        fs::write(&self.file, &self.fingerprint)
            .with_context(|| format!("cannot write {}", self.file.display()))
    }
}
