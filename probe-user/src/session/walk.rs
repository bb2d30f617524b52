//! Runs the walk over all processes of the machine.

use probe_common::ProcessWalk;

use super::{EbpfObject, SessionError, object::WALK};

/// Runs a walk with the parameters in `walk`. Returns `walk` with the results.
///
/// # Errors
///
/// If the kernel refuses the program, or if the walk could not read the list of processes to its
/// end.
pub(crate) fn run(object: &mut EbpfObject, walk: ProcessWalk) -> Result<ProcessWalk, SessionError> {
    object.maps.walk.set(0, &walk)?;
    object.programs.walk(WALK)?;
    let walk = object.maps.walk.get(0)?;
    if walk.complete == 1 {
        Ok(walk)
    } else {
        Err(WALK.incomplete("list of processes", walk.visited))
    }
}
