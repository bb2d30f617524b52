//! Names of processes that live, by a walk over the kernel's own list: inside a pid namespace /proc
//! shows other processes under the ids that rows have.

use std::{
    collections::{HashMap, HashSet},
    os::fd::AsFd as _,
};

use aya::{Btf, Ebpf, maps::Map};
use probe_common::{Process, Walk};

use crate::{
    session::{SessionError, no_map, walk},
    sys::bpf,
};

/// The processes that the kernel is asked about at each walk.
#[derive(Default)]
pub(crate) struct Processes {
    walks: u64,
    asked: HashSet<u32>,
}

impl Processes {
    /// The names of those of `wanted` (ids in the initial pid namespace) that live, and who does not.
    pub(super) fn names(
        &mut self,
        ebpf: &mut Ebpf,
        btf: &Btf,
        wanted: HashSet<u32>,
    ) -> Result<(HashMap<u32, String>, Vec<u32>), SessionError> {
        self.set(ebpf, wanted)?;
        self.walks += 1;
        let walk = Walk {
            number: self.walks,
            ..Walk::default()
        };
        walk::run(ebpf, btf, walk)?;
        let Some(Map::HashMap(map)) = ebpf.map("PROCESSES") else {
            return Err(no_map("PROCESSES"));
        };
        let found =
            bpf::lookup_all::<1, { Process::WORDS }>(map.fd().as_fd()).map_err(|source| {
                SessionError::Map {
                    what: "read the PROCESSES map",
                    source,
                }
            })?;
        let mut names = HashMap::new();
        for ([tgid], words) in found {
            let process = Process::from_words(&words);
            if process.met == self.walks
                && let Ok(tgid) = u32::try_from(tgid)
            {
                let name = String::from_utf8_lossy(process.name());
                names.insert(tgid, name.into_owned());
            }
        }
        let gone = self.asked.iter().copied();
        let gone = gone.filter(|tgid| !names.contains_key(tgid)).collect();
        Ok((names, gone))
    }

    /// Makes the map hold these.
    fn set(&mut self, ebpf: &Ebpf, wanted: HashSet<u32>) -> Result<(), SessionError> {
        let refused = |source| SessionError::Map {
            what: "write to the PROCESSES map",
            source,
        };
        let Some(Map::HashMap(map)) = ebpf.map("PROCESSES") else {
            return Err(no_map("PROCESSES"));
        };
        let map = map.fd().as_fd();
        for tgid in self.asked.extract_if(|tgid| !wanted.contains(tgid)) {
            bpf::take::<1, { Process::WORDS }>(map, &[u64::from(tgid)]).map_err(refused)?;
        }
        for tgid in wanted {
            // There is room for as many processes as for rows. What finds none is asked about at the next
            // pull, when others have left.
            if !self.asked.contains(&tgid)
                && bpf::put(map, &[u64::from(tgid)], &[0; Process::WORDS]).is_ok()
            {
                self.asked.insert(tgid);
            }
        }
        Ok(())
    }
}
