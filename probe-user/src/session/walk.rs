//! Running the walk over all processes of the machine.

use probe_common::Walk;

use super::{Object, SessionError, object::WALK};

/// Walks: what `walk` asks for goes into the maps, what it found is returned.
///
/// # Errors
///
/// Where the kernel refuses the program, or its list of processes could not be read to the end.
pub(crate) fn run(object: &mut Object, walk: Walk) -> Result<Walk, SessionError> {
    object.maps.walk.set(0, &walk)?;
    object.programs.walk(WALK)?;
    let walk = object.maps.walk.get(0)?;
    if walk.complete == 1 {
        Ok(walk)
    } else {
        Err(WALK.incomplete("list of processes", walk.visited))
    }
}
