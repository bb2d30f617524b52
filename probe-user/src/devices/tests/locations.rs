//! Locations of devices: sockets by NUMA nodes, and parts of IIO stacks.

use super::*;
use crate::{
    catalogue::{Catalogue, Chip, Hardware, MetricSettings},
    machine::Pmus,
};

/// The two sockets have their CPUs on NUMA nodes 0 and 2, as on machines whose GPU memory is a node
/// of its own. NVIDIA's drivers name PMUs by the node.
#[test]
fn nvidia_pmus_are_named_by_numa_node() {
    let tree = Tree::new();
    tree.write("devices/system/node/node1/cpulist", b"\n");
    tree.write("devices/system/node/node2/cpulist", b"1\n");
    for node in [0, 2] {
        tree.pmu(&format!("nvidia_pcie_pmu_{node}"), &[]);
        let scf = format!("nvidia_scf_pmu_{node}");
        tree.pmu(&scf, &[("format/event", "config:0-32")]);
        let events = [
            "cycles",
            "socket_0_rd_access",
            "socket_1_rd_access",
            "socket_0_rd_outstanding",
            "socket_1_rd_outstanding",
        ];
        for (number, event) in events.iter().enumerate() {
            let (file, text) = (format!("events/{event}"), format!("event={number:#x}"));
            tree.pmu(&scf, &[(file.as_str(), text.as_str())]);
        }
    }
    tree.table(GRACE);
    let devices = tree.read();
    let location = |name: &str| -> (Option<u32>, Vec<String>) {
        let (complex, ..) = devices.find(name).unwrap();
        let pmus = complex.pmus.iter().map(|pmu| pmu.name.clone());
        (complex.socket, pmus.collect())
    };
    assert_eq!(
        location("nvme1"),
        (Some(0), vec!["nvidia_pcie_pmu_0".into()])
    );
    assert_eq!(
        location("nvme0"),
        (Some(1), vec!["nvidia_pcie_pmu_2".into()])
    );
    assert!(!text(&devices).contains("socket 2"), "{}", text(&devices));
    // Places of metrics have the sockets too; the peer is the socket in the event's name.
    let pmus = Pmus::read(tree.path()).unwrap();
    let catalogue = Catalogue::builtin().unwrap();
    let chip = Chip::named("grace-cpu-superchip").unwrap();
    let metrics = catalogue.select("remote_read_latency", &Hardware::of_chip(chip));
    let groups = metrics.unwrap()[0]
        .groups(&pmus, &MetricSettings::default())
        .unwrap();
    let places = groups.iter().map(|group| {
        let place = &group.place;
        (group.pmu.as_str(), place.socket, place.peer)
    });
    assert_eq!(
        places.collect::<Vec<_>>(),
        [
            ("nvidia_scf_pmu_0", Some(0), Some(1)),
            ("nvidia_scf_pmu_2", Some(1), Some(0)),
        ]
    );
}

/// Drives behind a VMD are in a domain of their own.
const VMD: &str = "\
pci0000:26/0000:26:00.5 010400 8086:28c0
pci0000:26/0000:26:00.5/pci10000:80/10000:80:01.0 060400 8086:352a
pci0000:26/0000:26:00.5/pci10000:80/10000:80:01.0/10000:81:00.0 010802 8086:0b60 nvme/nvme5
";
/// Functions that every root bus has, network devices, accelerators, and a controller of the
/// chipset.
const ON_CHIP: &str = "\
pci0000:00/0000:00:14.0 0c0330 8086:1bcd
pci0000:00/0000:00:1c.0 060400 8086:1bb8
pci0000:00/0000:00:1c.0/0000:01:00.0 020000 8086:1521 net/eno1
pci0000:15/0000:15:00.0 088000 8086:09a2
pci0000:15/0000:15:03.0 060400 8086:352b
pci0000:15/0000:15:03.0/0000:16:00.0 020000 15b3:1021 net/ens1
pci0000:6a/0000:6a:01.0 088000 8086:0b25
pci0000:6a/0000:6a:02.0 088000 8086:0cfe
pci0000:6b/0000:6b:00.0 0b4000 8086:4940
pci0000:6d/0000:6d:00.0 0b4000 8086:2710
";

/// A socket with its chipset and its accelerators on these units.
fn socket(chipset: u32, accelerators: u32) -> Tree {
    let tree = Tree::new();
    tree.intel(0x8f);
    let stacks = [
        (chipset, "00"),
        (20, "15"),
        (21, "26"),
        (accelerators, "6a"),
    ];
    for (unit, bus) in stacks {
        let bus = format!("0000:{bus}\n");
        tree.pmu(&format!("uncore_iio_{unit}"), &[("die0", &bus)]);
    }
    tree.table(ON_CHIP);
    tree
}

fn narrowed(devices: &Devices, name: &str) -> Vec<String> {
    let (complex, port, device) = devices.find(name).unwrap();
    let narrowed = complex.narrowed(port, device);
    narrowed.iter().map(ToString::to_string).collect()
}

#[test]
fn parts_of_stacks_are_those_of_pcm() {
    let numbers = |devices: &Devices, name: &str| devices.find(name).unwrap().1.numbers.clone();
    // The units of the chipset are those of the dies with extreme and medium core count, and of an
    // unknown layout.
    for (chipset, qat, dlb) in [
        (1, vec![4], vec![5]),
        (10, vec![5], vec![4]),
        (7, vec![4, 5], vec![4, 5]),
    ] {
        let devices = socket(chipset, 0).read();
        let (complex, ..) = devices.find("0000:6b:00.0").unwrap();
        assert_eq!(complex.kind, ComplexKind::Stack(0));
        assert_eq!(numbers(&devices, "eno1"), [7]);
        assert_eq!(numbers(&devices, "0000:00:14.0"), [7]);
        assert_eq!(numbers(&devices, "ens1"), [2]);
        assert_eq!(numbers(&devices, "0000:6a:01.0"), [0, 1, 2]);
        assert_eq!(numbers(&devices, "0000:6b:00.0"), qat, "{chipset}");
        assert_eq!(numbers(&devices, "0000:6d:00.0"), dlb, "{chipset}");
        let filters = narrowed(&devices, "0000:6b:00.0");
        let filter = |mask: u32| format!("uncore_iio_0/EVENT,ch_mask={mask:#x}/");
        let known = (qat.len() == 1).then(|| filter(1 << qat[0]));
        assert_eq!(filters, known.into_iter().collect::<Vec<_>>());
        // DSA and IAA use the same parts, so no filter counts one of them.
        assert_eq!(narrowed(&devices, "0000:6a:01.0"), [""; 0]);
    }
    let tree = socket(1, 0);
    tree.table(VMD);
    insta::assert_snapshot!(text(&tree.read()));
}

/// Ice Lake has a table of its own, with root ports from device 2 on; Granite Rapids has none.
#[test]
fn ice_lake_has_its_own_parts_and_granite_rapids_none() {
    let tree = socket(5, 0);
    tree.function("pci0000:00/0000:00:01.0", "088000", "8086", "0b00");
    let numbers = |name: &str| {
        let devices = tree.read();
        let (complex, port, _) = devices.find(name).unwrap();
        assert!(matches!(complex.kind, ComplexKind::Stack(_)));
        port.numbers.clone()
    };
    tree.intel(0x6a);
    assert_eq!(numbers("ens1"), [1]);
    assert_eq!(numbers("eno1"), [0]);
    assert_eq!(numbers("0000:00:01.0"), [3]);
    tree.intel(0xad);
    assert_eq!(numbers("ens1"), [0; 0]);
    assert_eq!(narrowed(&tree.read(), "ens1"), [""; 0]);
}

#[test]
fn a_stack_without_die_files_is_listed_with_the_reason() {
    let tree = Tree::new();
    tree.pmu("uncore_iio_3", &[]);
    tree.table(ON_CHIP);
    let devices = tree.read();
    let text = text(&devices);
    assert!(
        text.contains(
            " no socket known\n  IIO stack 3: uncore_iio_3\n   its devices are not known: this \
             kernel has no die files for it, which tell the root bus of a stack\n"
        ),
        "{text}"
    );
    let json = devices.to_json();
    let complexes = json["complexes"].as_array().unwrap().iter();
    let mut reasons = complexes.filter_map(|complex| complex["reason"].as_str());
    assert!(reasons.next().is_some());
    assert_eq!(devices.parts(), BTreeMap::new());
}

/// Counting all eight parts of each stack would need multiplexing.
#[test]
fn parts_without_devices_are_not_counted() {
    let tree = socket(1, 0);
    tree.table(VMD);
    tree.pmu("uncore_iio_9", &[("die0", "0000:c0\n")]);
    for unit in [0, 1, 9, 20, 21] {
        let files = [
            ("format/event", "config:0-7"),
            ("format/umask", "config:8-15"),
            ("format/ch_mask", "config:36-47"),
            ("format/fc_mask", "config:48-50"),
        ];
        tree.pmu(&format!("uncore_iio_{unit}"), &files);
    }
    let parts = tree.read().parts();
    let pmus = Pmus::read(tree.path()).unwrap();
    let catalogue = Catalogue::builtin().unwrap();
    let chip = Hardware::of_chip(Chip::named("sapphire-rapids").unwrap());
    let metrics = catalogue.select("group:ddio", &chip).unwrap();
    let is_by_part = |metric: &&&crate::catalogue::Metric| {
        let events = metric.pmu.events.values();
        metric.pmu.pattern.to_string() == "uncore_iio_{unit}" && events.len() > 0
    };
    let metric = metrics.iter().find(is_by_part).unwrap();
    let counted = |settings: &MetricSettings| -> BTreeMap<String, Vec<u32>> {
        let mut counted: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for group in metric.groups(&pmus, settings).unwrap() {
            counted
                .entry(group.pmu)
                .or_default()
                .extend(group.place.part);
        }
        counted
    };
    let used = counted(&MetricSettings {
        parts,
        ..MetricSettings::default()
    });
    let all: Vec<u32> = (0..8).collect();
    let expected = [
        ("uncore_iio_0", vec![0, 1, 2, 4, 5]),
        ("uncore_iio_1", vec![7]),
        ("uncore_iio_20", vec![2]),
        // Any part may be behind the VMD.
        ("uncore_iio_21", all.clone()),
    ];
    let expected = expected.map(|(pmu, parts)| (pmu.to_owned(), parts));
    assert_eq!(used, expected.into());
    assert_eq!(counted(&MetricSettings::default())["uncore_iio_9"], all);
}

/// A Vera whose root port of `nvme0` has this configuration space, and why the location of that
/// port is unknown; `None` if it is known.
fn vera_with(config: &[u8]) -> (Tree, Option<String>) {
    let tree = vera();
    for complex in [4, 1] {
        let pmu = format!("nvidia_pcie_pmu_0_rc_{complex}");
        let files = [
            ("format/event", "config:0-32"),
            ("format/src_rp_mask", "config1:0-7"),
            ("format/src_bdf", "config1:8-23"),
            ("format/src_bdf_en", "config1:24"),
        ];
        tree.pmu(&pmu, &files);
    }
    let address: Bdf = "0005:c0:00.0".parse().unwrap();
    tree.config(address, config);
    let problem = tree.read().problems.remove(&address);
    (tree, problem.map(|problem| problem.to_string()))
}

#[test]
fn a_port_that_no_pmu_counts_is_refused() {
    let why = |config: &[u8]| vera_with(config).1;
    assert_eq!(why(&mapping(0xc0, 5, 7, 4, 0)), None);
    assert_eq!(
        why(&mapping(0xc0, 5, 8, 4, 0)).unwrap(),
        "its mapping register says root port 8, and nvidia_pcie_pmu_0_rc_4 has 8 ports"
    );
    assert_eq!(
        why(&mapping(0xc0, 5, 2, 4, 2)).unwrap(),
        "its mapping register says root complex 4 of socket 2, which no PMU counts"
    );
}

#[test]
fn reserved_pointer_bits_and_short_registers_are_ignored() {
    let kind = |config: &[u8]| {
        let (tree, problem) = vera_with(config);
        assert_eq!(problem, None);
        tree.read().find("nvme0").unwrap().0.kind
    };
    let mut config = mapping(0xc0, 5, 2, 4, 0);
    let word = |config: &mut [u8], at: usize, value: u32| {
        config[at..at + 4].copy_from_slice(&value.to_le_bytes());
    };
    // The pointer to the mapping register has its two reserved bits set.
    word(&mut config, 0x148, 0x0023 | 1 << 16 | 0x203 << 20);
    assert_eq!(kind(&config), ComplexKind::RootComplex(4));
    // Before the register there is a DVSEC of NVIDIA's with the same id, too short for the fields.
    word(&mut config, 0x14c, 0x10de | 0xc << 20);
    assert_eq!(kind(&config), ComplexKind::RootComplex(4));
    word(&mut config, 0x204, 0x10de | 0x10 << 20);
    assert_eq!(kind(&config), ComplexKind::RootBus(5, 0xc0));
}

#[test]
fn a_filtered_address_must_be_behind_the_pmus_root_complex() {
    let (tree, _) = vera_with(&mapping(0xc0, 5, 2, 4, 0));
    let pmus = Pmus::read(tree.path()).unwrap();
    let refusal = |complex: u32, address: &str| {
        let text = format!("nvidia_pcie_pmu_0_rc_{complex}/event=0,src_bdf={address}/");
        let error = crate::event::parse(&text, &pmus).err();
        error.map(|error| error.to_string())
    };
    assert_eq!(refusal(4, "0005:c1:00.0"), None);
    // An address without a domain is not checked.
    assert_eq!(refusal(1, "c1:00.0"), None);
    assert_eq!(
        refusal(1, "0005:c1:00.0").unwrap(),
        "the filter src_bdf=0005:c1:00.0 of `nvidia_pcie_pmu_0_rc_1` cannot be used: 0005:c1:00.0 \
         is behind root complex 4 of socket 0; name the PMU of that one"
    );
    assert!(
        refusal(4, "0006:c1:00.0")
            .unwrap()
            .contains("of 0006:c1:00.0: ")
    );
}

/// On a Grace CPU Superchip, NVLink-C2C0 counts the other socket's PCIe devices. The owner of a GPU
/// on PCIe did not cause that traffic.
#[test]
fn a_gpu_on_pcie_is_not_on_a_link() {
    let counted = |gpu: &str| -> Vec<Vec<String>> {
        let tree = Tree::new();
        let links = ["nvidia_nvlink_c2c0_pmu_0", "nvidia_nvlink_c2c1_pmu_0"];
        for link in links {
            tree.pmu(link, &[]);
        }
        tree.table(&GRACE_HOPPER.replace("10de:2342", gpu));
        let devices = tree.read();
        let counted_by = |link: &&str| {
            let counted = devices.counted_by(link, 0, &BTreeMap::new(), None);
            counted.into_iter().map(Device::name).collect()
        };
        links.iter().map(counted_by).collect()
    };
    assert_eq!(counted("10de:2342"), [["card0"], ["card0"]]);
    // H100 on PCIe.
    assert_eq!(counted("10de:2331"), [[""; 0], [""; 0]]);
}
