//! The run directory: a lock against a second agent, and files whose presence switches things off.

use std::{
    fs::{File, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::{Interest, unix::AsyncFd};

use crate::sys::own_files::OwnDirectory;

/// Why an agent cannot have the directory.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It cannot be made or written.
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
    /// Another agent has it.
    #[error(
        "another agent runs here already{}: it holds {}; end it, or give this one a run.directory \
         of its own",
        pid.as_ref().map_or_else(String::new, |pid| format!(", process {pid}")),
        path.display()
    )]
    Locked {
        /// The lock.
        path: PathBuf,
        /// The other agent, as it wrote it there.
        pid: Option<String>,
    },
}

/// What files in the directory switch off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Switches {
    /// `off`: everything.
    pub(super) all: bool,
    /// `spe.off`: sampling.
    pub(super) spe: bool,
}

/// The directory of a running agent.
pub(super) struct RunDirectory {
    path: PathBuf,
    /// Held until the end.
    _lock: File,
    /// None where the kernel gives none: the files are looked for with every window then.
    watch: Option<AsyncFd<OwnedFd>>,
}

impl RunDirectory {
    /// Takes the lock. To be called in a runtime.
    pub(super) fn take(path: &Path) -> Result<Self, RunError> {
        let failed = |source| RunError::Directory {
            path: path.to_owned(),
            source,
        };
        let own = OwnDirectory::make(path).map_err(failed)?;
        let lock = lock(&own, failed)?;
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

    /// The files that are there now.
    pub(super) fn switches(&self) -> Switches {
        Switches {
            all: self.off().exists(),
            spe: self.path.join("spe.off").exists(),
        }
    }

    /// The file that switches everything off.
    pub(super) fn off(&self) -> PathBuf {
        self.path.join("off")
    }

    /// Waits until a file came or went.
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

fn lock(own: &OwnDirectory, failed: impl Fn(io::Error) -> RunError) -> Result<File, RunError> {
    const NAME: &str = "agent.lock";
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{NAME}: {error}"));
    let mut file = own.file(NAME).map_err(|error| failed(named(error)))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // What it says is for the message only.
            let _ = file.read_to_string(&mut pid);
            let pid = pid.trim();
            let is_pid = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
            return Err(RunError::Locked {
                path: own.path().join(NAME),
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
