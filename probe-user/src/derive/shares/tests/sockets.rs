//! Reads between more than two sockets, counted by destination.

use std::fs;

use test_support::{Tree, sysfs};

use super::*;
use crate::join::share::Shares;

const METRIC: &str = "cmem_read_bandwidth";

/// The recorded PMUs of two Graces; those of socket 1 are repeated as sockets 2 and 3.
fn four_graces(chip: Option<Chip>, metric: &str) -> Plan {
    let devices = "bus/event_source/devices";
    let recorded = sysfs("grace").join(devices);
    let tree = Tree::new();
    let copy = |from: &str, to: &str| {
        for entry in fs::read_dir(recorded.join(from)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let files = match entry.file_type().unwrap().is_dir() {
                true => fs::read_dir(entry.path())
                    .unwrap()
                    .map(Result::unwrap)
                    .collect(),
                false => vec![entry],
            };
            for file in files {
                let inner = file.file_name().into_string().unwrap();
                let path = if inner == name {
                    inner
                } else {
                    format!("{name}/{inner}")
                };
                tree.write(
                    &format!("{devices}/{to}/{path}"),
                    fs::read(file.path()).unwrap(),
                );
            }
        }
    };
    copy("armv8_pmuv3_0", "armv8_pmuv3_0");
    copy("nvidia_scf_pmu_0", "nvidia_scf_pmu_0");
    for socket in 1..4 {
        copy("nvidia_scf_pmu_1", &format!("nvidia_scf_pmu_{socket}"));
    }
    let of_chip = Hardware::of_chip(Chip::named("grace-hopper-multi").unwrap());
    let machine = Hardware {
        chip,
        sockets: Some(4),
        ..of_chip
    };
    let pmus = Pmus::read(tree.path()).unwrap();
    of_metrics(metric, machine, &pmus, 8)
}

/// Socket 0 reads most of its memory itself; socket 1 sends 1,000,000 reads, socket 2 sends
/// 2,000,000.
fn reads(gpu: u64) -> impl Fn(&str, u32) -> u64 {
    move |event, socket| match (event, socket) {
        (event, 0) if event.contains("/cmem_rd_data/") => 10_000_000,
        (event, 0) if event.contains("/gmem_rd_data/") => gpu,
        (event, 1) if event.contains("/socket_0_rd_data/") => 1_000_000,
        (event, 2) if event.contains("/socket_0_rd_data/") => 2_000_000,
        // Reads of the memory of socket 1.
        (event, 3) if event.contains("/socket_1_rd_data/") => 4_000_000,
        _ => 0,
    }
}

fn of_socket_0(plan: &Plan, gpu: u64) -> Result<Shares, NoShare> {
    let weights = [
        (0, 7, [500, 0]),
        (1, 8, [500, 400]),
        (2, 9, [500, 500]),
        (3, 10, [500, 500]),
    ];
    let window = window(plan, &reads(gpu), &weights);
    let joined = View::default().join(plan, &window, None);
    let mut shared = joined.shares.into_iter();
    shared
        .find(|shared| shared.by_owner.socket == 0)
        .unwrap()
        .by_owner
        .shares
}

fn counts(shares: &Shares) -> Vec<(u64, u64)> {
    let owners = shares.owners.iter().filter(|(_, part)| part.count > 0);
    owners
        .map(|(owner, part)| (owner.cgroup.0, part.count))
        .collect()
}

/// Each socket counts its reads from each other socket.
#[test]
fn reads_of_four_sockets_are_divided_by_destination() {
    let plan = four_graces(None, METRIC);
    let names: Vec<&str> = plan
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .collect();
    let is_of_2 = |name: &&&str| name.starts_with("nvidia_scf_pmu_2/");
    let of_2: Vec<&&str> = names.iter().filter(is_of_2).collect();
    assert_eq!(of_2.len(), 5, "{names:?}");
    assert!(
        !names
            .iter()
            .any(|name| name.contains("remote_socket_rd_data")),
        "{names:?}"
    );
    let shares = of_socket_0(&plan, 0).unwrap();
    assert_eq!(shares.measured(), 10_000_000);
    // Source and destination may count reads differently: 79 of a thousand reads sent are
    // unattributed.
    assert_eq!(shares.unattributed, 237_000);
    assert_eq!(
        counts(&shares),
        [(7, 6_763_000), (8, 1_000_000), (9, 2_000_000)]
    );
}

/// Reads that a socket sent may have gone to GPU memory, up to the number of reads counted there.
#[test]
fn reads_of_gpu_memory_widen_the_error() {
    let multi = Chip::named("grace-hopper-multi");
    let plan = four_graces(multi, METRIC);
    let error = |gpu| {
        let shares = of_socket_0(&plan, gpu).unwrap();
        assert_eq!(
            counts(&shares),
            [(7, 6_763_000), (8, 1_000_000), (9, 2_000_000)]
        );
        let part = shares
            .owners
            .values()
            .find(|part| part.count == 1_000_000)
            .unwrap();
        shares.relative_error(part).unwrap()
    };
    assert!((error(0) - 0.079).abs() < 0.07, "{}", error(0));
    assert!(error(500_000) > error(0) + 0.4, "{}", error(500_000));
    assert_eq!(of_socket_0(&plan, 3_000_000), Err(NoShare::BothMemories));
}

/// No event counts all writes by their destination.
#[test]
fn writes_of_four_sockets_have_no_shares() {
    let plan = four_graces(None, "cmem_write_bandwidth");
    assert_eq!(of_socket_0(&plan, 0), Err(NoShare::ManySockets));
    let multi = four_graces(Chip::named("grace-hopper-multi"), "cmem_write_bandwidth");
    assert_eq!(of_socket_0(&multi, 0), Err(NoShare::ManySockets));
}
