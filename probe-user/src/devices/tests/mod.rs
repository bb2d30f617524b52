//! Devices of four platforms, and damaged configuration spaces.

mod locations;
mod tree;

use std::fmt::Write as _;

use proptest::prelude::*;

use self::tree::{Tree, mapping};
use super::*;

const GRACE: &str = include_str!("../../../../tests/fixtures/pci/grace.txt");
const GRACE_HOPPER: &str = include_str!("../../../../tests/fixtures/pci/grace-hopper.txt");
const VERA: &str = include_str!("../../../../tests/fixtures/pci/vera.txt");
const VERA_MAPPING: &str = include_str!("../../../../tests/fixtures/pci/vera-mapping.txt");
const SPR: &str = include_str!("../../../../tests/fixtures/pci/spr.txt");

fn text(devices: &Devices) -> String {
    let mut out = Vec::new();
    devices.write_text(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn grace() -> Tree {
    let tree = Tree::new();
    tree.pmu("nvidia_pcie_pmu_0", &[]);
    tree.pmu("nvidia_pcie_pmu_1", &[]);
    tree.table(GRACE);
    tree
}

/// A Vera: root ports and their registers by the document's table, with devices behind them.
fn vera() -> Tree {
    let tree = Tree::new();
    for line in VERA_MAPPING.lines() {
        let (address, fields) = line.split_once(": ").unwrap();
        let address: Bdf = address.parse().unwrap();
        let fields: Vec<u8> = fields
            .split(", ")
            .map(|field| u8::from_str_radix(field.split_once('=').unwrap().1, 16).unwrap())
            .collect();
        let [bus, segment, port, complex, socket] = fields[..] else {
            panic!("{line}")
        };
        let root_bus = format!("pci{:04x}:{:02x}", address.domain, address.bus);
        tree.function(&format!("{root_bus}/{address}"), "060400", "10de", "22c1");
        tree.config(address, &mapping(bus, segment, port, complex, socket));
        tree.pmu(&format!("nvidia_pcie_pmu_{socket}_rc_{complex}"), &[]);
        tree.pmu(&format!("nvidia_pcie_tgt_pmu_{socket}_rc_{complex}"), &[]);
    }
    tree.table(VERA);
    tree
}

fn spr() -> Tree {
    let tree = Tree::new();
    tree.intel(0x8f);
    let buses = [["00", "80"], ["15", "97"], ["6a", "e7"], ["26", "a7"]];
    for (stack, [die0, die1]) in buses.iter().enumerate() {
        let dies = [
            ("die0", format!("0000:{die0}\n")),
            ("die1", format!("0000:{die1}\n")),
        ];
        let dies = dies.each_ref().map(|(file, text)| (*file, text.as_str()));
        tree.pmu(&format!("uncore_iio_{stack}"), &dies);
    }
    tree.table(SPR);
    tree
}

#[test]
fn grace_domains_are_sockets_and_root_ports() {
    insta::assert_snapshot!(text(&grace().read()));
}

#[test]
fn grace_hopper_has_its_gpu_on_a_root_port() {
    let tree = Tree::new();
    tree.pmu("nvidia_pcie_pmu_0", &[]);
    tree.table(GRACE_HOPPER);
    insta::assert_snapshot!(text(&tree.read()));
}

#[test]
fn root_ports_of_vera_match_the_documents_table() {
    let devices = vera().read();
    assert_eq!(devices.problems, BTreeMap::new());
    let mut ports: Vec<_> = devices
        .complexes
        .iter()
        .flat_map(|complex| {
            complex
                .ports
                .iter()
                .map(move |port| (port.address, complex, port))
        })
        .collect();
    ports.sort_by_key(|(address, ..)| *address);
    let mut table = String::new();
    for (address, complex, port) in ports {
        let ComplexKind::RootComplex(number) = complex.kind else {
            panic!("{address} is in no root complex");
        };
        let (domain, bus) = (address.domain, address.bus);
        writeln!(
            table,
            "{address}: Bus={bus:02x}, Segment={domain:02x}, RP={:02x}, RC={number:02x}, \
             Socket={:02x}",
            port.numbers[0],
            complex.socket.unwrap()
        )
        .unwrap();
    }
    assert_eq!(table, VERA_MAPPING);
}

#[test]
fn vera_devices_are_counted_by_root_port_or_by_address() {
    let devices = vera().read();
    insta::assert_snapshot!(text(&devices));
    let count_with = |name: &str| -> Vec<String> {
        let (complex, port, device) = devices.find(name).unwrap();
        let narrowed = complex.narrowed(port, device);
        narrowed.iter().map(ToString::to_string).collect()
    };
    // Two drives share root port 1, so only the address tells them apart.
    assert_eq!(
        count_with("nvme2"),
        ["nvidia_pcie_pmu_0_rc_4/EVENT,src_bdf=0x4300,src_bdf_en=0x1/"]
    );
    assert_eq!(count_with("nvme2"), count_with("0005:43:00.0"));
    assert_eq!(count_with("nvme2"), count_with("nvme2n1"));
}

#[test]
fn intel_stacks_and_parts() {
    insta::assert_snapshot!(text(&spr().read()));
}

#[test]
fn as_json() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&grace().read().to_json()).unwrap());
}

#[test]
fn a_pmu_and_its_filters_select_devices() {
    let names = |tree: &Tree, pmu: &str, socket: u32, filters: &[(&str, u64)]| -> Vec<String> {
        let filters = filters
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value));
        let devices = tree.read();
        let counted = devices.counted_by(pmu, socket, &filters.collect(), None);
        counted
            .iter()
            .filter_map(|device| device.names.first().cloned())
            .collect()
    };
    let grace = grace();
    assert_eq!(
        names(&grace, "nvidia_pcie_pmu_0", 0, &[("root_port", 0x100)]),
        ["nvme1"]
    );
    assert_eq!(
        names(&grace, "nvidia_pcie_pmu_0", 0, &[("root_port", 0x3ff)]),
        ["eth0", "eth1", "nvme1"]
    );
    assert_eq!(names(&grace, "nvidia_pcie_pmu_1", 1, &[]), ["nvme0"]);
    let vera = vera();
    let pmu = "nvidia_pcie_pmu_0_rc_4";
    assert_eq!(
        names(&vera, pmu, 0, &[("src_bdf", 0x4200), ("src_bdf_en", 1)]),
        ["nvme1"]
    );
    assert_eq!(names(&vera, pmu, 0, &[("src_rp_mask", 0x4)]), ["nvme0"]);
    let spr = spr();
    assert_eq!(
        names(&spr, "uncore_iio_1", 0, &[("ch_mask", 0x10)]),
        ["nvme0"]
    );
    assert_eq!(
        names(&spr, "uncore_iio_1", 1, &[("ch_mask", 0x1)]),
        ["card0"]
    );
}

#[test]
fn without_the_right_root_complexes_keep_their_numbers() {
    let tree = vera();
    for line in VERA_MAPPING.lines() {
        let address: Bdf = line.split_once(": ").unwrap().0.parse().unwrap();
        tree.config(address, &[0; 64]);
    }
    let devices = tree.read();
    insta::assert_snapshot!(text(&devices));
    assert_eq!(devices.problems.len(), VERA_MAPPING.lines().count());
}

#[test]
fn a_wrong_configuration_space_is_an_error_of_that_device_only() {
    let tree = vera();
    let bad: Bdf = "0005:c0:00.0".parse().unwrap();
    let mut ring = mapping(0xc0, 5, 2, 4, 0);
    ring[0x100..0x104].copy_from_slice(&(0x0001_u32 | 0x100 << 20).to_le_bytes());
    let whole = mapping(0xc0, 5, 2, 4, 0);
    let cases = [
        (
            mapping(0xc1, 5, 2, 4, 0),
            "its mapping register is for bus c1 of segment 05, which is another device",
        ),
        (
            whole[..0x20e].to_vec(),
            "its configuration space ends at byte 0x20e, in the middle of its mapping register",
        ),
        (
            whole[..0x120].to_vec(),
            "its configuration space ends at byte 0x120, in the middle of its extended \
             capabilities",
        ),
        (
            whole[..0x100].to_vec(),
            "its configuration space ends at byte 0x100, in the middle of its extended \
             capabilities",
        ),
        (
            ring,
            "its capabilities are a ring: the one at 0x100 comes twice",
        ),
        (
            Vec::new(),
            "its configuration space ends at byte 0x0, in the middle of its extended capabilities",
        ),
    ];
    for (config, reason) in cases {
        tree.config(bad, &config);
        let devices = tree.read();
        let problems: Vec<_> = devices
            .problems
            .iter()
            .map(|(at, why)| (*at, why.to_string()))
            .collect();
        assert_eq!(problems, [(bad, reason.to_owned())]);
        assert_eq!(
            devices.find("nvme1").unwrap().0.kind,
            ComplexKind::RootComplex(4)
        );
        assert_eq!(
            devices.find("nvme0").unwrap().0.kind,
            ComplexKind::RootBus(5, 0xc0)
        );
    }
    // A root port without the register is no error: other kinds of root ports lack it.
    tree.config(bad, &[0; 4096]);
    assert_eq!(tree.read().problems, BTreeMap::new());
}

#[test]
fn a_machine_without_pci_has_no_devices() {
    assert_eq!(text(&Tree::new().read()), "Devices\n no PCI devices\n");
}

#[test]
fn addresses_give_requester_ids() {
    let address: Bdf = "27:01.1".parse().unwrap();
    // (0x27 << 8) + (1 << 3) + 1, by the document's formula.
    assert_eq!(address.requester(), 0x2709);
    assert_eq!("0005:01:01.0".parse::<Bdf>().unwrap().requester(), 0x0108);
    assert_eq!(address.to_string(), "0000:27:01.1");
    for wrong in [
        "", "27:01", "27:20.0", "27:01.8", "100:01.1", "+7:01.1", "27.1", "x:y:z.0",
    ] {
        assert!(wrong.parse::<Bdf>().is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn addresses_parse_as_printed(domain: u32, bus: u8, device in 0_u8..32, function in 0_u8..8) {
        let address = Bdf { domain, bus, device, function };
        prop_assert_eq!(address.to_string().parse::<Bdf>(), Ok(address));
    }

    /// Any configuration space gives a register, none, or an error, without panic or endless loop.
    #[test]
    fn no_configuration_space_panics(
        start in 0_usize..4096,
        noise in prop::collection::vec(any::<u8>(), 0..600),
        length in 0_usize..4200,
    ) {
        let mut config = mapping(0, 0, 1, 2, 1);
        for (byte, noise) in config[start..].iter_mut().zip(noise) {
            *byte = noise;
        }
        config.resize(length, 0);
        let _ = root_port(&config, "0000:00:00.0".parse().unwrap());
    }
}
