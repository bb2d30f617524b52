//! The run directory: a lock against a second agent, and switch files, which turn parts off while
//! they exist.

use std::{
    fs::{File, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::{Interest, unix::AsyncFd};

use crate::sys::trusted_files::TrustedDirectory;

/// Why an agent cannot use the run directory.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The directory cannot be made or written.
    #[error(
        "cannot use the run directory {}: {source}; name another one by run.directory",
        path.display()
    )]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another agent holds the lock.
    #[error(
        "another agent runs here already{}: it holds {}; end it, or give this one a run.directory \
         of its own",
        pid.as_ref().map_or_else(String::new, |pid| format!(", process {pid}")),
        path.display()
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The other agent's process id, as the lock file states it.
        pid: Option<String>,
    },
}

/// What the switch files turn off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Switches {
    /// `off`: everything.
    pub(super) all: bool,
    /// `spe.off`: sampling of memory accesses.
    pub(super) spe: bool,
}

/// The locked run directory of an agent.
pub(super) struct RunDirectory {
    path: PathBuf,
    /// Locked until this is dropped.
    _lock: File,
    /// Notices changed files; None if the kernel refuses a watch: the files are then checked with
    /// every window.
    watch: Option<AsyncFd<OwnedFd>>,
}

impl RunDirectory {
    /// Creates the directory if it does not exist, and locks it. Must be called in a tokio runtime.
    pub(super) fn acquire(path: &Path) -> Result<Self, RunError> {
        let failed = |source| RunError::Directory {
            path: path.to_owned(),
            source,
        };
        let directory = TrustedDirectory::make(path).map_err(failed)?;
        let lock = lock(&directory, failed)?;
        let watch = watch(path);
        if let Err(error) = &watch {
            tracing::warn!(
                "cannot watch {}: {error}; its files are looked for at every pull",
                path.display()
            );
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
            watch: watch.ok(),
        })
    }

    /// The switch files that exist now.
    pub(super) fn switches(&self) -> Switches {
        Switches {
            all: self.off_file().exists(),
            spe: self.path.join("spe.off").exists(),
        }
    }

    /// Path of the file that turns everything off.
    pub(super) fn off_file(&self) -> PathBuf {
        self.path.join("off")
    }

    /// Waits until a file is created or removed; without a watch, forever.
    pub(super) async fn changed(&self) {
        let Some(watch) = &self.watch else {
            return std::future::pending().await;
        };
        if let Ok(mut ready) = watch.readable().await {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut events = inotify::Reader::new(watch.get_ref(), &mut buffer);
            while events.next().is_ok() {}
            ready.clear_ready();
        }
    }
}

fn lock(
    directory: &TrustedDirectory,
    failed: impl Fn(io::Error) -> RunError,
) -> Result<File, RunError> {
    const NAME: &str = "agent.lock";
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{NAME}: {error}"));
    let mut file = directory.file(NAME).map_err(|error| failed(named(error)))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // The process id is only for the message.
            let _ = file.read_to_string(&mut pid);
            let pid = pid.trim();
            let is_pid = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
            return Err(RunError::Locked {
                path: directory.path().join(NAME),
                pid: is_pid.then(|| pid.to_owned()),
            });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let pid = format!("{}\n", std::process::id());
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(pid.as_bytes()))
        .map_err(failed)?;
    Ok(file)
}

fn watch(path: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let flags = WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::ONLYDIR;
    inotify::add_watch(&fd, path, flags)?;
    // SAFETY: the AsyncFd owns the descriptor.
    let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    Ok(fd?)
}
