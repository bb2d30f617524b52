//! Deletes exited threads from the task map once their last records were decoded.

use crate::session::{EbpfObject, SessionError};

/// Deletes these exited threads from the task map. Their last records must have been drained.
pub(super) fn forget(object: &EbpfObject, threads: &[u64]) -> Result<(), SessionError> {
    let tasks = &object.maps.spe_tasks;
    for thread in threads {
        // A task that has not exited is a new thread with the same id, and is put back.
        if let Some(task) = tasks.take(thread)?
            && task.exited == 0
        {
            tasks.put(thread, &task)?;
        }
    }
    Ok(())
}

/// All exited threads in the task map, including those that the queue lost.
pub(super) fn all_exited(object: &EbpfObject) -> Result<Vec<u64>, SessionError> {
    let all = object.maps.spe_tasks.all()?.into_iter();
    let exited = all.filter(|(_, task)| task.exited == 1);
    Ok(exited.map(|(thread, _)| thread).collect())
}
