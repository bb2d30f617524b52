//! Which cgroups are gone, by a walk over the kernel's own tree: a mount may show a part of it only.

use std::{collections::HashSet, os::fd::AsFd as _};

use aya::{
    Btf, Ebpf,
    maps::{Array, Map},
};
use probe_common::{CgroupId, Tree};

use crate::{
    session::{SessionError, chain, no_map, walk},
    sys::bpf,
};

/// Those of `known` that do not exist any more.
pub(super) fn gone(
    ebpf: &mut Ebpf,
    btf: &Btf,
    known: &HashSet<CgroupId>,
) -> Result<Vec<CgroupId>, SessionError> {
    let all: Vec<CgroupId> = known.iter().copied().collect();
    let mut gone = Vec::new();
    for some in all.chunks(Tree::ASKED as usize) {
        gone.extend(gone_of(ebpf, btf, some)?);
    }
    Ok(gone)
}

/// The same of no more than the map takes.
fn gone_of(ebpf: &mut Ebpf, btf: &Btf, known: &[CgroupId]) -> Result<Vec<CgroupId>, SessionError> {
    let asked = Asked(ebpf);
    for id in known {
        asked.put(*id)?;
    }
    let walked = walk_the_tree(ebpf, btf);
    let asked = Asked(ebpf);
    let mut gone = Vec::new();
    for id in known {
        if !asked.take(*id)? {
            gone.push(*id);
        }
    }
    walked.map(|()| gone)
}

/// The map of cgroups that are asked about.
struct Asked<'a>(&'a Ebpf);

impl Asked<'_> {
    fn put(&self, id: CgroupId) -> Result<(), SessionError> {
        bpf::put(self.map()?, &[id.0], &[0]).map_err(|source| SessionError::Map {
            what: "write to the CGROUPS map",
            source,
        })
    }

    /// Whether the walk has met it.
    fn take(&self, id: CgroupId) -> Result<bool, SessionError> {
        let taken = bpf::take::<1, 1>(self.map()?, &[id.0]);
        let taken = taken.map_err(|source| SessionError::Map {
            what: "read the CGROUPS map",
            source,
        })?;
        Ok(taken == Some([1]))
    }

    fn map(&self) -> Result<std::os::fd::BorrowedFd<'_>, SessionError> {
        match self.0.map("CGROUPS") {
            Some(Map::HashMap(map)) => Ok(map.fd().as_fd()),
            _ => Err(no_map("CGROUPS")),
        }
    }
}

fn walk_the_tree(ebpf: &mut Ebpf, btf: &Btf) -> Result<(), SessionError> {
    let refused = |error: aya::maps::MapError| SessionError::Bpf {
        what: "map TREE".into(),
        reason: chain(&error),
    };
    let map = ebpf.map_mut("TREE").ok_or_else(|| no_map("TREE"))?;
    let mut map: Array<_, [u64; Tree::WORDS]> = map.try_into().map_err(refused)?;
    map.set(0, [0; Tree::WORDS], 0).map_err(refused)?;
    walk::read(ebpf, btf, "cgroups")?;
    let map = ebpf.map("TREE").ok_or_else(|| no_map("TREE"))?;
    let map: Array<_, [u64; Tree::WORDS]> = map.try_into().map_err(refused)?;
    let tree = Tree::from_words(&map.get(&0, 0).map_err(refused)?);
    if tree.complete == 1 {
        Ok(())
    } else {
        Err(SessionError::Bpf {
            what: "program cgroups".into(),
            reason: format!(
                "the kernel's tree of cgroups could not be read behind the first {}",
                tree.visited
            ),
        })
    }
}
