//! The groups that are opened for a metric on a machine.

use test_support::Tree;

use super::{CATALOGUE, metric, pmus};
use crate::catalogue::{Catalogue, CounterGroup, MetricSettings, Per, PmuFilter, Unavailable};

fn texts(family: &str, name: &str, machine: &str) -> Vec<String> {
    let groups = metric(family, name).groups(&pmus(machine), &MetricSettings::default());
    groups.unwrap().iter().map(CounterGroup::text).collect()
}

#[test]
fn all_events_of_a_ratio_are_one_group() {
    assert_eq!(
        texts("neoverse-v2", "bad_speculation", "grace"),
        [
            "{armv8_pmuv3_0/op_retired/,armv8_pmuv3_0/op_spec/,armv8_pmuv3_0/stall_slot/,\
          armv8_pmuv3_0/cpu_cycles/,armv8_pmuv3_0/br_mis_pred/}"
        ]
    );
    assert_eq!(
        texts("neoverse-v2", "flops", "grace"),
        ["{armv8_pmuv3_0/event=0x80c0/,armv8_pmuv3_0/event=0x80c1/}"]
    );
    assert_eq!(
        texts("intel-spr", "l2_miss_latency", "spr"),
        ["{cpu/event=0x20,umask=0x01/,cpu/event=0x21,umask=0x01/,cpu/event=0x3c,umask=0x00/}"]
    );
    // Each group leaves at least one counter of its PMU to other users.
    for metric in CATALOGUE.metrics() {
        if let Some(counters) = metric.pmu.counters {
            let events = metric.events();
            let taken = events
                .iter()
                .filter(|event| !metric.pmu.events[**event].fixed);
            assert!(taken.count() < counters as usize, "{}", metric.name);
        }
    }
}

#[test]
fn every_socket_has_a_group_and_its_own_peer() {
    assert_eq!(
        texts("nvidia-grace-scf", "remote_read_utilization", "grace"),
        [
            "{nvidia_scf_pmu_0/socket_1_rd_access/,nvidia_scf_pmu_0/cycles/}",
            "{nvidia_scf_pmu_1/socket_0_rd_access/,nvidia_scf_pmu_1/cycles/}",
        ]
    );
    let groups = metric("nvidia-grace-scf", "remote_read_latency")
        .groups(&pmus("grace"), &MetricSettings::default())
        .unwrap();
    let places: Vec<_> = groups.iter().map(|group| group.place.to_string()).collect();
    assert_eq!(places, ["socket 0 to socket 1", "socket 1 to socket 0"]);
}

/// A root-port filter of 0 has different meanings in different kernels.
#[test]
fn the_filter_by_root_port_is_always_set() {
    assert_eq!(
        texts("nvidia-grace-pcie", "pcie_read_utilization", "grace")[0],
        "{nvidia_pcie_pmu_0/rd_req_loc,root_port=0x3ff/,nvidia_pcie_pmu_0/rd_req_rem,root_port=0x3ff/,\
         nvidia_pcie_pmu_0/cycles,root_port=0x3ff/}"
    );
    let settings = MetricSettings {
        filters: [("root_port".to_owned(), 0x103)].into(),
        ..MetricSettings::default()
    };
    let groups = metric("nvidia-grace-pcie", "pcie_frequency")
        .groups(&pmus("grace"), &settings)
        .unwrap();
    assert_eq!(
        groups[1].text(),
        "{nvidia_pcie_pmu_1/cycles,root_port=0x103/}"
    );
    assert_eq!(
        groups[1]
            .place
            .ports(&metric("nvidia-grace-pcie", "pcie_frequency").pmu),
        Some(3)
    );
    assert_eq!(groups[1].place.to_string(), "socket 1 root_port=0x103");
}

#[test]
fn units_of_a_socket_share_a_place_and_devices_do_not() {
    let groups = |name| {
        metric("intel-spr", name)
            .groups(&pmus("spr"), &MetricSettings::default())
            .unwrap()
    };
    let cha = groups("io_percent_of_inbound_reads_that_miss_l3");
    assert_eq!(cha.len(), 2);
    assert_eq!(cha[0].place, cha[1].place);
    assert_eq!(cha[0].place.to_string(), "");
    let iio = groups("io_inbound_write_requests");
    assert_eq!(iio.len(), 2 * 8);
    assert_eq!(
        iio[10].text(),
        "{uncore_iio_1/event=0x84,umask=0x01,ch_mask=0x4,fc_mask=0x7/}"
    );
    assert_eq!(iio[10].place.to_string(), "uncore_iio_1 part 2");
    assert_eq!(
        metric("intel-spr", "io_inbound_write_requests").pmu.per,
        Per::Device
    );
}

#[test]
fn root_complexes_are_devices_of_their_socket() {
    let groups = metric("tegra410-pcie", "pcie_rc_read_latency")
        .groups(&pmus("vera"), &MetricSettings::default())
        .unwrap();
    let rc = groups
        .iter()
        .find(|group| group.pmu == "nvidia_pcie_pmu_1_rc_3")
        .unwrap();
    assert_eq!(rc.place.socket, Some(1));
    assert_eq!(
        rc.place.to_string(),
        "nvidia_pcie_pmu_1_rc_3 src_rp_mask=0xff"
    );
    // The names of Grace's PMUs begin alike, but do not match.
    let grace = metric("nvidia-grace-pcie", "pcie_frequency")
        .groups(&pmus("vera"), &MetricSettings::default());
    assert!(matches!(grace, Err(Unavailable::NoPmu(_))));
}

#[test]
fn missing_pmus_peers_and_events_are_reported() {
    let scf = metric("nvidia-grace-scf", "scf_frequency");
    assert_eq!(
        scf.groups(&pmus("spr"), &MetricSettings::default())
            .unwrap_err()
            .to_string(),
        "there is no PMU nvidia_scf_pmu_*: its driver is not loaded, or the hardware does \
         not have it"
    );
    // A machine with one socket has no peer, and one with an older driver lacks events.
    let dir = Tree::new();
    dir.pmu(
        "nvidia_scf_pmu_0",
        &[
            ("type", "20"),
            ("cpumask", "0"),
            ("format/event", "config:0-32"),
            ("events/cycles", "event=0x100000000"),
        ],
    );
    let one_socket = crate::machine::Pmus::read(dir.path()).unwrap();
    scf.groups(&one_socket, &MetricSettings::default()).unwrap();
    let remote = metric("nvidia-grace-scf", "remote_read_latency");
    assert!(matches!(
        remote.groups(&one_socket, &MetricSettings::default()),
        Err(Unavailable::NoPeer(_))
    ));
    let read = metric("nvidia-grace-scf", "cmem_read_bandwidth");
    let error = read
        .groups(&one_socket, &MetricSettings::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("cmem_rd_data"), "{error}");
}

#[test]
fn events_have_the_counters_that_can_count_them() {
    let catalogue: &Catalogue = &CATALOGUE;
    let event = |pmu: &str, name: &str| {
        let families = catalogue.families();
        let spr = families
            .into_iter()
            .find(|family| family.name == "intel-spr")
            .unwrap();
        let pmu = spr.pmus.iter().find(|spec| spec.key == pmu).unwrap();
        pmu.events[name].counters.clone()
    };
    assert_eq!(event("cha", "UNC_CHA_TOR_OCCUPANCY.IO_ITOM"), Some(vec![0]));
    assert_eq!(
        event("iio", "UNC_IIO_DATA_REQ_OF_CPU.CMPD.PARTn"),
        Some(vec![0, 1])
    );
    assert_eq!(
        event("iio", "UNC_IIO_DATA_REQ_BY_CPU.MEM_READ.PARTn"),
        Some(vec![2, 3])
    );
    assert_eq!(event("cha", "UNC_CHA_TOR_INSERTS.IO_ITOM"), None);
}

/// So that, for example, the read bandwidth of one drive can be counted.
#[test]
fn a_chosen_device_restricts_the_pmus_that_count_it() {
    let texts = |family, name, machine, device: &[(&str, &[(&str, u64)])]| -> Vec<String> {
        let filter = |(pmu, filters): &(&str, &[(&str, u64)])| PmuFilter {
            pmu: (*pmu).to_owned(),
            filters: filters
                .iter()
                .map(|(term, value)| ((*term).to_owned(), *value))
                .collect(),
        };
        let settings = MetricSettings {
            device: device.iter().map(filter).collect(),
            ..MetricSettings::default()
        };
        let groups = metric(family, name)
            .groups(&pmus(machine), &settings)
            .unwrap();
        groups.iter().map(CounterGroup::text).collect()
    };
    assert_eq!(
        texts(
            "nvidia-grace-pcie",
            "pcie_frequency",
            "grace",
            &[("nvidia_pcie_pmu_1", &[("root_port", 0x100)])]
        ),
        ["{nvidia_pcie_pmu_1/cycles,root_port=0x100/}"]
    );
    let by_address: &[(&str, u64)] = &[("src_bdf", 0x4200), ("src_bdf_en", 1)];
    assert_eq!(
        texts(
            "tegra410-pcie",
            "pcie_rc_read_bandwidth",
            "vera",
            &[("nvidia_pcie_pmu_0_rc_4", by_address)]
        ),
        ["{nvidia_pcie_pmu_0_rc_4/rd_bytes,src_rp_mask=0x0,src_bdf=0x4200,src_bdf_en=0x1/}"]
    );
    assert_eq!(
        texts(
            "intel-spr",
            "io_inbound_write_requests",
            "spr",
            &[("uncore_iio_1", &[("ch_mask", 0x10)])]
        ),
        ["{uncore_iio_1/event=0x84,umask=0x01,ch_mask=0x10,fc_mask=0x7/}"]
    );
    // PMUs that do not count the device are not restricted.
    let scf = texts(
        "nvidia-grace-scf",
        "scf_frequency",
        "grace",
        &[("nvidia_pcie_pmu_1", &[("root_port", 1)])],
    );
    assert_eq!(scf.len(), 2);
}

/// A link to another CPU has no write events.
#[test]
fn a_link_to_a_cpu_counts_reads_only() {
    let dir = Tree::new();
    dir.pmu(
        "nvidia_nvlink_c2c_pmu_0",
        &[
            ("type", "20"),
            ("cpumask", "0"),
            ("peer", "nr_cpu=1"),
            ("format/event", "config:0-3"),
            ("events/cycles", "event=0x0"),
            ("events/in_rd_cum_outs", "event=0x1"),
            ("events/in_rd_req", "event=0x2"),
        ],
    );
    let pmus = crate::machine::Pmus::read(dir.path()).unwrap();
    let groups_of =
        |name: &str| metric("tegra410-nvlink-c2c", name).groups(&pmus, &MetricSettings::default());
    groups_of("nvlink_c2c_in_read_latency").unwrap();
    assert_eq!(
        groups_of("nvlink_c2c_in_write_latency")
            .unwrap_err()
            .to_string(),
        "the peer of nvidia_nvlink_c2c_pmu_0 is another CPU: the hardware counts only reads on \
         such a link"
    );
}

#[test]
fn a_pmu_without_a_name_is_known_by_the_product_in_its_identifier() {
    let dir = Tree::new();
    for (n, identifier) in [(0, "2cf20000"), (3, "2cf20000"), (5, "10301000")] {
        dir.pmu(
            &format!("nvidia_uncore_pmu_{n}"),
            &[
                ("type", "20"),
                ("cpumask", "0"),
                ("identifier", identifier),
                ("format/event", "config:0-32"),
            ],
        );
    }
    let pmus = crate::machine::Pmus::read(dir.path()).unwrap();
    let groups =
        metric("vera-unnamed", "slc_refill_bandwidth").groups(&pmus, &MetricSettings::default());
    let texts: Vec<_> = groups.unwrap().iter().map(CounterGroup::text).collect();
    assert_eq!(
        texts,
        [
            "{nvidia_uncore_pmu_0/event=0xf1/}",
            "{nvidia_uncore_pmu_3/event=0xf1/}"
        ]
    );
}
