//! Names of running processes, by a walk over the kernel's own list: in a pid namespace /proc shows
//! other processes under the ids that rows have.

use std::collections::{HashMap, HashSet};

use probe_common::{ProcessWalk, WalkedProcess};

use crate::session::{EbpfObject, SessionError, walk};

/// The processes that each walk looks for.
#[derive(Default)]
pub(crate) struct Processes {
    walks: u64,
    watched: HashSet<u32>,
}

/// What a walk found about the watched processes.
#[derive(Debug, Default)]
pub(crate) struct FoundProcesses {
    /// Names of running processes.
    pub(super) names: HashMap<u32, String>,
    /// Running processes with only exiting threads.
    pub(super) ending: HashSet<u32>,
    /// Watched processes that no longer run.
    pub(super) gone: HashSet<u32>,
}

impl Processes {
    /// Walks for the `wanted` processes, by their ids in the initial pid namespace.
    pub(super) fn find(
        &mut self,
        object: &mut EbpfObject,
        wanted: HashSet<u32>,
    ) -> Result<FoundProcesses, SessionError> {
        self.set(object, wanted)?;
        self.walks += 1;
        let walk = ProcessWalk {
            number: self.walks,
            ..ProcessWalk::default()
        };
        walk::run(object, walk)?;
        let mut found = FoundProcesses::default();
        for (tgid, process) in object.maps.processes.all()? {
            if process.met == self.walks
                && let Ok(tgid) = u32::try_from(tgid)
            {
                let name = String::from_utf8_lossy(process.name());
                found.names.insert(tgid, name.into_owned());
                if process.live == 0 {
                    found.ending.insert(tgid);
                }
            }
        }
        let gone = self.watched.iter().copied();
        found.gone = gone
            .filter(|tgid| !found.names.contains_key(tgid))
            .collect();
        Ok(found)
    }

    /// Makes the map contain exactly the `wanted` processes.
    fn set(&mut self, object: &EbpfObject, wanted: HashSet<u32>) -> Result<(), SessionError> {
        let map = &object.maps.processes;
        for tgid in self.watched.extract_if(|tgid| !wanted.contains(tgid)) {
            map.take(&u64::from(tgid))?;
        }
        for tgid in wanted {
            // The map has room for as many processes as for rows. A process that finds no room is
            // added at a later pull, when others are gone.
            if !self.watched.contains(&tgid)
                && map.put(&u64::from(tgid), &WalkedProcess::ZERO).is_ok()
            {
                self.watched.insert(tgid);
            }
        }
        Ok(())
    }
}
