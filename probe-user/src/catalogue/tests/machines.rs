//! The detection of the chip.

use test_support::Tree;

use super::super::{Chip, Hardware, Platform};
use crate::machine::{Machine, Roots};

/// A tree of sysfs from which a machine is detected.
struct Sysfs(Tree);

impl Sysfs {
    fn new() -> Self {
        Self(Tree::new())
    }

    fn file(self, path: &str, text: &str) -> Self {
        self.0.write(path, text);
        self
    }

    fn pmus(self, names: &[&str]) -> Self {
        names.iter().fold(self, |tree, name| {
            tree.file(&format!("bus/event_source/devices/{name}/type"), "20\n")
        })
    }

    fn pci(self, address: &str, vendor: &str, device: &str, class: &str) -> Self {
        let dir = format!("bus/pci/devices/{address}");
        self.file(&format!("{dir}/vendor"), vendor)
            .file(&format!("{dir}/device"), device)
            .file(&format!("{dir}/class"), class)
    }

    fn gh200(self, address: &str) -> Self {
        self.pci(address, "0x10de\n", "0x2342\n", "0x030200\n")
    }

    fn machine(&self) -> Hardware {
        let sys = self.0.path().to_owned();
        // The default procfs would be that of this host.
        Hardware::detect(&Machine::at(Roots {
            sys,
            proc: "/nonexistent".into(),
            ..Roots::default()
        }))
    }
}

/// The PMUs of every Grace, whether its chip uses them or not.
const ONE_SOCKET: [&str; 4] = [
    "nvidia_scf_pmu_0",
    "nvidia_nvlink_c2c1_pmu_0",
    "nvidia_cnvlink_pmu_0",
    "armv8_pmuv3_0",
];
const TWO_SOCKETS: [&str; 3] = [
    "nvidia_scf_pmu_0",
    "nvidia_scf_pmu_1",
    "nvidia_nvlink_c2c1_pmu_0",
];

#[test]
fn sockets_and_gpus_identify_the_chip() {
    let nic = |tree: Sysfs| tree.pci("0000:01:00.0", "0x15b3", "0x1021", "0x020000");
    let chip = |tree: &Sysfs| (tree.machine().chip, tree.machine().gpus_per_socket);
    let superchip = nic(Sysfs::new().pmus(&TWO_SOCKETS));
    assert_eq!(
        chip(&superchip),
        (Some(Chip::named("grace-cpu-superchip").unwrap()), Some(0))
    );
    let hopper = nic(Sysfs::new().pmus(&ONE_SOCKET)).gh200("0009:01:00.0");
    assert_eq!(
        chip(&hopper),
        (Some(Chip::named("grace-hopper").unwrap()), Some(1))
    );
    let multi = Sysfs::new()
        .pmus(&TWO_SOCKETS)
        .gh200("0009:01:00.0")
        .gh200("0019:01:00.0");
    assert_eq!(
        chip(&multi),
        (Some(Chip::named("grace-hopper-multi").unwrap()), Some(1))
    );
    let uneven = Sysfs::new().pmus(&TWO_SOCKETS).gh200("0009:01:00.0");
    assert_eq!(
        chip(&uneven),
        (Some(Chip::named("grace-hopper-multi").unwrap()), None)
    );
}

#[test]
fn unknown_values_are_not_guessed() {
    for tree in [
        Sysfs::new().pmus(&ONE_SOCKET),
        // Some other NVIDIA GPU: on PCIe or on NVLink-C2C.
        Sysfs::new()
            .pmus(&ONE_SOCKET)
            .pci("0009:01:00.0", "0x10de", "0x2941", "0x030200"),
        Sysfs::new()
            .pmus(&TWO_SOCKETS)
            .pci("0009:01:00.0", "0x10de", "0x2331", "0x030200"),
    ] {
        let machine = tree.machine();
        assert_eq!(
            (machine.platform, machine.chip),
            (Platform::named("grace").unwrap(), None)
        );
        assert_eq!(machine.gpus_per_socket, None);
    }
}

#[test]
fn vera_is_known_by_its_pmus() {
    for pmu in ["nvidia_ucf_pmu_0", "nvidia_cmem_latency_pmu_1"] {
        let machine = Sysfs::new().pmus(&[pmu]).machine();
        let machine = Hardware {
            sockets: None,
            ..machine
        };
        let vera = Hardware::of_chip(Chip::named("tegra410").unwrap());
        assert_eq!(machine, vera);
    }
}

#[test]
fn vera_without_named_pmus_is_known_by_their_identifier() {
    let tree = |identifier: &str| {
        let file = "bus/event_source/devices/nvidia_uncore_pmu_0/identifier";
        Sysfs::new()
            .pmus(&["nvidia_uncore_pmu_0"])
            .file(file, identifier)
    };
    assert_eq!(
        tree("2cf20000\n").machine(),
        Hardware::of_chip(Chip::named("tegra410").unwrap())
    );
    assert_eq!(
        tree("10301000\n").machine().platform,
        Platform::named("generic").unwrap()
    );
    assert_eq!(
        tree("\n").machine().platform,
        Platform::named("generic").unwrap()
    );
}

#[test]
fn cores_are_known_by_their_ids() {
    let midr = "devices/system/cpu/cpu0/regs/identification/midr_el1";
    let v2 = Sysfs::new().file(midr, "0x00000000411fd4f1\n").machine();
    assert_eq!(v2.platform, Platform::named("neoverse-v2").unwrap());
    assert_eq!(v2.midr, Some(0x410f_d4f0));
    let n1 = Sysfs::new().file(midr, "0x00000000413fd0c1\n").machine();
    assert_eq!(
        (n1.platform, n1.midr),
        (Platform::named("neoverse-n1").unwrap(), Some(0x410f_d0c0))
    );
    for (model, platform) in [
        ("008F", Platform::named("spr").unwrap()),
        ("00CF", Platform::named("emr").unwrap()),
        ("002D", Platform::named("snb").unwrap()),
        ("002A", Platform::named("snb").unwrap()),
        ("00AD", Platform::named("gnr").unwrap()),
        ("0055", Platform::generic()),
    ] {
        let modalias = format!("cpu:type:x86,ven0000fam0006mod{model}:feature:,0000,0001\n");
        let machine = Sysfs::new()
            .file("devices/system/cpu/modalias", &modalias)
            .machine();
        assert_eq!(machine.platform, platform);
    }
    let amd = "cpu:type:x86,ven0002fam0019mod008F:feature:,0000\n";
    let machine = Sysfs::new()
        .file("devices/system/cpu/modalias", amd)
        .machine();
    assert_eq!(machine, Hardware::of_chip(Chip::named("other").unwrap()));
}

/// On another core, the raw codes of these metrics count something else or nothing.
#[test]
fn another_core_has_no_neoverse_v2_metrics() {
    let mut machine = Hardware::of_chip(Chip::named("grace-hopper").unwrap());
    let retiring = |machine: &Hardware| super::CATALOGUE.select("retiring", machine).is_ok();
    assert!(retiring(&machine));
    machine.midr = Some(0x410f_d4f0);
    assert!(retiring(&machine));
    machine.midr = Some(0x410f_d0c0);
    assert!(!retiring(&machine));
    assert_eq!(
        super::CATALOGUE.select("ipc", &machine).unwrap()[0]
            .family
            .name,
        "generic"
    );
}

/// Without PMU drivers, Grace is identified by its chip id, and Vera by its core.
#[test]
fn machines_without_their_drivers_are_recognized() {
    let midr = "devices/system/cpu/cpu0/regs/identification/midr_el1";
    let v2 = |tree: Sysfs| tree.file(midr, "0x00000000410fd4f0\n");
    let package = |tree: Sysfs, cpu: u32, package: u32| {
        let file = format!("devices/system/cpu/cpu{cpu}/topology/physical_package_id");
        tree.file(&file, &format!("{package}\n"))
    };
    let soc = "jep106:036b:0241\n";
    let grace = || {
        v2(Sysfs::new()
            .file("devices/soc0/soc_id", soc)
            .pmus(&["software"]))
    };
    assert_eq!(
        grace().machine().platform,
        Platform::named("grace").unwrap()
    );
    // Its number of sockets is unknown.
    assert_eq!(grace().machine().chip, None);
    let two_sockets = grace().file("devices/system/cpu/online", "0-1\n");
    let two_sockets = package(package(two_sockets, 0, 36), 1, 2364);
    assert_eq!(
        two_sockets.machine().chip,
        Chip::named("grace-cpu-superchip")
    );
    let other_chip = v2(Sysfs::new().file("devices/soc0/soc_id", "jep106:0a52:0001\n"));
    assert_eq!(
        other_chip.machine().platform,
        Platform::named("neoverse-v2").unwrap()
    );
    let vera = Sysfs::new().file(midr, "0x000000004e0f0100\n").machine();
    assert_eq!(vera.platform, Platform::named("vera").unwrap());
}
