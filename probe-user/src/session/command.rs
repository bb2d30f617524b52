//! The command of `stat -- command`: in a cgroup of its own, so that its row is exactly it and
//! its children; where no cgroup can be made, its process tree is followed instead.

use std::{ffi::OsString, io, os::fd::AsFd as _, process::ExitStatus};

use probe_common::CgroupId;
use tokio::io::{Interest, unix::AsyncFd};

use crate::{
    machine::cgroup::Hierarchy,
    session::own_cgroup::OwnCgroup,
    sys::spawn::{Child, Running},
};

/// A command that waits for its start.
pub struct Command {
    child: Child,
    name: String,
    /// None where the process tree is followed instead.
    cgroup: Option<OwnCgroup>,
}

/// A command that runs.
pub struct RunningCommand {
    process: AsyncFd<Running>,
    /// Removed with this: after the last pull, so that the row still has its name.
    _cgroup: Option<OwnCgroup>,
}

impl Command {
    /// Makes the process, waiting, in a cgroup of its own where one can be made.
    ///
    /// # Errors
    ///
    /// Where no process can be made.
    pub fn prepare(words: &[OsString], hierarchy: &Hierarchy) -> io::Result<Self> {
        let name = name(words);
        let placed = OwnCgroup::make(hierarchy, "stat")
            .and_then(|cgroup| Ok((Child::new(words, Some(cgroup.directory.as_fd()))?, cgroup)));
        let (child, cgroup) = match placed {
            Ok((child, cgroup)) => (child, Some(cgroup)),
            Err(error) => {
                tracing::warn!(
                    "the command gets no cgroup of its own ({error}): following its process tree \
                     instead"
                );
                (Child::new(words, None)?, None)
            }
        };
        Ok(Self {
            child,
            name,
            cgroup,
        })
    }

    /// Makes the process, waiting, in the cgroup of this process.
    ///
    /// # Errors
    ///
    /// Where no process can be made.
    pub fn beside(words: &[OsString]) -> io::Result<Self> {
        Ok(Self {
            child: Child::new(words, None)?,
            name: name(words),
            cgroup: None,
        })
    }

    /// Process id of the waiting process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// What the command's slices are charged to: its cgroup, or [`CgroupId::COMMAND`] where its
    /// process tree is followed.
    #[must_use]
    pub fn owner(&self) -> CgroupId {
        self.cgroup
            .as_ref()
            .map_or(CgroupId::COMMAND, |cgroup| cgroup.id)
    }

    /// Starts it.
    ///
    /// # Errors
    ///
    /// The error of exec: no such file, no permission.
    pub fn start(self) -> io::Result<RunningCommand> {
        let Self {
            child,
            name,
            cgroup,
        } = self;
        let process = child.release().map_err(|error| {
            io::Error::new(error.kind(), format!("cannot start {name}: {error}"))
        })?;
        // SAFETY: the descriptor belongs to the process, which the AsyncFd owns.
        let process = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) }?;
        Ok(RunningCommand {
            process,
            _cgroup: cgroup,
        })
    }
}

fn name(words: &[OsString]) -> String {
    let name = words.first().map(|word| word.to_string_lossy());
    name.unwrap_or_default().into_owned()
}

impl RunningCommand {
    /// Waits for its end. Only the command itself is waited for, not what it left in the
    /// background.
    ///
    /// # Errors
    ///
    /// Where the kernel cannot tell.
    pub async fn ended(&self) -> io::Result<ExitStatus> {
        // A pidfd stays readable once the process has ended, so nothing is cleared.
        let _ = self.process.readable().await?;
        self.process.get_ref().wait()
    }

    /// Asks it to end.
    ///
    /// # Errors
    ///
    /// Where the signal cannot be sent.
    pub fn terminate(&self) -> io::Result<()> {
        self.process.get_ref().terminate()
    }
}
