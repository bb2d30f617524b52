//! Names of processes that live, by a walk over the kernel's own list: inside a pid namespace /proc
//! shows other processes under the ids that rows have.

use std::collections::{HashMap, HashSet};

use probe_common::{Process, Walk};

use crate::session::{Object, SessionError, walk};

/// The processes that the kernel is asked about at each walk.
#[derive(Default)]
pub(crate) struct Processes {
    walks: u64,
    asked: HashSet<u32>,
}

/// What a walk found of the processes that it was asked about.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The names of those that run.
    pub(super) names: HashMap<u32, String>,
    /// Those of them whose threads all exit.
    pub(super) ending: HashSet<u32>,
    /// The others.
    pub(super) gone: HashSet<u32>,
}

impl Processes {
    /// Looks for those of `wanted`, ids in the initial pid namespace.
    pub(super) fn find(
        &mut self,
        object: &mut Object,
        wanted: HashSet<u32>,
    ) -> Result<Found, SessionError> {
        self.set(object, wanted)?;
        self.walks += 1;
        let walk = Walk {
            number: self.walks,
            ..Walk::default()
        };
        walk::run(object, walk)?;
        let mut found = Found::default();
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
        let gone = self.asked.iter().copied();
        found.gone = gone
            .filter(|tgid| !found.names.contains_key(tgid))
            .collect();
        Ok(found)
    }

    /// Makes the map hold these.
    fn set(&mut self, object: &Object, wanted: HashSet<u32>) -> Result<(), SessionError> {
        let map = &object.maps.processes;
        for tgid in self.asked.extract_if(|tgid| !wanted.contains(tgid)) {
            map.take(&u64::from(tgid))?;
        }
        for tgid in wanted {
            // There is room for as many processes as for rows. What finds none is asked about at
            // the next pull, when others have left.
            if !self.asked.contains(&tgid) && map.put(&u64::from(tgid), &Process::ZERO).is_ok() {
                self.asked.insert(tgid);
            }
        }
        Ok(())
    }
}
