use test_support::Tree;

use super::*;
use crate::machine::Roots;

struct Fixture(Tree);

impl Fixture {
    /// Two sockets with L3 caches 0 and 40, and a task 17 in a container.
    fn new() -> Self {
        let tree = Self(Tree::new());
        tree.write("sys/devices/system/cpu/online", "0-1\n");
        for (cpu, cache) in [(0, 0), (1, 40)] {
            let dir = format!("sys/devices/system/cpu/cpu{cpu}");
            tree.write(
                &format!("{dir}/topology/physical_package_id"),
                &format!("{cpu}\n"),
            );
            let dir = format!("{dir}/cache/index3");
            tree.write(&format!("{dir}/level"), "3\n");
            tree.write(&format!("{dir}/id"), &format!("{cache}\n"));
        }
        tree.write("proc/17/cgroup", "0::/pod/a\n");
        tree.write("cgroup/pod/a/cgroup.procs", "17\n");
        tree
    }

    fn write(&self, file: &str, text: &str) {
        self.0.write(file, text);
    }

    fn group(&self, path: &str, tasks: &str, bytes: [&str; 2]) {
        let dir = format!("sys/fs/resctrl/{path}");
        self.write(&format!("{dir}/tasks"), tasks);
        for (cache, bytes) in ["00", "40"].into_iter().zip(bytes) {
            self.write(
                &format!("{dir}/mon_data/mon_L3_{cache}/mbm_total_bytes"),
                bytes,
            );
        }
    }

    fn reader(&self) -> Option<Reader> {
        let hierarchy = Hierarchy {
            mount: self.0.join("cgroup"),
            root: "/".to_owned(),
        };
        let machine = Machine::at(Roots::below(self.0.path()));
        Reader::new(&machine, &hierarchy, &Topology::read(machine.sysfs()))
    }
}

/// Monitors at the memory, as on NVIDIA's Vera, are numbered by NUMA node. One node has no CPUs.
#[test]
fn monitors_at_the_memory_are_read_by_the_nodes_socket() {
    let tree = Fixture::new();
    let mount = "40 29 0:50 / /sys/fs/resctrl rw - resctrl resctrl rw\n";
    tree.write("proc/self/mountinfo", mount);
    for (node, cpus) in [(0, "0\n"), (1, "1\n"), (2, "\n")] {
        tree.write(&format!("sys/devices/system/node/node{node}/cpulist"), cpus);
    }
    let group = "sys/fs/resctrl/mon_groups/a";
    tree.write(&format!("{group}/tasks"), "17\n");
    for (domain, bytes) in [("00", "100\n"), ("01", "Unassigned\n"), ("02", "9\n")] {
        tree.write(
            &format!("{group}/mon_data/mon_MB_{domain}/mbm_total_bytes"),
            bytes,
        );
    }
    // A resource that is not monitored, and a cache that counts no bytes.
    tree.write(
        &format!("{group}/mon_data/mon_MB_HLIM_00/mbm_total_bytes"),
        "7\n",
    );
    tree.write(&format!("{group}/mon_data/mon_L3_00/llc_occupancy"), "5\n");
    let mut reader = tree.reader().unwrap();
    let read = |reader: &mut Reader, at| named(&reader.read(Duration::from_secs(at)));
    assert_eq!(read(&mut reader, 1), [("a".to_owned(), 1, vec![(0, 100)])]);
    assert!(reader.warned);
    assert_eq!(unassigned(&tree.0.join(group)), Some("MB"));
    // If the cache counts too, only the cache is read.
    tree.write(
        &format!("{group}/mon_data/mon_L3_00/mbm_total_bytes"),
        "30\n",
    );
    assert_eq!(read(&mut reader, 2), [("a".to_owned(), 1, vec![(0, 30)])]);
}

type Named = (String, usize, Vec<(u32, u64)>);

fn named(list: &[GroupBytes]) -> Vec<Named> {
    let row = |monitored: &GroupBytes| {
        let name = monitored.group.path.file_name().unwrap();
        let bytes = monitored
            .bytes
            .iter()
            .map(|(socket, bytes)| (*socket, *bytes));
        let name = name.to_string_lossy().into_owned();
        (name, monitored.group.cgroups.len(), bytes.collect())
    };
    list.iter().map(row).collect()
}

#[test]
fn control_and_monitoring_groups_are_read_by_socket() {
    let tree = Fixture::new();
    assert!(tree.reader().is_none(), "not mounted");
    tree.group("mon_groups/a", "17\n", ["100\n", "7\n"]);
    assert!(tree.reader().is_none(), "a directory is no mount");
    let mount = "40 29 0:50 / /sys/fs/resctrl rw - resctrl resctrl rw\n";
    tree.write("proc/self/mountinfo", mount);
    // Task 18 has exited.
    tree.group("gold", "17\n18\n", ["4096\n", "Unavailable\n"]);
    tree.group("gold/mon_groups/b", "", ["Unassigned\n", "Error\n"]);
    tree.write("sys/fs/resctrl/info/L3_MON/num_rmids", "16\n");
    let mut reader = tree.reader().unwrap();
    assert!(!reader.warned);
    let first = reader.read(Duration::from_secs(1));
    assert_eq!(
        named(&first),
        [
            ("gold".to_owned(), 1, vec![(0, 4096)]),
            ("a".to_owned(), 1, vec![(0, 100), (1, 7)]),
            ("b".to_owned(), 0, vec![]),
        ]
    );
    // b has no counter, which is warned about once.
    assert!(reader.warned);
    tree.group("mon_groups/a", "17\n", ["150\n", "6\n"]);
    tree.group("mon_groups/new", "17\n", ["1\n", "1\n"]);
    let later = reader.read(Duration::from_secs(7));
    // A counter that went back has no delta, nor does a new group.
    assert_eq!(
        named(&deltas(&first, &later)),
        [
            ("gold".to_owned(), 1, vec![(0, 0)]),
            ("a".to_owned(), 1, vec![(0, 50)]),
            ("b".to_owned(), 0, vec![]),
        ]
    );
}
