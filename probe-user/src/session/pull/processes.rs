//! Names of running processes, by a walk over the kernel's own list. Rows have process ids of the
//! initial pid namespace, and in another namespace /proc has other processes under these ids.

use std::collections::{HashMap, HashSet};

use probe_common::{ProcessWalk, WalkedProcess};

use crate::session::{EbpfObject, SessionError, walk};

/// Walks over the kernel's processes, and the processes that the walks look for.
#[derive(Default)]
pub(crate) struct Processes {
    walks: u64,
    watched: HashSet<u32>,
}

/// The watched processes, as a walk found them.
#[derive(Debug, Default)]
pub(crate) struct FoundProcesses {
    /// Names of running processes.
    pub(super) names: HashMap<u32, String>,
    /// Running processes of which all threads are exiting.
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
        self.set_watched(object, wanted)?;
        self.walks += 1;
        let walk = ProcessWalk {
            number: self.walks,
            ..ProcessWalk::default()
        };
        walk::run(object, walk)?;
        let mut found = FoundProcesses::default();
        for (tgid, process) in object.maps.processes.all()? {
            if process.last_walk == self.walks
                && let Ok(tgid) = u32::try_from(tgid)
            {
                let name = String::from_utf8_lossy(process.name());
                found.names.insert(tgid, name.into_owned());
                if process.live == 0 {
                    found.ending.insert(tgid);
                }
            }
        }
        let watched = self.watched.iter().copied();
        found.gone = watched
            .filter(|tgid| !found.names.contains_key(tgid))
            .collect();
        Ok(found)
    }

    /// Makes the map contain exactly the `wanted` processes.
    fn set_watched(
        &mut self,
        object: &EbpfObject,
        wanted: HashSet<u32>,
    ) -> Result<(), SessionError> {
        let map = &object.maps.processes;
        for tgid in self.watched.extract_if(|tgid| !wanted.contains(tgid)) {
            map.take(&u64::from(tgid))?;
        }
        for tgid in wanted {
            // The map has room for as many processes as there can be rows. A process that does not
            // fit is added at a later pull, when others are gone.
            if !self.watched.contains(&tgid)
                && map.put(&u64::from(tgid), &WalkedProcess::ZERO).is_ok()
            {
                self.watched.insert(tgid);
            }
        }
        Ok(())
    }
}
