//! Names of cgroups and processes, kept as long as they have rows, and what ended.

use std::{
    collections::{HashMap, HashSet},
    os::fd::{AsRawFd as _, RawFd},
    sync::Arc,
};

use aya::{
    Ebpf,
    maps::{MapData, RingBuf},
};
use probe_common::{CgroupId, Lifecycle as Record, LifecycleKind, UsageKey};

use crate::load::{LoadError, chain, no_map};

/// What cgroups and processes are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Path from the root of the cgroup2 hierarchy, as in /proc/PID/cgroup.
    pub cgroups: HashMap<CgroupId, String>,
    /// Command name by process id of the initial pid namespace.
    pub processes: HashMap<u32, String>,
}

impl Names {
    pub(crate) fn from_walk(cgroups: Vec<(CgroupId, String)>) -> Self {
        Self {
            cgroups: cgroups.into_iter().collect(),
            processes: HashMap::new(),
        }
    }
}

/// Owners whose rows can be freed.
#[derive(Default)]
pub(crate) struct Ended {
    cgroups: HashSet<CgroupId>,
    processes: HashSet<u32>,
}

impl Ended {
    fn is_empty(&self) -> bool {
        self.cgroups.is_empty() && self.processes.is_empty()
    }

    pub(crate) fn contains(&self, key: &UsageKey) -> bool {
        self.owns(key.cgroup, key.tgid)
    }

    pub(crate) fn owns(&self, cgroup: CgroupId, tgid: u32) -> bool {
        self.cgroups.contains(&cgroup) || self.processes.contains(&tgid)
    }
}

/// The ring that the lifecycle programs fill, and what it told so far.
pub(crate) struct Lifecycle {
    ring: RingBuf<MapData>,
    names: Arc<Names>,
    /// Ended since the last pull.
    ended: Ended,
    /// Ended before the last pull, and before the one before it. The last moments of a dead task
    /// may be charged once more, so rows are looked for twice, and names are kept as long.
    before: [Arc<Ended>; 2],
    /// A switch was missed, and that was not told yet.
    switch_missed: bool,
}

impl Lifecycle {
    pub(crate) fn new(ebpf: &mut Ebpf, names: Names) -> Result<Self, LoadError> {
        let map = ebpf
            .take_map("LIFECYCLE")
            .ok_or_else(|| no_map("LIFECYCLE"))?;
        let ring = RingBuf::try_from(map).map_err(|error| LoadError::Bpf {
            what: "map LIFECYCLE".into(),
            reason: chain(&error),
        })?;
        Ok(Self {
            ring,
            names: Arc::new(names),
            ended: Ended::default(),
            before: Default::default(),
            switch_missed: false,
        })
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    /// Takes in every record of the ring.
    pub(crate) fn drain(&mut self) {
        while let Some(record) = self.ring.next() {
            let Some((kind, id, text)) = Record::parse(&record) else {
                tracing::error!(
                    "a record of {} bytes in the LIFECYCLE ring is none of ours",
                    record.len()
                );
                continue;
            };
            let text = || String::from_utf8_lossy(text).into_owned();
            match kind {
                LifecycleKind::CgroupMade => {
                    Arc::make_mut(&mut self.names)
                        .cgroups
                        .insert(CgroupId(id), text());
                }
                LifecycleKind::CgroupRemoved => {
                    self.ended.cgroups.insert(CgroupId(id));
                }
                LifecycleKind::ProcessExited => {
                    let tgid = u32::try_from(id).unwrap_or_default();
                    Arc::make_mut(&mut self.names)
                        .processes
                        .insert(tgid, text());
                    self.ended.processes.insert(tgid);
                }
                LifecycleKind::SwitchMissed => self.switch_missed = true,
            }
        }
    }

    /// Whether a switch was missed since this was asked last.
    pub(crate) fn take_switch_missed(&mut self) -> bool {
        std::mem::take(&mut self.switch_missed)
    }

    /// What ended before now and may have rows; what did so two pulls ago is forgotten.
    pub(crate) fn take_ended(&mut self) -> [Arc<Ended>; 2] {
        let ended = Arc::new(std::mem::take(&mut self.ended));
        let [last, older] = std::mem::take(&mut self.before);
        if !older.is_empty() {
            let names = Arc::make_mut(&mut self.names);
            names.cgroups.retain(|id, _| !older.cgroups.contains(id));
            names
                .processes
                .retain(|tgid, _| !older.processes.contains(tgid));
        }
        self.before = [ended, last];
        self.before.clone()
    }

    /// Whether the end of a process was told whose rows may still be there.
    pub(super) fn has_ended(&self, tgid: u32) -> bool {
        let before = self.before.iter().map(AsRef::as_ref);
        before
            .chain([&self.ended])
            .any(|ended| ended.processes.contains(&tgid))
    }

    /// Names of processes that live; what exec changes is seen at the next pull.
    pub(super) fn add_processes(&mut self, names: HashMap<u32, String>) {
        Arc::make_mut(&mut self.names).processes.extend(names);
    }

    pub(crate) fn names(&self) -> Arc<Names> {
        Arc::clone(&self.names)
    }
}
