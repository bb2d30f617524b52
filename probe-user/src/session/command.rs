//! The command of `stat -- command`. It gets its own cgroup, so that its row covers exactly the
//! command and its children. If no cgroup can be created, its process tree is followed instead.

use std::{ffi::OsString, io, os::fd::AsFd as _, process::ExitStatus};

use probe_common::CgroupId;
use tokio::io::{Interest, unix::AsyncFd};

use crate::{
    machine::{cgroup::Hierarchy, memory::CommandProcesses},
    session::{EbpfObject, temporary_cgroup::TemporaryCgroup},
    snapshot::Names,
    sys::{
        largest_child::largest_child,
        spawn::{Child, RunningChild},
    },
};

/// A command that is not started yet.
pub struct Command {
    child: Child,
    name: String,
    /// The command's own cgroup; None if the process tree is followed, or only the current cgroup
    /// is used.
    cgroup: Option<TemporaryCgroup>,
}

/// A running command.
pub struct RunningCommand {
    process: AsyncFd<RunningChild>,
    /// The command's cgroup. It is removed when this value is dropped: after the last pull, so that
    /// the row still has the cgroup's name.
    _cgroup: Option<TemporaryCgroup>,
}

impl Command {
    /// Creates the process, which waits for [`Self::start`]. It is in its own cgroup if one can be
    /// created.
    ///
    /// # Errors
    ///
    /// If no process can be created.
    pub fn prepare(words: &[OsString], hierarchy: &Hierarchy) -> io::Result<Self> {
        let name = name(words);
        let in_own_cgroup = TemporaryCgroup::make(hierarchy, "stat")
            .and_then(|cgroup| Ok((Child::new(words, Some(cgroup.directory.as_fd()))?, cgroup)));
        let (child, cgroup) = match in_own_cgroup {
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

    /// Creates the process, which waits for [`Self::start`], in the cgroup of the current process.
    ///
    /// # Errors
    ///
    /// If no process can be created.
    pub fn in_current_cgroup(words: &[OsString]) -> io::Result<Self> {
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

    /// The owner of the command's slices: its cgroup, or [`CgroupId::COMMAND`] if its process tree
    /// is followed.
    #[must_use]
    pub fn owner(&self) -> CgroupId {
        self.cgroup
            .as_ref()
            .map_or(CgroupId::COMMAND, |cgroup| cgroup.id)
    }

    /// Starts the command.
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

/// The processes of the command that is charged to `owner`: the processes in its cgroup and below,
/// or those of its process tree. Empty if they cannot be read.
pub(super) fn processes(
    object: &EbpfObject,
    hierarchy: &Hierarchy,
    owner: CgroupId,
    names: &Names,
) -> CommandProcesses {
    let running = if owner == CgroupId::COMMAND {
        let all = object.maps.command.all().unwrap_or_default();
        all.into_iter().map(|(pid, _)| pid).collect()
    } else {
        let path = names.cgroups.get(&owner).map(String::as_str);
        let found = path.map(|path| hierarchy.processes(path));
        found.into_iter().flatten().collect()
    };
    CommandProcesses {
        running,
        largest_ended: largest_child(),
    }
}

fn name(words: &[OsString]) -> String {
    let name = words.first().map(|word| word.to_string_lossy());
    name.unwrap_or_default().into_owned()
}

impl RunningCommand {
    /// Waits for the end of the command itself, not of processes that it left in the background.
    ///
    /// # Errors
    ///
    /// If the kernel reports an error for the wait.
    pub async fn ended(&self) -> io::Result<ExitStatus> {
        // A pidfd stays readable once the process has ended, so its readiness is not cleared.
        let _ = self.process.readable().await?;
        self.process.get_ref().wait()
    }

    /// Sends SIGTERM to the command.
    ///
    /// # Errors
    ///
    /// If the signal cannot be sent.
    pub fn terminate(&self) -> io::Result<()> {
        self.process.get_ref().terminate()
    }
}
