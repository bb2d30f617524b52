//! Runs the walk over all processes of the machine.

use probe_common::ProcessWalk;

use super::{EbpfObject, SessionError, object::WALK};

/// Runs the walk that `walk` asks for. Returns the walk with its results.
///
/// # Errors
///
/// If the kernel refuses the program, or its list of processes could not be read to the end.
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
