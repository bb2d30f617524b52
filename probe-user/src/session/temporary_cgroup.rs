//! Cgroups that pmuscope creates for its own purposes ([`TemporaryCgroup`]), and the removal of
//! cgroups that a killed pmuscope left behind.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use probe_common::CgroupId;

use crate::machine::{Roots, cgroup::Hierarchy};

/// The purposes of temporary cgroups, which are a part of their names.
const PURPOSES: [&str; 2] = ["stat", "admission"];

/// A cgroup that this process created below its own cgroup. Dropping it removes the cgroup.
///
/// A temporary cgroup is in use while its directory is locked (`flock(2)`). The kernel releases the
/// lock of a killed process. Process ids cannot show the use: they are reused, and differ between
/// pid namespaces.
pub struct TemporaryCgroup {
    /// The cgroup's directory, opened and locked.
    pub directory: File,
    /// The cgroup's id.
    pub id: CgroupId,
    path: PathBuf,
}

impl TemporaryCgroup {
    /// Creates `pmuscope-<pid>-<purpose>` below the cgroup of this process, with a number appended
    /// if this name exists.
    ///
    /// # Errors
    ///
    /// If the directory cannot be written.
    pub fn make(hierarchy: &Hierarchy, purpose: &str) -> io::Result<Self> {
        let own = Hierarchy::current_cgroup(&Roots::default().proc).map_err(io::Error::other)?;
        let parent = hierarchy.directory(&own).ok_or_else(|| {
            io::Error::other(format!(
                "the mount at {} does not show it",
                hierarchy.mount.display()
            ))
        })?;
        // In a cgroup namespace a path starts at the namespace's own root, which may be anywhere in
        // the mount.
        let pid = std::process::id().to_string();
        let processes = fs::read_to_string(parent.join("cgroup.procs"));
        if processes.is_ok_and(|pids| !pids.lines().any(|line| line == pid)) {
            return Err(io::Error::other(format!(
                "{} is not the cgroup of this process, whose namespace hides the path",
                parent.display()
            )));
        }
        let name = format!("pmuscope-{pid}-{purpose}");
        let mut path = parent.join(&name);
        let mut number = 1;
        loop {
            let with_path = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            };
            match fs::create_dir(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    number += 1;
                    path.set_file_name(format!("{name}-{number}"));
                    continue;
                }
                Err(error) => return Err(with_path(error)),
            }
            if let Some(directory) = lock(&path).map_err(with_path)? {
                let id = CgroupId(directory.metadata()?.ino());
                return Ok(Self {
                    directory,
                    id,
                    path,
                });
            }
        }
    }
}

/// Locks a cgroup. None if another pmuscope removed it first, as a leftover.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let directory = match File::open(path) {
        Err(error) if is_gone(&error) => return Ok(None),
        opened => opened?,
    };
    directory.lock()?;
    match fs::metadata(path) {
        Err(error) if is_gone(&error) => Ok(None),
        // Another cgroup may have been created with the same name.
        now => Ok((now?.ino() == directory.metadata()?.ino()).then_some(directory)),
    }
}

/// Removes the unlocked cgroups of pmuscope among `paths`. An earlier pmuscope left them: it was
/// killed, or its command left processes behind. A cgroup with processes stays.
pub(crate) fn remove_leftover<'a>(hierarchy: &Hierarchy, paths: impl IntoIterator<Item = &'a str>) {
    let ours = paths.into_iter().filter(|path| is_ours(path));
    let mut leftover: Vec<PathBuf> = ours.filter_map(|path| hierarchy.directory(path)).collect();
    // Inner cgroups come after their parents in this order, and are removed first.
    leftover.sort();
    for path in leftover.iter().rev() {
        match remove(path) {
            Ok(true) => {
                tracing::info!("removed {}, which an earlier pmuscope left", path.display());
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(
                "cannot remove {}, which an earlier pmuscope left: {error}; remove it by \
                 rmdir",
                path.display()
            ),
        }
    }
}

fn is_ours(path: &str) -> bool {
    let name = path
        .rsplit('/')
        .next()
        .and_then(|name| name.strip_prefix("pmuscope-"));
    let Some((pid, purpose)) = name.and_then(|name| name.split_once('-')) else {
        return false;
    };
    let (purpose, number) = purpose.split_once('-').unwrap_or((purpose, "2"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number(pid) && is_number(number) && PURPOSES.contains(&purpose)
}

/// Removes a cgroup. False if it is locked, not empty, or gone.
fn remove(path: &Path) -> io::Result<bool> {
    let try_remove = || {
        let directory = File::open(path)?;
        match directory.try_lock() {
            Ok(()) => fs::remove_dir(path).map(|()| true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    };
    match try_remove() {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::ResourceBusy | io::ErrorKind::NotFound
            ) =>
        {
            Ok(false)
        }
        result => result,
    }
}

/// Maximum time that an ended process takes to leave its cgroup.
const MAX_LEAVING_TIME: Duration = Duration::from_secs(1);

impl Drop for TemporaryCgroup {
    fn drop(&mut self) {
        let end = Instant::now() + MAX_LEAVING_TIME;
        while let Err(error) = fs::remove_dir(&self.path) {
            // After a wait for a process, the kernel no longer lists the process, but releases its
            // cgroup only shortly after.
            let is_empty =
                fs::read(self.path.join("cgroup.procs")).is_ok_and(|pids| pids.is_empty());
            if error.kind() != io::ErrorKind::ResourceBusy || !is_empty || Instant::now() > end {
                tracing::warn!(
                    "cannot remove {}: {error}; what the command left running is still in it",
                    self.path.display()
                );
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_pmuscope_gives_are_ours() {
        for name in [
            "/pmuscope-1-stat",
            "/a/b/pmuscope-4194304-admission",
            "/pmuscope-12-stat-3",
        ] {
            assert!(is_ours(name), "{name}");
        }
        for name in [
            "/",
            "",
            "/pmuscope-test-1-0-x",
            "/pmuscope--stat",
            "/pmuscope-1-stat-",
            "/pmuscope-1-stat/below",
            "/pmuscope-1-other",
            "/x-pmuscope-1-stat",
        ] {
            assert!(!is_ours(name), "{name}");
        }
    }
}
