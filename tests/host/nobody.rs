//! Programs that an unprivileged user runs.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;
use test_harness::{load_binary, pmuscope};

const NOBODY: u32 = 65534;

/// Copies of pmuscope and of the load that every user may execute. Files built below root's home
/// directory are accessible to root only.
pub(crate) struct Programs(TempDir);

impl Programs {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let copy = |name: &str, from: &Path| {
            let to = directory.path().join(name);
            fs::copy(from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
        };
        copy("pmuscope", Path::new(pmuscope().get_program()));
        copy("load", &load_binary());
        Self(directory)
    }

    pub(crate) fn pmuscope(&self) -> Command {
        let mut command = Command::new(self.0.path().join("pmuscope"));
        // Other users may have no access to the directory of temporary files.
        command.current_dir(self.0.path());
        command
    }

    pub(crate) fn load(&self) -> PathBuf {
        self.0.path().join("load")
    }
}

/// Sets the user of this process to nobody. Capabilities remain only if the caller kept them. Runs
/// after fork, so it makes system calls only.
pub(crate) fn become_nobody() -> io::Result<()> {
    // SAFETY: these system calls take no pointers.
    unsafe {
        if libc::setgroups(0, std::ptr::null()) != 0
            || libc::setresgid(NOBODY, NOBODY, NOBODY) != 0
            || libc::setresuid(NOBODY, NOBODY, NOBODY) != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
