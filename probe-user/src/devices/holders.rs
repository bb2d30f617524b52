//! Holders of devices that are used directly: processes with the device node open (a GPU, a
//! function assigned to VFIO), and processes in the network namespace that a network device was
//! moved to.
//!
//! Devices are identified by number and not by name, since a container may name its nodes freely.
//! No container runtime is asked. The cost is a `stat` of every open descriptor on the machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, major, minor, open, statat},
    io::Errno,
};

use super::names::address_of;
use crate::machine::{Bdf, cgroup::path_of_process};

/// Major number of NVIDIA's driver (Documentation/admin-guide/devices.txt), which has no class in
/// sysfs.
const NVIDIA: u32 = 195;

/// The holders of each device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HolderPaths {
    /// Paths of the cgroups of the holding processes.
    pub by_device: BTreeMap<Bdf, BTreeSet<String>>,
    /// Devices that the kernel drives for every process of the host: network devices of this
    /// namespace.
    pub by_kernel: BTreeSet<Bdf>,
    /// Whether descriptors of a process could not be read, so that holders may be missing.
    pub unreadable: bool,
}

/// Scans all processes for the devices that they hold.
#[must_use]
pub(super) fn read(proc: &Path, sysfs: &Path) -> HolderPaths {
    let by_node = functions_by_node(proc, sysfs);
    let mut holders = HolderPaths {
        by_kernel: net_devices(&sysfs.join("class/net")).collect(),
        ..HolderPaths::default()
    };
    let own_namespace = network_namespace(&proc.join("self"));
    // Devices and cgroups of every other network namespace.
    let mut namespaces: BTreeMap<u64, (BTreeSet<Bdf>, BTreeSet<String>)> = BTreeMap::new();
    for process in processes(proc) {
        let mut held: BTreeSet<Bdf> = BTreeSet::new();
        match open_devices(&process.join("fd")) {
            Ok(numbers) => held.extend(numbers.filter_map(|number| by_node.get(&number)).flatten()),
            Err(error) => holders.unreadable |= error == Errno::ACCESS || error == Errno::PERM,
        }
        let namespace =
            network_namespace(&process).filter(|namespace| Some(*namespace) != own_namespace);
        if held.is_empty() && namespace.is_none() {
            continue;
        }
        let Ok(cgroup) = path_of_process(&process) else {
            // The process has exited.
            continue;
        };
        for device in held {
            let of_device = holders.by_device.entry(device).or_default();
            of_device.insert(cgroup.clone());
        }
        if let Some(namespace) = namespace {
            let (devices, cgroups) = namespaces.entry(namespace).or_default();
            if devices.is_empty() {
                // The container's sysfs was mounted in that namespace, and lists its devices.
                devices.extend(net_devices(&process.join("root/sys/class/net")));
            }
            cgroups.insert(cgroup);
        }
    }
    for (devices, cgroups) in namespaces.into_values() {
        for device in devices {
            let of_device = holders.by_device.entry(device).or_default();
            of_device.extend(cgroups.iter().cloned());
        }
    }
    // A container without a sysfs of its own lists the host's devices.
    holders
        .by_device
        .retain(|device, _| !holders.by_kernel.contains(device));
    holders
}

fn processes(proc: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name();
            name.to_str()
                .is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        })
        .map(|entry| entry.path())
}

/// The device numbers of the open character devices in a directory of descriptors. `statat` avoids
/// a path walk from the root for each.
fn open_devices(directory: &Path) -> Result<impl Iterator<Item = (u32, u32)>, Errno> {
    let directory = open(
        directory,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let entries = Dir::read_from(&directory)?;
    Ok(entries.flatten().filter_map(move |entry| {
        let status = statat(&directory, entry.file_name(), AtFlags::empty()).ok()?;
        let is_device = FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice;
        is_device.then(|| (major(status.st_rdev), minor(status.st_rdev)))
    }))
}

fn network_namespace(process: &Path) -> Option<u64> {
    Some(fs::metadata(process.join("ns/net")).ok()?.ino())
}

/// The PCI functions behind the interfaces of a `class/net`.
fn net_devices(class: &Path) -> impl Iterator<Item = Bdf> {
    let entries = fs::read_dir(class).into_iter().flatten().flatten();
    entries.filter_map(|entry| address_of(&fs::read_link(entry.path()).ok()?))
}

/// The PCI functions of each device number (major and minor) that a process can open.
fn functions_by_node(proc: &Path, sysfs: &Path) -> BTreeMap<(u32, u32), Vec<Bdf>> {
    let mut nodes: BTreeMap<(u32, u32), Vec<Bdf>> = BTreeMap::new();
    let list = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in list(sysfs.join("dev/char")) {
        let number = entry.file_name().to_str().and_then(parse);
        let address = fs::read_link(entry.path())
            .ok()
            .as_deref()
            .and_then(address_of);
        if let (Some(number), Some(address)) = (number, address) {
            nodes.entry(number).or_default().push(address);
        }
    }
    // A VFIO group has its own device node, which gives access to all devices of the IOMMU group.
    for group in list(sysfs.join("class/vfio")) {
        let text = fs::read_to_string(group.path().join("dev")).ok();
        let Some(number) = text.and_then(|text| parse(text.trim())) else {
            continue;
        };
        let members = sysfs
            .join("kernel/iommu_groups")
            .join(group.file_name())
            .join("devices");
        let members =
            list(members).filter_map(|entry| entry.file_name().to_str()?.parse::<Bdf>().ok());
        nodes.entry(number).or_default().extend(members);
    }
    for gpu in list(proc.join("driver/nvidia/gpus")) {
        let minor = || {
            let text = fs::read_to_string(gpu.path().join("information")).ok()?;
            let minor = text
                .lines()
                .find_map(|line| line.strip_prefix("Device Minor:"))?;
            minor.trim().parse().ok()
        };
        let address = gpu.file_name().to_str().and_then(|name| name.parse().ok());
        if let (Some(minor), Some(address)) = (minor(), address) {
            nodes.entry((NVIDIA, minor)).or_default().push(address);
        }
    }
    nodes
}

/// The numbers of `major:minor`.
fn parse(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use test_support::Tree;

    use super::*;

    const GPU: &str = "0000:27:00.0";
    const NIC: &str = "0000:38:00.0";
    const HOST_NIC: &str = "0000:39:00.0";
    const VFIO_DEVICE: &str = "0000:40:00.0";

    /// A machine whose device nodes are this host's: /dev/null (1:3) is that of a GPU, /dev/zero
    /// (1:5) that of a VFIO group, and /dev/full (1:7) that of no device.
    struct FakeMachine(Tree);

    impl FakeMachine {
        fn new() -> Self {
            let tree = Tree::new();
            let device = |address: &str, rest: &str| {
                format!("../../devices/pci0000:00/0000:00:01.0/{address}/{rest}")
            };
            tree.link("sys/dev/char/1:3", device(GPU, "drm/renderD128"));
            tree.link("sys/dev/char/1:5", "../../devices/virtual/vfio/12");
            tree.write("sys/class/vfio/12/dev", "1:5\n");
            tree.link(
                &format!("sys/kernel/iommu_groups/12/devices/{VFIO_DEVICE}"),
                "../../../../devices",
            );
            tree.link("sys/class/net/eth0", device(HOST_NIC, "net/eth0"));
            tree.link("sys/class/net/lo", "../../devices/virtual/net/lo");
            let machine = Self(tree);
            machine.process(1, "/init.scope", "host", &["/dev/full"]);
            machine
        }

        /// Adds a process; its network namespace is a file of `proc`.
        fn process(&self, pid: u32, cgroup: &str, namespace: &str, open: &[&str]) {
            self.0
                .write(&format!("proc/{pid}/cgroup"), format!("0::{cgroup}\n"));
            self.0.write(&format!("proc/{namespace}"), "");
            let namespace = self.0.join("proc").join(namespace);
            self.0.link(&format!("proc/{pid}/ns/net"), namespace);
            self.0.write(&format!("proc/{pid}/fd/.keep"), "");
            for (number, file) in open.iter().enumerate() {
                self.0.link(&format!("proc/{pid}/fd/{number}"), file);
            }
            if pid == 1 {
                self.0.link("proc/self", "1");
            }
        }

        fn holders(&self) -> HolderPaths {
            read(&self.0.join("proc"), &self.0.join("sys"))
        }

        fn holders_of(&self, address: &str) -> Vec<String> {
            let address: Bdf = address.parse().unwrap();
            let holders = self.holders().by_device.remove(&address);
            holders.into_iter().flatten().collect()
        }
    }

    #[test]
    fn a_process_with_the_device_node_open_holds_the_device() {
        let machine = FakeMachine::new();
        assert_eq!(machine.holders_of(GPU), [""; 0]);
        machine.process(20, "/pod/a", "host", &["/dev/zero", "/dev/null"]);
        machine.process(21, "/pod/a", "host", &["/dev/null"]);
        assert_eq!(machine.holders_of(GPU), ["/pod/a"]);
        assert_eq!(
            machine.holders_of(VFIO_DEVICE),
            ["/pod/a"],
            "by its VFIO group"
        );
        machine.process(22, "/pod/b", "host", &["/dev/null"]);
        assert_eq!(machine.holders_of(GPU), ["/pod/a", "/pod/b"]);
        assert!(!machine.holders().unreadable);
    }

    #[test]
    fn processes_in_the_namespace_of_a_network_device_hold_it() {
        let machine = FakeMachine::new();
        machine.process(30, "/pod/pause", "other", &[]);
        machine.process(31, "/pod/a", "other", &[]);
        let link = format!("../../devices/pci0000:00/{NIC}/net/eth0");
        machine.0.link("proc/31/root/sys/class/net/eth0", &link);
        assert_eq!(machine.holders_of(NIC), ["/pod/a", "/pod/pause"]);
        let kernel = machine.holders().by_kernel;
        assert_eq!(kernel, [HOST_NIC.parse().unwrap()].into());
    }

    #[test]
    fn nvidia_gpus_are_known_by_their_minor_number() {
        let machine = FakeMachine::new();
        let information = "Model: \t NVIDIA GH200 480GB\nDevice Minor: \t 3\n";
        let file = format!("proc/driver/nvidia/gpus/{GPU}/information");
        machine.0.write(&file, information);
        let by_node = functions_by_node(
            &machine.0.path().join("proc"),
            &machine.0.path().join("sys"),
        );
        assert_eq!(by_node[&(195, 3)], [GPU.parse().unwrap()]);
    }

    #[test]
    fn without_procfs_there_are_no_holders() {
        let nowhere = Path::new("/nonexistent");
        assert_eq!(read(nowhere, nowhere), HolderPaths::default());
    }
}
