//! Threads that exited: deleted from the task map once their last records were looked at.

use crate::session::{Object, SessionError};

/// Deletes threads from the task map that exited and were drained since.
pub(super) fn forget(object: &Object, threads: &[u64]) -> Result<(), SessionError> {
    let tasks = &object.maps.spe_tasks;
    for thread in threads {
        // The id may have a new owner already.
        if let Some(task) = tasks.take(thread)?
            && task.exited == 0
        {
            tasks.put(thread, &task)?;
        }
    }
    Ok(())
}

/// Threads in the task map that exited, whether the queue told or not.
pub(super) fn all_exited(object: &Object) -> Result<Vec<u64>, SessionError> {
    let all = object.maps.spe_tasks.all()?.into_iter();
    let exited = all.filter(|(_, task)| task.exited == 1);
    Ok(exited.map(|(thread, _)| thread).collect())
}
