//! Threads that exited: deleted from the task map once their last records were looked at.

use std::os::fd::{AsFd as _, BorrowedFd};

use aya::{Ebpf, maps::Map};
use probe_common::spe::SpeTask;

use crate::{
    session::{Maps, SessionError, no_map},
    sys::bpf,
};

/// Takes the threads that exited out of the queue.
pub(super) fn exited(ebpf: &Ebpf) -> Result<Vec<u64>, SessionError> {
    let Some(Map::Queue(queue)) = ebpf.map("SPE_EXITED") else {
        return Err(no_map("SPE_EXITED"));
    };
    let next = || bpf::take(queue.fd().as_fd(), &[]).transpose();
    let threads = std::iter::from_fn(next).map(|taken| taken.map(|[thread]| thread));
    threads
        .collect::<Result<_, _>>()
        .map_err(|source| SessionError::Map {
            what: "read the SPE_EXITED map",
            source,
        })
}

/// Deletes threads from the task map that exited and were drained since.
pub(super) fn forget(ebpf: &mut Ebpf, threads: &[u64]) -> Result<(), SessionError> {
    for &thread in threads {
        let taken = bpf::take::<1, { SpeTask::WORDS }>(tasks(ebpf)?, &[thread]);
        let taken = taken.map_err(|source| SessionError::Map {
            what: "delete a thread from the SPE_TASKS map",
            source,
        })?;
        // The id has a new owner already.
        if let Some(task) = taken.map(|words| SpeTask::from_words(&words))
            && task.exited == 0
        {
            Maps(ebpf).set_task(thread, task)?;
        }
    }
    Ok(())
}

/// Threads in the task map that exited, whether the queue told or not.
pub(super) fn all_exited(ebpf: &Ebpf) -> Result<Vec<u64>, SessionError> {
    let all = bpf::lookup_all::<1, { SpeTask::WORDS }>(tasks(ebpf)?).map_err(|source| {
        SessionError::Map {
            what: "read the SPE_TASKS map",
            source,
        }
    })?;
    let exited = all
        .into_iter()
        .filter(|(_, words)| SpeTask::from_words(words).exited == 1);
    Ok(exited.map(|([thread], _)| thread).collect())
}

fn tasks(ebpf: &Ebpf) -> Result<BorrowedFd<'_>, SessionError> {
    match ebpf.map("SPE_TASKS") {
        Some(Map::HashMap(map)) => Ok(map.fd().as_fd()),
        _ => Err(no_map("SPE_TASKS")),
    }
}
