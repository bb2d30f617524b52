//! Bandwidth that the hardware counts for groups of tasks: memory bandwidth monitoring of Intel
//! RDT, AMD and Arm MPAM, by resctrl (Documentation/filesystems/resctrl.rst). Others create the
//! groups, such as a container runtime with `intelRdt.enableMonitoring`; pmuscope creates none.
//!
//! Most machines monitor the last-level cache (`mon_L3_*`): bytes that the tasks read or wrote
//! through a socket's cache, from any memory. With MPAM monitors at the memory, as on NVIDIA's
//! Vera, there are `mon_MB_*`, numbered by NUMA node: bytes that the tasks moved from or to that
//! node's memory. Both kinds of bytes differ from the share of a socket's reads, so they are shown
//! as measures of their own.
//!
//! No kernel documents `mon_MB_*` and `mbm_MB_assignments` yet: both are read as in NVIDIA's
//! selftests for Grace and Vera (`mpam_mbm_test.sh` of 2026, and `CON_MBM_TOTAL_BYTES_PATH` in
//! `tools/testing/selftests/resctrl/resctrl_val.c` of the same series).

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
    cgroup::{Hierarchy, path_of_process},
    topology::Topology,
};

/// Maximum age of the list of groups and their tasks.
const MAX_GROUPS_AGE: Duration = Duration::from_secs(5);

/// A monitoring group, or a control group (also monitored).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitoringGroup {
    /// The group's directory. A monitoring group is below its control group, whose counts include
    /// those of the monitoring group.
    pub path: PathBuf,
    /// The cgroups of its tasks.
    pub cgroups: BTreeSet<CgroupId>,
}

/// Bytes that a group moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupBytes {
    /// The group.
    pub group: Arc<MonitoringGroup>,
    /// Bytes by socket, without sockets that cannot be read.
    pub bytes: BTreeMap<u32, u64>,
}

/// Bytes moved between two readings, with the cgroups of both. A new group is left out, as is a
/// socket whose count fell: its group was recreated.
#[must_use]
pub fn deltas(earlier: &[GroupBytes], later: &[GroupBytes]) -> Vec<GroupBytes> {
    let delta = |now: &GroupBytes| {
        let before = earlier
            .iter()
            .find(|before| before.group.path == now.group.path)?;
        let bytes = now.bytes.iter().filter_map(|(socket, bytes)| {
            let delta = bytes.checked_sub(*before.bytes.get(socket)?)?;
            Some((*socket, delta))
        });
        let group = match before.group == now.group {
            true => Arc::clone(&now.group),
            false => Arc::new(MonitoringGroup {
                path: now.group.path.clone(),
                cgroups: &before.group.cgroups | &now.group.cgroups,
            }),
        };
        Some(GroupBytes {
            group,
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
    /// The socket of each NUMA node with CPUs.
    nodes: BTreeMap<u32, u32>,
    /// The groups, and when they were listed.
    groups: Option<(Duration, Vec<Arc<MonitoringGroup>>)>,
    /// Whether a group without a counter was already warned about.
    warned: bool,
}

impl Reader {
    /// `None` if resctrl is not mounted or monitors nothing.
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
            warned: false,
        })
    }

    pub(crate) fn read(&mut self, now: Duration) -> Vec<GroupBytes> {
        let is_fresh = |(at, _): &&(Duration, _)| now.saturating_sub(*at) < MAX_GROUPS_AGE;
        if self.groups.as_ref().filter(is_fresh).is_none() {
            self.groups = Some((now, self.groups()));
        }
        let groups = self.groups.iter().flat_map(|(_, groups)| groups);
        let unassigned = groups
            .clone()
            .find_map(|group| Some((&group.path, unassigned(&group.path)?)));
        if let Some((path, kind)) = unassigned.filter(|_| !self.warned) {
            let path = path.display();
            tracing::warn!(
                "resctrl counts nothing of {path}, as no counter is assigned to it \
                 (mbm_assign_mode): `echo 'mbm_total_bytes:*=e' > {path}/mbm_{kind}_assignments` \
                 assigns one"
            );
            self.warned = true;
        }
        groups
            .map(|group| GroupBytes {
                group: Arc::clone(group),
                bytes: self.bytes(&group.path),
            })
            .collect()
    }

    /// All groups except the root group, which has the tasks that are in no other group.
    fn groups(&self) -> Vec<Arc<MonitoringGroup>> {
        let controls = directories(&self.root).filter(|path| path.join("mon_data").is_dir());
        let mut paths: Vec<PathBuf> = controls.collect();
        let parents = [self.root.clone()].into_iter().chain(paths.clone());
        let monitoring: Vec<PathBuf> = parents
            .flat_map(|parent| directories(&parent.join("mon_groups")))
            .collect();
        paths.extend(monitoring);
        let group = |path: PathBuf| {
            let cgroups = self.cgroups(&path);
            Arc::new(MonitoringGroup { path, cgroups })
        };
        paths.into_iter().map(group).collect()
    }

    fn cgroups(&self, group: &Path) -> BTreeSet<CgroupId> {
        let tasks = fs::read_to_string(group.join("tasks")).unwrap_or_default();
        let cgroup = |task: &str| {
            let path = path_of_process(&self.proc.join(task)).ok()?;
            let directory = self.hierarchy.directory(&path)?;
            Some(CgroupId(fs::metadata(directory).ok()?.ino()))
        };
        tasks.lines().filter_map(cgroup).collect()
    }

    /// Bytes by socket, without sockets for which any domain has no count ("Unavailable",
    /// "Unassigned").
    fn bytes(&self, group: &Path) -> BTreeMap<u32, u64> {
        let mut sockets: BTreeMap<u32, Option<u64>> = BTreeMap::new();
        let mut domains: Vec<_> = domains(group).collect();
        // Only L3 is read if both kinds exist: the sum of both would be neither measure.
        if domains.iter().any(|domain| domain.kind == "L3") {
            domains.retain(|domain| domain.kind == "L3");
        }
        for domain in domains {
            let socket_of = if domain.kind == "L3" {
                &self.caches
            } else {
                &self.nodes
            };
            let Some(socket) = socket_of.get(&domain.number) else {
                continue;
            };
            let text = fs::read_to_string(&domain.bytes).ok();
            let bytes = text.and_then(|text| text.trim().parse::<u64>().ok());
            let sum = sockets.entry(*socket).or_insert(Some(0));
            *sum = sum
                .zip(bytes)
                .and_then(|(sum, bytes)| sum.checked_add(bytes));
        }
        let sums = sockets.into_iter();
        sums.filter_map(|(socket, bytes)| Some((socket, bytes?)))
            .collect()
    }
}

/// A monitoring domain that counts a group's bytes.
struct MonitoringDomain {
    /// `L3` or `MB`.
    kind: &'static str,
    /// Id of the cache, or of the NUMA node.
    number: u32,
    /// The file that has the bytes.
    bytes: PathBuf,
}

/// The monitoring domains of a group. Directories with longer names (`mon_MB_HLIM_00`) are of other
/// resources.
fn domains(group: &Path) -> impl Iterator<Item = MonitoringDomain> + use<> {
    directories(&group.join("mon_data")).filter_map(|path| {
        let name = path.file_name()?.to_str()?.strip_prefix("mon_")?;
        let (kind, number) = ["L3", "MB"].into_iter().find_map(|kind| {
            let number = name.strip_prefix(kind)?.strip_prefix('_')?;
            Some((kind, number.parse().ok()?))
        })?;
        let bytes = path.join("mbm_total_bytes");
        bytes.exists().then_some(MonitoringDomain {
            kind,
            number,
            bytes,
        })
    })
}

/// The kind of domain in which a group has no counter; None if it has one in each. Where counters
/// are assigned to groups (`mbm_assign_mode`, AMD's ABMC and Arm's MPAM), there may be fewer
/// counters than groups.
fn unassigned(group: &Path) -> Option<&'static str> {
    let mut domains = domains(group);
    let first = domains.find(|domain| {
        let text = fs::read_to_string(&domain.bytes);
        text.is_ok_and(|text| text.trim() == "Unassigned")
    });
    first.map(|domain| domain.kind)
}

/// Mount point of resctrl, by `<proc>/self/mountinfo`.
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

/// The sockets of L3 caches by cache id: `cache/index<n>/{level,id}` of each CPU.
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
