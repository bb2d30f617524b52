//! Remembers which guests passed with the same command line, kernel, root file system, firmware and
//! version of QEMU. Builds are reproducible.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{boots::Boot, guest};
use crate::sh;

/// The record of one guest's last successful run.
pub(super) struct PassRecord {
    file: PathBuf,
    fingerprint: String,
}

/// Hash of a command line of QEMU, QEMU's version, and the content of the guest's files.
fn fingerprint(command_line: &str, version: &str, files: &[&Path]) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    (command_line, version).hash(&mut hasher);
    for file in files {
        let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        content.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

impl PassRecord {
    pub(super) fn new(vm: &Path, boot: &Boot, kernel: &Path, initramfs: &Path) -> Result<Self> {
        let qemu = guest::qemu(boot, kernel, initramfs);
        let program = qemu.get_program();
        let version = sh::output(sh::command(program).arg("--version"))
            .with_context(|| format!("{} does not give its version", program.display()))?;
        let mut files = vec![kernel, initramfs];
        if qemu.get_args().any(|argument| argument == guest::UEFI) {
            files.push(Path::new(guest::UEFI));
        }
        Ok(Self {
            file: vm.join("passed").join(boot.name),
            fingerprint: fingerprint(&format!("{qemu:?}"), &version, &files)?,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_guest_counts() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kernel");
        let of = |content: &str, command_line, version| {
            fs::write(&file, content).unwrap();
            fingerprint(command_line, version, &[&file]).unwrap()
        };
        let passed = of("a", "qemu", "10.0");
        assert_eq!(of("a", "qemu", "10.0"), passed);
        assert_ne!(of("b", "qemu", "10.0"), passed);
        assert_ne!(of("a", "qemu -smp 2", "10.0"), passed);
        assert_ne!(of("a", "qemu", "10.1"), passed);
    }
}
