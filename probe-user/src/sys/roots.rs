//! Roots of the kernel's file systems. Only this module has fixed paths of sysfs, procfs and /boot.

use std::path::{Path, PathBuf};

const SYS: &str = "/sys";
const PROC: &str = "/proc";
const BOOT: &str = "/boot";

/// Root directories of the files that describe a machine. Tests use those of a recorded machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// sysfs
    pub sys: PathBuf,
    /// procfs
    pub proc: PathBuf,
    /// Kernel configurations, as distributions install them.
    pub boot: PathBuf,
}

/// The roots of the running machine.
impl Default for Roots {
    fn default() -> Self {
        Self {
            sys: SYS.into(),
            proc: PROC.into(),
            boot: BOOT.into(),
        }
    }
}

impl Roots {
    /// The roots of a recorded machine: `sys`, `proc` and `boot` below one directory.
    #[must_use]
    pub fn below(directory: &Path) -> Self {
        Self {
            sys: directory.join("sys"),
            proc: directory.join("proc"),
            boot: directory.join("boot"),
        }
    }

    /// Translates a path of the machine itself to one below these roots.
    #[must_use]
    pub fn locate(&self, path: &Path) -> PathBuf {
        let roots = [(SYS, &self.sys), (PROC, &self.proc), (BOOT, &self.boot)];
        let below = roots
            .into_iter()
            .find_map(|(own, root)| Some(root.join(path.strip_prefix(own).ok()?)));
        below.unwrap_or_else(|| path.to_owned())
    }

    /// Translates a path below these roots to the machine's own path.
    #[must_use]
    pub fn named(&self, path: &Path) -> PathBuf {
        let roots = [(SYS, &self.sys), (PROC, &self.proc), (BOOT, &self.boot)];
        let own = roots
            .into_iter()
            .find_map(|(own, root)| Some(Path::new(own).join(path.strip_prefix(root).ok()?)));
        own.unwrap_or_else(|| path.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_translate_to_a_recorded_machine_and_back() {
        let roots = Roots::below(Path::new("/tmp/grace"));
        for (own, below) in [
            ("/sys/fs/resctrl", "/tmp/grace/sys/fs/resctrl"),
            ("/proc/config.gz", "/tmp/grace/proc/config.gz"),
            ("/boot/config-6.12", "/tmp/grace/boot/config-6.12"),
            ("/run/cgroup", "/run/cgroup"),
        ] {
            let (own, below) = (Path::new(own), Path::new(below));
            assert_eq!(roots.locate(own), below);
            assert_eq!(roots.named(below), own);
            assert_eq!(Roots::default().locate(own), own);
        }
    }
}
