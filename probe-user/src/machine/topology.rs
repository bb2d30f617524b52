//! Topology: the socket and the NUMA node of each CPU, from sysfs.
//!
//! Sockets are numbered from 0 in the order of their package ids: the ids themselves are arbitrary
//! (a Grace CPU Superchip showed 36 and 2364), while names of uncore PMUs count from 0.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::machine::cpus::{self, CpuList};

/// The sockets and NUMA nodes of the CPUs that were online.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The socket of each CPU.
    sockets: BTreeMap<u32, u32>,
    /// The CPUs of each NUMA node.
    nodes: BTreeMap<u32, CpuList>,
}

impl Topology {
    /// Reads the topology from `sysfs`, which is `/sys` on a live machine. Facts that cannot be
    /// read are unknown.
    #[must_use]
    pub fn read(sysfs: &Path) -> Self {
        let cpu = |cpu: u32| {
            let file = format!("devices/system/cpu/cpu{cpu}/topology/physical_package_id");
            // Some virtual machines have -1 here, so the socket is unknown.
            let package: u32 = text(&sysfs.join(file))?.parse().ok()?;
            Some((cpu, package))
        };
        let online = cpus::online(sysfs).unwrap_or_default();
        let packages: BTreeMap<u32, u32> = online.iter().filter_map(cpu).collect();
        let order: BTreeSet<u32> = packages.values().copied().collect();
        let number = |package: u32| order.range(..package).count();
        let sockets = packages
            .into_iter()
            .filter_map(|(cpu, package)| Some((cpu, u32::try_from(number(package)).ok()?)))
            .collect();
        Self {
            sockets,
            nodes: nodes(&sysfs.join("devices/system/node")),
        }
    }

    /// A topology with CPU `i` in socket `sockets[i]`.
    #[cfg(test)]
    pub(crate) fn with_sockets(sockets: &[u32]) -> Self {
        Self {
            sockets: (0..).zip(sockets.iter().copied()).collect(),
            nodes: BTreeMap::new(),
        }
    }

    /// The socket of a CPU; `None` if unknown.
    #[must_use]
    pub fn socket(&self, cpu: u32) -> Option<u32> {
        self.sockets.get(&cpu).copied()
    }

    /// The NUMA node of a CPU.
    #[must_use]
    pub fn node(&self, cpu: u32) -> Option<u32> {
        let mut nodes = self.nodes.iter();
        nodes
            .find(|(_, cpus)| cpus.contains(cpu))
            .map(|(node, _)| *node)
    }

    /// The socket of a NUMA node with CPUs.
    #[must_use]
    pub fn socket_of_node(&self, node: u32) -> Option<u32> {
        let cpus = self.nodes.get(&node)?;
        cpus.iter().find_map(|cpu| self.socket(cpu))
    }

    /// The sockets of all NUMA nodes with CPUs, by node.
    #[must_use]
    pub fn sockets_of_nodes(&self) -> BTreeMap<u32, u32> {
        let nodes = self.nodes.keys();
        nodes
            .filter_map(|node| Some((*node, self.socket_of_node(*node)?)))
            .collect()
    }

    /// The most NUMA nodes with CPUs in one socket; 1 if unknown. Intel's sub-NUMA clustering and
    /// AMD's nodes per socket make several.
    #[must_use]
    pub fn nodes_per_socket(&self) -> usize {
        let of_nodes: Vec<u32> = self.sockets_of_nodes().into_values().collect();
        let in_socket = |socket| of_nodes.iter().filter(|it| **it == socket).count();
        of_nodes.iter().copied().map(in_socket).max().unwrap_or(1)
    }

    /// Number of sockets; 1 if unknown.
    #[must_use]
    pub fn sockets(&self) -> u32 {
        self.known_sockets().unwrap_or(1)
    }

    /// Number of sockets; `None` if unknown.
    #[must_use]
    pub fn known_sockets(&self) -> Option<u32> {
        self.sockets.values().max().map(|last| last + 1)
    }

    /// Adds CPUs that came online; CPUs that went offline keep their socket.
    pub(crate) fn refresh(&mut self, sysfs: &Path) {
        let current = Self::read(sysfs);
        // Otherwise a whole socket is offline, and the numbers of the others would shift.
        if current.sockets() >= self.sockets() {
            self.sockets.extend(current.sockets);
        }
        self.nodes.extend(current.nodes);
    }
}

fn nodes(dir: &Path) -> BTreeMap<u32, CpuList> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let node = name.strip_prefix("node")?.parse().ok()?;
            let cpus = text(&entry.path().join("cpulist"))?.parse().ok()?;
            Some((node, cpus))
        })
        .collect()
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use test_support::Tree;

    use super::*;

    fn tree(packages: &[&str], nodes: &[&str]) -> Tree {
        let root = Tree::new();
        let write = |path: &str, text: &str| {
            root.write(&format!("devices/system/{path}"), text);
        };
        write("cpu/online", &format!("0-{}\n", packages.len() - 1));
        for (cpu, package) in packages.iter().enumerate() {
            write(
                &format!("cpu/cpu{cpu}/topology/physical_package_id"),
                package,
            );
        }
        for (node, cpus) in nodes.iter().enumerate() {
            write(&format!("node/node{node}/cpulist"), cpus);
        }
        root
    }

    #[test]
    fn package_ids_are_put_in_order() {
        let root = tree(&["36\n", "36\n", "2364\n", "2364\n"], &["0-1\n", "2-3\n"]);
        let topology = Topology::read(root.path());
        let sockets: Vec<_> = (0..5).map(|cpu| topology.socket(cpu)).collect();
        assert_eq!(sockets, [Some(0), Some(0), Some(1), Some(1), None]);
        assert_eq!(topology.sockets(), 2);
        assert_eq!((topology.node(2), topology.node(4)), (Some(1), None));
        assert_eq!(topology.socket_of_node(1), Some(1));
        assert_eq!(topology.nodes_per_socket(), 1);
    }

    #[test]
    fn a_socket_may_have_several_nodes() {
        // The third node has only memory.
        let root = tree(
            &["0\n", "0\n", "1\n", "1\n"],
            &["0\n", "1\n", "\n", "2-3\n"],
        );
        assert_eq!(Topology::read(root.path()).nodes_per_socket(), 2);
        let unknown = Topology::read(Path::new("/nonexistent"));
        assert_eq!(unknown.nodes_per_socket(), 1);
    }

    #[test]
    fn a_machine_without_package_ids_has_one_socket() {
        let topology = Topology::read(tree(&["-1\n", "-1\n"], &[]).path());
        assert_eq!((topology.socket(0), topology.sockets()), (None, 1));
        assert_eq!(Topology::read(Path::new("/nonexistent")).sockets(), 1);
    }

    #[test]
    fn a_socket_that_goes_offline_does_not_renumber_the_others() {
        let root = tree(&["0\n", "1\n"], &[]);
        let mut topology = Topology::read(root.path());
        fs::write(root.path().join("devices/system/cpu/online"), "1\n").unwrap();
        topology.refresh(root.path());
        assert_eq!((topology.socket(0), topology.socket(1)), (Some(0), Some(1)));
    }
}
