//! Finds the cgroups that are gone by a walk over the kernel's own tree: a mount may show
//! only a part of it.

use std::collections::HashSet;

use probe_common::{CgroupId, Tree};

use crate::session::{Object, SessionError, object::CGROUPS};

/// Those of `known` that do not exist any more.
pub(super) fn gone(
    object: &mut Object,
    known: &HashSet<CgroupId>,
) -> Result<Vec<CgroupId>, SessionError> {
    let all: Vec<CgroupId> = known.iter().copied().collect();
    let mut gone = Vec::new();
    for some in all.chunks(Tree::ASKED as usize) {
        gone.extend(gone_of(object, some)?);
    }
    Ok(gone)
}

/// The same of no more than the map takes.
fn gone_of(object: &mut Object, known: &[CgroupId]) -> Result<Vec<CgroupId>, SessionError> {
    for id in known {
        object.maps.cgroups.put(&id.0, &0)?;
    }
    let walked = walk_the_tree(object);
    let mut gone = Vec::new();
    for id in known {
        if object.maps.cgroups.take(&id.0)? != Some(1) {
            gone.push(*id);
        }
    }
    walked.map(|()| gone)
}

fn walk_the_tree(object: &mut Object) -> Result<(), SessionError> {
    object.maps.tree.set(0, &Tree::ZERO)?;
    object.programs.walk(CGROUPS)?;
    let tree = object.maps.tree.get(0)?;
    if tree.complete == 1 {
        Ok(())
    } else {
        Err(CGROUPS.incomplete("tree of cgroups", tree.visited))
    }
}
