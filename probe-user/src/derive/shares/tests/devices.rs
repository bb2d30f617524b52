//! Shares of device traffic: by bytes, by holder, or the reason for their absence.

use std::sync::Arc;

use super::*;
use crate::{
    catalogue::{Catalogue, Platform},
    devices::{Complex, ComplexKind, Device, DeviceDeltas, Devices, IoBytes, PciePmu, Port},
    snapshot::Names,
};

fn device(address: &str, class: u32, block: Option<&str>) -> Device {
    Device {
        address: address.parse().unwrap(),
        vendor: 0x10de,
        device: 1,
        class,
        names: Vec::new(),
        blocks: block.map(str::to_owned).into_iter().collect(),
    }
}

/// Devices of socket 0, each on its own root port, and a second of counts for them.
fn of_devices(metrics: &str, list: Vec<Device>, deltas: DeviceDeltas) -> (Plan, Window) {
    let mut plan = plan(
        "grace",
        Chip::named("grace-cpu-superchip").unwrap(),
        metrics,
    );
    let port = |(number, device): (u32, Device)| Port {
        address: device.address,
        numbers: vec![number],
        devices: vec![device],
    };
    let catalogue = Catalogue::builtin().unwrap();
    let complex = Complex {
        socket: Some(0),
        kind: ComplexKind::RootPorts,
        pmus: vec![PciePmu {
            name: "nvidia_pcie_pmu_0".to_owned(),
            spec: catalogue
                .devices_of("nvidia_pcie_pmu_0", Platform::generic())
                .unwrap()
                .0,
        }],
        ports: (0..).zip(list).map(port).collect(),
    };
    plan.devices = Arc::new(Devices {
        complexes: vec![complex],
        ..Devices::default()
    });
    let mut window = window(&plan, &|_, _| 1_000_000_000, &[]);
    window.uncore.retain(|reading| reading.socket == 0);
    window.sources.devices = Some(deltas);
    (plan, window)
}

fn why(plan: &Plan, window: &Window, view: &View) -> NoShare {
    share::of_window(plan, window, &view.naming(&window.names))[0]
        .shares
        .clone()
        .unwrap_err()
}

const SSD: &str = "0000:01:00.0";
const GPU: &str = "0001:01:00.0";

fn moved(read: u64, written: u64) -> IoBytes {
    IoBytes { read, written }
}

#[test]
fn a_block_devices_traffic_is_of_who_moved_the_bytes() {
    let of_ssd = [(CgroupId(7), moved(0, 300)), (CgroupId(8), moved(800, 100))];
    let deltas = DeviceDeltas {
        moved: [("259:0".to_owned(), of_ssd.into())].into(),
        ..DeviceDeltas::default()
    };
    let ssd = || vec![device(SSD, 0x01_0802, Some("259:0"))];
    let of = |metric: &str| {
        let (plan, window) = of_devices(metric, ssd(), deltas.clone());
        let rows = shares(&plan, &window).into_iter();
        rows.map(|(_, _, whose, value)| (whose, value))
            .collect::<Vec<_>>()
    };
    let row = |whose: &str, value| (whose.to_owned(), value);
    // The counts of local and remote memory together: 2 GB/s. What the device reads is written to
    // it.
    assert_eq!(
        of("pcie_read_bandwidth"),
        [
            row("cgroup 7", 1_500),
            row("cgroup 8", 500),
            row("Unattributed", 0)
        ]
    );
    assert_eq!(
        of("pcie_write_bandwidth"),
        [row("cgroup 8", 2_000), row("Unattributed", 0)]
    );
    assert_eq!(
        of("pcie_bandwidth"),
        [
            row("cgroup 8", 3_000),
            row("cgroup 7", 1_000),
            row("Unattributed", 0)
        ]
    );
    let (plan, mut window) = of_devices("pcie_read_bandwidth", ssd(), deltas.clone());
    let shared = share::of_window(&plan, &window, &View::default().naming(&window.names));
    assert_eq!(
        shared[0].shares.as_ref().unwrap().method,
        share::Method::IoStat
    );
    let processes = View {
        by: crate::join::By::Process,
        ..View::default()
    };
    assert_eq!(why(&plan, &window, &processes), NoShare::NotOfProcesses);
    window.sources.devices = Some(DeviceDeltas::default());
    assert_eq!(why(&plan, &window, &View::default()), NoShare::NoBytes);
    // With another device with unknown bytes.
    let mixed = ssd()
        .into_iter()
        .chain([device(GPU, 0x03_0200, None)])
        .collect();
    let (plan, window) = of_devices("pcie_read_bandwidth", mixed, deltas);
    assert_eq!(
        why(&plan, &window, &View::default()),
        NoShare::SeveralDevices
    );
}

#[test]
fn a_device_that_one_container_holds_is_all_its_own() {
    let held = |cgroups: &[u64]| DeviceDeltas {
        holders: [(
            GPU.parse().unwrap(),
            cgroups.iter().map(|id| CgroupId(*id)).collect(),
        )]
        .into(),
        ..DeviceDeltas::default()
    };
    // A GPU and its audio function are one card.
    let gpu = || {
        vec![
            device(GPU, 0x03_0200, None),
            device("0001:01:00.1", 0x04_0300, None),
        ]
    };
    let of = |deltas| of_devices("pcie_write_bandwidth", gpu(), deltas);
    let (plan, window) = of(held(&[7]));
    let metric = "pcie_write_bandwidth";
    assert_eq!(
        shares(&plan, &window),
        [
            row(metric, 0, "cgroup 7", 2_000),
            row(metric, 0, "Unattributed", 0)
        ]
    );
    let shared = share::of_window(&plan, &window, &View::default().naming(&window.names));
    let of_gpu = shared[0].shares.as_ref().unwrap();
    assert_eq!(of_gpu.method, share::Method::DeviceOwner);
    let error = of_gpu.relative_error(&share::OwnerShare {
        count: 1,
        samples: 1,
        ..share::OwnerShare::default()
    });
    assert_eq!(error, Some(0.0), "exact");

    let none = |deltas: DeviceDeltas| {
        let (plan, window) = of(deltas);
        why(&plan, &window, &View::default())
    };
    assert_eq!(none(DeviceDeltas::default()), NoShare::NoOwner);
    assert_eq!(none(held(&[7, 8])), NoShare::SeveralOwners);
    assert_eq!(
        none(DeviceDeltas {
            stale: true,
            ..held(&[7])
        }),
        NoShare::Stale
    );
    assert_eq!(
        none(DeviceDeltas {
            unreadable: true,
            ..held(&[7])
        }),
        NoShare::Unreadable
    );
    assert_eq!(
        none(DeviceDeltas {
            by_kernel: [GPU.parse().unwrap()].into(),
            ..held(&[7])
        }),
        NoShare::ThroughKernel
    );
    // Another card behind the same count, without a known holder.
    let two = gpu()
        .into_iter()
        .chain([device("0002:01:00.0", 0x02_0000, None)])
        .collect();
    let (plan, window) = of_devices(metric, two, held(&[7]));
    assert_eq!(
        why(&plan, &window, &View::default()),
        NoShare::SeveralDevices
    );
    // It belongs to a pod if both of its containers hold the device.
    let (plan, mut window) = of(held(&[7, 8]));
    let pod = "/kubepods.slice/kubepods-pod7bbae5a3_01a3_4a7d_9d50_0a1b2c3d4e5f.slice";
    let name = |id: u64| {
        (
            CgroupId(id),
            format!(
                "{pod}/cri-containerd-{}.scope",
                format!("{id:x}").repeat(64)
            ),
        )
    };
    window.names = Arc::new(Names {
        cgroups: [name(7), name(8)].into(),
        ..Names::default()
    });
    let pods = View {
        by: crate::join::By::Pod,
        ..View::default()
    };
    assert!(
        share::of_window(&plan, &window, &pods.naming(&window.names))[0]
            .shares
            .is_ok()
    );
    assert_eq!(
        why(&plan, &window, &View::default()),
        NoShare::SeveralOwners
    );
}

#[test]
fn a_count_of_no_device_that_is_known_has_no_shares() {
    let (plan, window) = of_devices("pcie_read_bandwidth", Vec::new(), DeviceDeltas::default());
    assert_eq!(why(&plan, &window, &View::default()), NoShare::NoDevice);
}
