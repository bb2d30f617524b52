//! The memory that the calibration's kernels use.

use super::CalibrateError;
use crate::{join::share::Accesses, machine::Machine};

/// The socket whose CPUs run the kernels, on machines with two.
pub(super) const CPUS: u32 = 0;

/// The memory that the kernels use.
pub(super) struct Place {
    /// Its socket.
    pub(super) socket: u32,
    /// The accesses of the kernels' CPUs that reach it.
    pub(super) accesses: Accesses,
    /// Its NUMA nodes; empty: those near each CPU.
    pub(super) nodes: Vec<u32>,
}

impl Place {
    /// The memory of this machine's socket, or that of each of its two sockets.
    pub(super) fn all(machine: &Machine) -> Result<Vec<Self>, CalibrateError> {
        let topology = machine.topology();
        let of_socket = |socket: u32, accesses| {
            let nodes = topology.sockets_of_nodes().into_iter();
            let nodes: Vec<u32> = nodes
                .filter(|(_, of)| *of == socket)
                .map(|(node, _)| node)
                .collect();
            let place = Self {
                socket,
                accesses,
                nodes,
            };
            match place.nodes.is_empty() {
                true => Err(CalibrateError::NoNode(socket)),
                false => Ok(place),
            }
        };
        match topology.sockets() {
            0 | 1 => Ok(vec![Self {
                socket: 0,
                accesses: Accesses::All,
                nodes: Vec::new(),
            }]),
            2 => Ok(vec![
                of_socket(CPUS, Accesses::Local)?,
                of_socket(1, Accesses::Remote)?,
            ]),
            sockets => Err(CalibrateError::Sockets(sockets)),
        }
    }

    pub(super) fn is_remote(&self) -> bool {
        self.accesses == Accesses::Remote
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use test_support::Tree;

    use super::*;
    use crate::sys::roots::Roots;

    /// A machine with a CPU in each of these sockets and NUMA nodes.
    fn machine(cpus: &[(u32, u32)]) -> (Tree, Machine) {
        let root = Tree::new();
        let write = |path: String, text: String| {
            root.write(&format!("sys/devices/system/{path}"), text);
        };
        write("cpu/online".into(), format!("0-{}\n", cpus.len() - 1));
        let mut nodes = std::collections::BTreeMap::<u32, String>::new();
        for (cpu, (socket, node)) in cpus.iter().enumerate() {
            let id = format!("cpu/cpu{cpu}/topology/physical_package_id");
            write(id, format!("{socket}\n"));
            write!(nodes.entry(*node).or_default(), "{cpu},").unwrap();
        }
        for (node, cpus) in nodes {
            let list = cpus.trim_end_matches(',');
            write(format!("node/node{node}/cpulist"), format!("{list}\n"));
        }
        let machine = Machine::at(Roots::below(root.path()));
        (root, machine)
    }

    fn places(cpus: &[(u32, u32)]) -> Result<Vec<(u32, Accesses, Vec<u32>)>, CalibrateError> {
        let (_root, machine) = machine(cpus);
        let all = Place::all(&machine)?.into_iter();
        Ok(all.map(|it| (it.socket, it.accesses, it.nodes)).collect())
    }

    #[test]
    fn each_socket_has_its_nodes() {
        let one = places(&[(0, 0), (0, 1)]).unwrap();
        assert_eq!(one, [(0, Accesses::All, vec![])]);
        let two = places(&[(0, 0), (1, 1)]).unwrap();
        let [local, remote] = [Accesses::Local, Accesses::Remote];
        assert_eq!(two, [(0, local, vec![0]), (1, remote, vec![1])]);
        // Sub-NUMA clustering.
        let four_nodes = places(&[(0, 0), (0, 1), (1, 2), (1, 3)]).unwrap();
        assert_eq!(
            four_nodes,
            [(0, local, vec![0, 1]), (1, remote, vec![2, 3])]
        );
    }

    #[test]
    fn other_machines_are_refused() {
        let error = places(&[(0, 0), (1, 0)]).unwrap_err();
        assert!(matches!(error, CalibrateError::NoNode(1)), "{error}");
        let error = places(&[(0, 0), (1, 1), (2, 2)]).unwrap_err();
        assert!(matches!(error, CalibrateError::Sockets(3)), "{error}");
    }
}
