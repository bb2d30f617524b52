//! Finds cgroups that no longer exist, by a walk over the kernel's own tree. A mount may show only
//! a part of the tree.

use std::collections::HashSet;

use probe_common::{CgroupId, CgroupWalk};

use crate::session::{EbpfObject, SessionError, object::CGROUPS};

/// The cgroups of `known` that no longer exist.
pub(super) fn find_gone(
    object: &mut EbpfObject,
    known: &HashSet<CgroupId>,
) -> Result<Vec<CgroupId>, SessionError> {
    let known: Vec<CgroupId> = known.iter().copied().collect();
    let mut gone = Vec::new();
    for chunk in known.chunks(CgroupWalk::MAX_QUERIES as usize) {
        gone.extend(find_gone_chunk(object, chunk)?);
    }
    Ok(gone)
}

/// [`find_gone`] for at most as many cgroups as the map has room for.
fn find_gone_chunk(
    object: &mut EbpfObject,
    known: &[CgroupId],
) -> Result<Vec<CgroupId>, SessionError> {
    for id in known {
        object.maps.cgroups.put(&id.0, &0)?;
    }
    let walked = walk_tree(object);
    let mut gone = Vec::new();
    for id in known {
        if object.maps.cgroups.take(&id.0)? != Some(1) {
            gone.push(*id);
        }
    }
    walked.map(|()| gone)
}

fn walk_tree(object: &mut EbpfObject) -> Result<(), SessionError> {
    object.maps.tree.set(0, &CgroupWalk::ZERO)?;
    object.programs.walk(CGROUPS)?;
    let tree = object.maps.tree.get(0)?;
    if tree.complete == 1 {
        Ok(())
    } else {
        Err(CGROUPS.incomplete("tree of cgroups", tree.visited))
    }
}
