//! sysfs trees, built from the tables of tests/fixtures/pci.

use std::path::Path;

use crate::{
    catalogue::Catalogue,
    devices::Devices,
    machine::{Bdf, Machine, Pmus},
    sys::roots::Roots,
};

/// A tree of sysfs that a test fills.
pub(super) struct Tree(test_support::Tree);

impl Tree {
    /// A tree with two CPUs, each a socket and a NUMA node.
    pub(super) fn new() -> Self {
        let tree = Self(test_support::Tree::new());
        tree.write("devices/system/cpu/online", b"0-1\n");
        for n in 0..2 {
            let package = format!("devices/system/cpu/cpu{n}/topology/physical_package_id");
            tree.write(&package, format!("{n}\n").as_bytes());
            let node = format!("devices/system/node/node{n}/cpulist");
            tree.write(&node, format!("{n}\n").as_bytes());
        }
        tree.write("bus/event_source/devices/software/type", b"1\n");
        tree
    }

    /// Makes it a machine with Intel CPUs of family 6.
    pub(super) fn intel(&self, model: u32) {
        let text = format!("cpu:type:x86,ven0000fam0006mod{model:04X}:feature:,0000\n");
        self.write("devices/system/cpu/modalias", text.as_bytes());
    }

    pub(super) fn write(&self, file: &str, bytes: &[u8]) {
        self.0.write(file, bytes);
    }

    pub(super) fn pmu(&self, name: &str, files: &[(&str, &str)]) {
        self.0.pmu(name, &[("type", "50\n"), ("cpumask", "0\n")]);
        self.0.pmu(name, files);
    }

    /// Adds the functions of a table. A line has the path, the class, the ids, and any names.
    pub(super) fn table(&self, table: &str) {
        for line in table.lines() {
            let mut words = line.split(' ');
            let (path, class) = (words.next().unwrap(), words.next().unwrap());
            let (vendor, device) = words.next().unwrap().split_once(':').unwrap();
            self.function(path, class, vendor, device);
            for name in words {
                let (name, number) = name.split_once('=').unwrap_or((name, ""));
                let dir = format!("devices/{path}/{name}");
                self.0.dir(&dir);
                if !number.is_empty() {
                    self.0.write(&format!("{dir}/dev"), number);
                }
                self.0.link(&format!("class/{name}"), self.0.join(&dir));
            }
        }
    }

    pub(super) fn function(&self, path: &str, class: &str, vendor: &str, device: &str) {
        let dir = format!("devices/{path}");
        let file = |name: &str, text: &str| {
            self.write(&format!("{dir}/{name}"), format!("{text}\n").as_bytes());
        };
        file("class", &format!("0x{class}"));
        file("vendor", &format!("0x{vendor}"));
        file("device", &format!("0x{device}"));
        file("numa_node", "0");
        let address = path.rsplit('/').next().unwrap();
        let link = format!("bus/pci/devices/{address}");
        self.0.link(&link, self.0.join(&dir));
    }

    /// Writes the configuration space of an existing function.
    pub(super) fn config(&self, address: Bdf, bytes: &[u8]) {
        self.0
            .write(&format!("bus/pci/devices/{address}/config"), bytes);
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn read(&self) -> Devices {
        let pmus = Pmus::read(self.path()).unwrap();
        let machine = Machine::at(Roots {
            sys: self.path().to_path_buf(),
            // The host's procfs would show the host's CPUs.
            proc: "/nonexistent".into(),
            ..Roots::default()
        });
        Devices::read(&machine, &pmus, &Catalogue::builtin().unwrap())
    }
}

/// A configuration space of 4 KiB whose second extended capability is the mapping register.
pub(super) fn mapping(bus: u8, segment: u8, port: u8, complex: u8, socket: u8) -> Vec<u8> {
    let mut config = vec![0; 4096];
    config[..2].copy_from_slice(&0x10de_u16.to_le_bytes());
    let mut word = |at: usize, value: u32| {
        config[at..at + 4].copy_from_slice(&value.to_le_bytes());
    };
    // Advanced error reporting, then a DVSEC of another vendor, then NVIDIA's.
    word(0x100, 0x0001 | 2 << 16 | 0x148 << 20);
    word(0x148, 0x0023 | 1 << 16 | 0x200 << 20);
    word(0x14c, 0x1e98);
    word(0x150, 4);
    word(0x200, 0x0023 | 1 << 16);
    word(0x204, 0x10de | 0x14 << 20);
    word(0x208, 4);
    config[0x20c..0x211].copy_from_slice(&[bus, segment, port, complex, socket]);
    config
}
