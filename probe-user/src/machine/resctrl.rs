//! What the hardware itself counted for groups of tasks: memory bandwidth monitoring by Intel's
//! RDT, AMD and Arm's MPAM, as resctrl shows it (Documentation/filesystems/resctrl.rst). Groups are
//! made by others, such as a container runtime with `intelRdt.enableMonitoring`; pmuscope makes
//! none.
//!
//! Most machines monitor the last-level cache (`mon_L3_*`): what the tasks moved through that of a
//! socket, read or written, from memory anywhere. Where MPAM's monitors are at the memory, as on
//! NVIDIA's Vera, there are `mon_MB_*`, numbered by NUMA node: what the tasks moved of that node's
//! memory. Either is a measure of its own beside a share of a socket's reads, and not the same
//! quantity.
//!
//! Of `mon_MB_*` and `mbm_MB_assignments` no kernel has documentation yet: both are as NVIDIA's
//! selftests for Grace and Vera read them (`mpam_mbm_test.sh` of 2026, and
//! `CON_MBM_TOTAL_BYTES_PATH` in `tools/testing/selftests/resctrl/resctrl_val.c` of the same
//! series).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use probe_common::CgroupId;
use serde::{Deserialize, Serialize};

use super::{
    Machine,
    cgroup::{Hierarchy, of_process},
    topology::Topology,
};

/// How old the list of groups and of their tasks may be.
const TASKS_EVERY: Duration = Duration::from_secs(5);

/// A monitoring group, or a control group, which is monitored too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its directory; that of a monitoring group is below its control group's, whose counts include
    /// it.
    pub path: PathBuf,
    /// The cgroups of its tasks.
    pub cgroups: BTreeSet<CgroupId>,
}

/// Bytes that a group moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Monitored {
    /// The group.
    pub group: Arc<Group>,
    /// By socket; a socket whose count cannot be read is not there.
    pub bytes: BTreeMap<u32, u64>,
}

/// What was gained between two readings; of a group that was made again, or counts less, nothing is
/// known.
#[must_use]
pub fn deltas(earlier: &[Monitored], later: &[Monitored]) -> Vec<Monitored> {
    let delta = |now: &Monitored| {
        let before = earlier
            .iter()
            .find(|before| before.group.path == now.group.path)?;
        let bytes = now.bytes.iter().filter_map(|(socket, bytes)| {
            let delta = bytes.checked_sub(*before.bytes.get(socket)?)?;
            Some((*socket, delta))
        });
        Some(Monitored {
            group: Arc::clone(&now.group),
            bytes: bytes.collect(),
        })
    };
    later.iter().filter_map(delta).collect()
}

/// Reads the groups of a session.
pub(crate) struct Reader {
    root: PathBuf,
    proc: PathBuf,
    hierarchy: Hierarchy,
    /// The socket of each L3 cache, by the cache's id.
    caches: BTreeMap<u32, u32>,
    /// The socket of each NUMA node; one without CPUs is of none.
    nodes: BTreeMap<u32, u32>,
    groups: Option<(Duration, Vec<Arc<Group>>)>,
    /// Whether the user was told that a group has no counter.
    told: bool,
}

impl Reader {
    /// `None` where resctrl is not mounted, or monitors nothing.
    pub(crate) fn new(
        machine: &Machine,
        hierarchy: &Hierarchy,
        topology: &Topology,
    ) -> Option<Self> {
        let root = machine.roots().locate(&machine.resctrl()?);
        root.join("mon_groups").is_dir().then(|| Self {
            root,
            proc: machine.procfs().to_owned(),
            hierarchy: hierarchy.clone(),
            caches: caches(machine.sysfs(), topology),
            nodes: topology.sockets_of_nodes(),
            groups: None,
            told: false,
        })
    }

    pub(crate) fn read(&mut self, now: Duration) -> Vec<Monitored> {
        let fresh = |(at, _): &&(Duration, _)| now.saturating_sub(*at) < TASKS_EVERY;
        if self.groups.as_ref().filter(fresh).is_none() {
            self.groups = Some((now, self.groups()));
        }
        let groups = self.groups.iter().flat_map(|(_, groups)| groups);
        let unassigned = groups
            .clone()
            .find_map(|group| Some((&group.path, unassigned(&group.path)?)));
        if let Some((path, at)) = unassigned.filter(|_| !self.told) {
            let path = path.display();
            tracing::warn!(
                "resctrl counts nothing of {path}, as no counter is assigned to it \
                 (mbm_assign_mode): `echo 'mbm_total_bytes:*=e' > {path}/mbm_{at}_assignments` \
                 assigns one"
            );
            self.told = true;
        }
        groups
            .map(|group| Monitored {
                group: Arc::clone(group),
                bytes: self.bytes(&group.path),
            })
            .collect()
    }

    /// All groups but the root's own, which has every task that nobody put anywhere.
    fn groups(&self) -> Vec<Arc<Group>> {
        let controls = directories(&self.root).filter(|path| path.join("mon_data").is_dir());
        let mut paths: Vec<PathBuf> = controls.collect();
        let parents = [self.root.clone()].into_iter().chain(paths.clone());
        let below: Vec<PathBuf> = parents
            .flat_map(|parent| directories(&parent.join("mon_groups")))
            .collect();
        paths.extend(below);
        let group = |path: PathBuf| {
            let cgroups = self.cgroups(&path);
            Arc::new(Group { path, cgroups })
        };
        paths.into_iter().map(group).collect()
    }

    fn cgroups(&self, group: &Path) -> BTreeSet<CgroupId> {
        let tasks = fs::read_to_string(group.join("tasks")).unwrap_or_default();
        let cgroup = |task: &str| {
            let path = of_process(&self.proc.join(task)).ok()?;
            let directory = self.hierarchy.directory(&path)?;
            Some(CgroupId(fs::metadata(directory).ok()?.ino()))
        };
        tasks.lines().filter_map(cgroup).collect()
    }

    /// Words such as "Unavailable" and "Unassigned" are no count, and a part of a socket is not the
    /// socket.
    fn bytes(&self, group: &Path) -> BTreeMap<u32, u64> {
        let mut sockets: BTreeMap<u32, Option<u64>> = BTreeMap::new();
        let mut domains: Vec<_> = domains(group).collect();
        // Where both had it, their sum would be none of both.
        if domains.iter().any(|domain| domain.at == "L3") {
            domains.retain(|domain| domain.at == "L3");
        }
        for domain in domains {
            let known = if domain.at == "L3" {
                &self.caches
            } else {
                &self.nodes
            };
            let Some(socket) = known.get(&domain.number) else {
                continue;
            };
            let text = fs::read_to_string(&domain.bytes).ok();
            let bytes = text.and_then(|text| text.trim().parse::<u64>().ok());
            let sum = sockets.entry(*socket).or_insert(Some(0));
            *sum = sum
                .zip(bytes)
                .and_then(|(sum, bytes)| sum.checked_add(bytes));
        }
        let known = sockets.into_iter();
        known
            .filter_map(|(socket, bytes)| Some((socket, bytes?)))
            .collect()
    }
}

/// A monitor that counts a group's bytes.
struct Domain {
    /// Where it is: `L3` or `MB`.
    at: &'static str,
    /// Of the cache, or of the NUMA node.
    number: u32,
    bytes: PathBuf,
}

/// Those of a group. Other resources have directories with longer names (`mon_MB_HLIM_00`).
fn domains(group: &Path) -> impl Iterator<Item = Domain> + use<> {
    directories(&group.join("mon_data")).filter_map(|path| {
        let name = path.file_name()?.to_str()?.strip_prefix("mon_")?;
        let (at, number) = ["L3", "MB"].into_iter().find_map(|at| {
            let number = name.strip_prefix(at)?.strip_prefix('_')?;
            Some((at, number.parse().ok()?))
        })?;
        let bytes = path.join("mbm_total_bytes");
        bytes.exists().then_some(Domain { at, number, bytes })
    })
}

/// Where a group has no counter: there are fewer counters than groups where they are assigned
/// (`mbm_assign_mode`, AMD's ABMC and Arm's MPAM).
fn unassigned(group: &Path) -> Option<&'static str> {
    let mut domains = domains(group);
    let found = domains.find(|domain| {
        let text = fs::read_to_string(&domain.bytes);
        text.is_ok_and(|text| text.trim() == "Unassigned")
    });
    found.map(|domain| domain.at)
}

/// Where it is mounted, by `<proc>/self/mountinfo`.
pub(super) fn mount(proc: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(proc.join("self/mountinfo")).ok()?;
    text.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mount = left.split(' ').nth(4)?;
        right
            .starts_with("resctrl ")
            .then(|| Path::new(mount).to_owned())
    })
}

fn directories(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths.into_iter().filter(|path| path.is_dir())
}

/// L3 caches by id: `cache/index<n>/{level,id}` of each CPU.
fn caches(sysfs: &Path, topology: &Topology) -> BTreeMap<u32, u32> {
    let number = |path: PathBuf| {
        let text = fs::read_to_string(path).ok()?;
        text.trim().parse::<u32>().ok()
    };
    let mut sockets = BTreeMap::new();
    for cpu in directories(&sysfs.join("devices/system/cpu")) {
        let name = cpu.file_name().and_then(|name| name.to_str());
        let socket = name.and_then(|name| topology.socket(name.strip_prefix("cpu")?.parse().ok()?));
        let Some(socket) = socket else {
            continue;
        };
        for index in directories(&cpu.join("cache")) {
            if number(index.join("level")) == Some(3)
                && let Some(id) = number(index.join("id"))
            {
                sockets.insert(id, socket);
            }
        }
    }
    sockets
}

#[cfg(test)]
mod tests;
