//! Shares of device traffic: by bytes, by the holder of the device, or a reason in their place.

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

/// A plan with devices of socket 0, each on its own root port, and a window of one second.
fn plan_and_window(metrics: &str, list: Vec<Device>, deltas: DeviceDeltas) -> (Plan, Window) {
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

fn no_share_reason(plan: &Plan, window: &Window, view: &View) -> NoShare {
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
fn traffic_of_a_block_device_is_shared_by_bytes() {
    let of_ssd = [(CgroupId(7), moved(0, 300)), (CgroupId(8), moved(800, 100))];
    let deltas = DeviceDeltas {
        moved: [("259:0".to_owned(), of_ssd.into())].into(),
        ..DeviceDeltas::default()
    };
    let ssd = || vec![device(SSD, 0x01_0802, Some("259:0"))];
    let shares_of = |metric: &str| {
        let (plan, window) = plan_and_window(metric, ssd(), deltas.clone());
        let rows = shares(&plan, &window).into_iter();
        rows.map(|(_, _, owner, value)| (owner, value))
            .collect::<Vec<_>>()
    };
    let row = |owner: &str, value| (owner.to_owned(), value);
    // The counts of local and remote memory add up to 2 GB/s. A write to a device makes the device
    // read memory.
    assert_eq!(
        shares_of("pcie_read_bandwidth"),
        [
            row("cgroup 7", 1_500),
            row("cgroup 8", 500),
            row("Unattributed", 0)
        ]
    );
    assert_eq!(
        shares_of("pcie_write_bandwidth"),
        [row("cgroup 8", 2_000), row("Unattributed", 0)]
    );
    assert_eq!(
        shares_of("pcie_bandwidth"),
        [
            row("cgroup 8", 3_000),
            row("cgroup 7", 1_000),
            row("Unattributed", 0)
        ]
    );
    let (plan, mut window) = plan_and_window("pcie_read_bandwidth", ssd(), deltas.clone());
    let shared = share::of_window(&plan, &window, &View::default().naming(&window.names));
    assert_eq!(
        shared[0].shares.as_ref().unwrap().method,
        share::Method::IoStat
    );
    let processes = View {
        by: crate::join::By::Process,
        ..View::default()
    };
    assert_eq!(
        no_share_reason(&plan, &window, &processes),
        NoShare::NotOfProcesses
    );
    window.sources.devices = Some(DeviceDeltas::default());
    assert_eq!(
        no_share_reason(&plan, &window, &View::default()),
        NoShare::NoBytes
    );
    // Another device behind the same count has unknown bytes.
    let mixed = ssd()
        .into_iter()
        .chain([device(GPU, 0x03_0200, None)])
        .collect();
    let (plan, window) = plan_and_window("pcie_read_bandwidth", mixed, deltas);
    assert_eq!(
        no_share_reason(&plan, &window, &View::default()),
        NoShare::SeveralDevices
    );
}

#[test]
fn all_traffic_of_a_device_belongs_to_its_only_holder() {
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
    let window_for = |deltas| plan_and_window("pcie_write_bandwidth", gpu(), deltas);
    let (plan, window) = window_for(held(&[7]));
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

    let reason = |deltas: DeviceDeltas| {
        let (plan, window) = window_for(deltas);
        no_share_reason(&plan, &window, &View::default())
    };
    assert_eq!(reason(DeviceDeltas::default()), NoShare::NoOwner);
    assert_eq!(reason(held(&[7, 8])), NoShare::SeveralOwners);
    assert_eq!(
        reason(DeviceDeltas {
            stale: true,
            ..held(&[7])
        }),
        NoShare::Stale
    );
    assert_eq!(
        reason(DeviceDeltas {
            unreadable: true,
            ..held(&[7])
        }),
        NoShare::Unreadable
    );
    assert_eq!(
        reason(DeviceDeltas {
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
    let (plan, window) = plan_and_window(metric, two, held(&[7]));
    assert_eq!(
        no_share_reason(&plan, &window, &View::default()),
        NoShare::SeveralDevices
    );
    // The traffic belongs to a pod if both holders are its containers.
    let (plan, mut window) = window_for(held(&[7, 8]));
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
        no_share_reason(&plan, &window, &View::default()),
        NoShare::SeveralOwners
    );
}

#[test]
fn a_count_without_a_known_device_has_no_shares() {
    let (plan, window) =
        plan_and_window("pcie_read_bandwidth", Vec::new(), DeviceDeltas::default());
    assert_eq!(
        no_share_reason(&plan, &window, &View::default()),
        NoShare::NoDevice
    );
}
