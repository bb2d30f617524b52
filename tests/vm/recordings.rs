//! Recordings of sessions on the test PMUs, for tests/fixtures/recordings: with these, tests/replay
//! tests the pure stages without a kernel. `cargo xtask vm --record tests/fixtures/recordings`
//! writes them; other runs only check that they read back unchanged.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    sync::Arc,
    thread,
    time::Duration,
};

use base64::Engine as _;
use flate2::read::MultiGzDecoder;
use probe_user::{
    catalogue::{Catalogue, Chip, DeviceSpec, FoundBy, Hardware, MetricSettings},
    devices::{Complex, ComplexKind, Device, Devices, PciePmu, Port},
    event,
    join::{By, Hottest, View},
    names::{RuntimeNames, runtime_names},
    plan::{Capacity, Plan, ResolvedRequest},
    recording::{Recording, RecordingFile, RecordingHead},
    session::Config,
    snapshot::Snapshot,
};
use test_harness::{Counting, Load, TestCgroup, machine, online, this_machine};

use crate::{
    guest::value, hotplug::set_online, mem_support::spe_machine, regions, spe_support,
    testpmu::TestPmu,
};

/// A cgroup named as a container, in a pod's cgroup.
struct Container {
    // Dropped before its parents.
    cgroup: TestCgroup,
    _parents: [TestCgroup; 2],
}

impl Container {
    /// The ids of the container and its pod consist of `digit`.
    fn new(digit: char) -> Self {
        let root = TestCgroup::new("kubepods");
        let pod = root.child(&format!("pod{}", Self::pod_uid(digit)));
        Self {
            cgroup: pod.child(&Self::id(digit)),
            _parents: [pod, root],
        }
    }

    fn id(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    fn pod_uid(digit: char) -> String {
        let digits = |count: usize| digit.to_string().repeat(count);
        [8, 4, 4, 4, 12].map(digits).join("-")
    }
}

/// The plan of `stat -e EVENTS -M METRICS --chip CHIP`.
fn plan(chip: &str, events: &str, metrics: &str) -> Plan {
    let machine = this_machine();
    let pmus = machine.pmus().unwrap();
    let catalogue = Catalogue::builtin().unwrap();
    let hardware = Hardware::of_chip(Chip::named(chip).unwrap());
    let general = catalogue.metrics().filter(|metric| metric.family.fallback);
    let request = ResolvedRequest {
        events: &event::parse(events, pmus).unwrap(),
        metrics: &catalogue.select(metrics, &hardware).unwrap(),
        offered: &general.collect::<Vec<_>>(),
        machine: hardware,
        cpus: online().len(),
        settings: MetricSettings::default(),
    };
    let capacity = Capacity::of_this_machine(&catalogue, &hardware, pmus, online(), 1);
    Plan::packed(&request, pmus, &capacity).unwrap()
}

fn by(by: By) -> View {
    View {
        by,
        ..View::default()
    }
}

/// Records two windows: three snapshots, with the loads between them.
fn record_windows(
    name: &str,
    view: View,
    plan: &Plan,
    loads: [&[(&TestCgroup, &str)]; 2],
    change: impl FnOnce(&mut Config),
) -> Vec<Snapshot> {
    let mut counting = Counting::plain(plan.clone(), change);
    let mut all = vec![counting.session.pull().unwrap()];
    for loads in loads {
        run(&mut counting, loads);
        all.push(counting.session.pull().unwrap());
    }
    record(name, view, plan, &all);
    all
}

/// Runs loads to their end, and meanwhile rotates multiplexed groups.
fn run(counting: &mut Counting, loads: &[(&TestCgroup, &str)]) {
    let started = |(cgroup, words): &(&TestCgroup, &str)| cgroup.load(words);
    let mut loads: Vec<Load> = loads.iter().map(started).collect();
    loads.iter_mut().for_each(Load::go);
    while !loads.iter_mut().all(Load::has_ended) {
        thread::sleep(Duration::from_millis(10));
        if counting.session.rotates() {
            counting.session.rotate().unwrap();
        }
    }
}

/// Prints a recording if one is requested, and checks that it reads back unchanged.
#[track_caller]
fn record(name: &str, view: View, plan: &Plan, snapshots: &[Snapshot]) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    let head = RecordingHead {
        view,
        plan: plan.clone(),
        ..RecordingHead::default()
    };
    let (first, rest) = snapshots.split_first().unwrap();
    let mut file = RecordingFile::begin(&path, &head, first).unwrap();
    rest.iter().for_each(|it| file.add(it).unwrap());
    file.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    let read: Vec<Snapshot> = recording.map(Result::unwrap).collect();
    assert!(read == snapshots, "{name} reads back as something else");
    if !value("RECORD").is_empty() {
        // xtask reads these lines from the console (xtask/src/vm/report.rs).
        let lines = BufReader::new(MultiGzDecoder::new(File::open(path).unwrap())).lines();
        for line in lines.map(Result::unwrap) {
            println!("recording {name} {line}");
        }
    }
}

/// Shares of two sockets' memory by the cores' reads, with metrics of sockets and of cores.
#[test]
fn grace() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=grace,core");
    pmu.control("rate nvidia_scf_pmu_* 0x1a5 0 0 50000");
    let plan = plan(
        "grace-cpu-superchip",
        "task-clock,context-switches,nvidia_scf_pmu_0/cmem_rd_data/",
        "cmem_read_bandwidth,remote_read_bandwidth,cmem_write_bandwidth,cmem_read_latency,\
         pcie_read_bandwidth,ipc,ll_cache_read_miss_ratio",
    );
    let [a, b] = ['a', 'b'].map(Container::new);
    let first: &[_] = &[
        (&a.cgroup, "burst 0 3000 1000 120"),
        (&b.cgroup, "burn 1 60"),
        (&b.cgroup, "burst 0 1000 3000 120"),
    ];
    let second: &[_] = &[(&b.cgroup, "burn 0 40")];
    record_windows("grace", by(By::Container), &plan, [first, second], |_| {});
    // The demo uses the same ids, and two cgroups with one container's id would be shown as
    // cgroups.
    drop([a, b]);
    demo(&pmu);
}

/// The containers of an imaginary shop: a digit for its ids, its pod and its own name.
const SHOP: [(char, &str, &str); 5] = [
    ('a', "checkout-7d4b9c6f5-x2k4q", "api"),
    ('b', "search-58c9f7d6b4-9zv7h", "indexer"),
    ('c', "cart-0", "redis"),
    ('d', "recommend-6b7f8d9c4-bb2cd", "model"),
    ('e', "nightly-report-4x9vz", "etl"),
];

/// A node of a shop for `cargo xtask demo`: from the fifth of twelve windows on, the nightly report
/// takes the CPU of the checkout and most of the memory's bandwidth.
fn demo(pmu: &TestPmu) {
    let plan = plan(
        "grace-cpu-superchip",
        "task-clock",
        "cpus_used,cpu_wait_ratio,ipc,cmem_read_bandwidth,remote_read_bandwidth,\
         cmem_write_bandwidth,cmem_read_latency",
    );
    let containers = SHOP.map(|(digit, ..)| Container::new(digit));
    let [api, indexer, redis, model, report] = containers.each_ref().map(|it| &it.cgroup);
    let mut counting = Counting::plain(plan.clone(), |_| {});
    let mut all = vec![counting.session.pull().unwrap()];
    for window in 0..12 {
        let is_night = window >= 4;
        let rate = if is_night { 90_000 } else { 30_000 };
        pmu.control(&format!("rate nvidia_scf_pmu_* 0x1a5 0 0 {rate}"));
        let mut loads: Vec<(&TestCgroup, &str)> = vec![
            (api, "burst 0 600 900 200"),
            (indexer, "burst 1 2000 3000 200"),
            (redis, "burst 0 200 1800 200"),
            (model, "burst 1 900 2100 200"),
        ];
        if is_night {
            loads.push((report, "burn 0 200"));
        }
        run(&mut counting, &loads);
        all.push(counting.session.pull().unwrap());
    }
    let mut names = RuntimeNames::default();
    for (digit, pod, container) in SHOP {
        let [id, uid] = [Container::id(digit), Container::pod_uid(digit)].map(Arc::<str>::from);
        let described = runtime_names::Pod {
            namespace: "shop".to_owned(),
            name: pod.to_owned(),
            ..runtime_names::Pod::default()
        };
        names.pods.insert(Arc::clone(&uid), Arc::new(described));
        let described = runtime_names::Container {
            name: container.to_owned(),
            pod: Some(uid),
            runtime: "containerd".into(),
            ..runtime_names::Container::default()
        };
        names.containers.insert(id, Arc::new(described));
    }
    let names = Arc::new(names);
    for snapshot in &mut all {
        Arc::make_mut(&mut snapshot.names).described = Arc::clone(&names);
    }
    drop(counting);
    record("demo", by(By::Container), &plan, &all);
}

/// Every uncore PMU of Vera, without a core PMU: metrics without events have a reason.
#[test]
fn vera() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=tegra410");
    let plan = plan(
        "tegra410",
        "task-clock,page-faults",
        "group:memory,pcie_rc_read_bandwidth,pcie_rc_read_latency,cpus_used",
    );
    let a = TestCgroup::new("a");
    let loads: [&[_]; 2] = [&[(&a, "burn 0 50")], &[(&a, "touch 100")]];
    record_windows("vera", by(By::Cgroup), &plan, loads, |_| {});
}

/// Memory and IIO stacks of two sockets, with an unused disk on one of them.
#[test]
fn sapphire_rapids() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=intel,core core=intel iio=1 cha=2 imc=2");
    let mut plan = plan(
        "sapphire-rapids",
        "task-clock,{cycles,instructions}",
        "group:memory,io_inbound_read_bandwidth,io_inbound_write_bandwidth,\
         io_percent_of_inbound_reads_that_miss_l3,io_read_tor_latency,ipc,memory_stall_share",
    );
    let port = |number: u32, name: &str, class, blocks| Port {
        address: format!("0000:16:0{}.0", number + 1).parse().unwrap(),
        numbers: vec![number],
        devices: vec![Device {
            address: format!("0000:1{}:00.0", number + 7).parse().unwrap(),
            vendor: 0x8086,
            device: 0x0a54,
            class,
            names: vec![name.to_owned()],
            blocks,
        }],
    };
    plan.devices = Arc::new(Devices {
        complexes: vec![Complex {
            socket: Some(0),
            kind: ComplexKind::Stack(0),
            pmus: vec![PciePmu {
                name: "uncore_iio_0".to_owned(),
                spec: DeviceSpec {
                    by: FoundBy::DieFiles,
                    ports: Some("ch_mask".to_owned()),
                    requester: None,
                    stack: None,
                },
            }],
            ports: vec![
                port(0, "nvme0", 0x01_08_02, vec!["259:0".to_owned()]),
                port(1, "eth0", 0x02_00_00, Vec::new()),
            ],
        }],
        ..Devices::default()
    });
    let [a, b] = ['a', 'b'].map(Container::new);
    let first: &[_] = &[(&a.cgroup, "burn 0 60"), (&b.cgroup, "burst 1 900 300 60")];
    let second: &[_] = &[(&a.cgroup, "burst 1 500 500 60")];
    record_windows(
        "sapphire-rapids",
        by(By::Pod),
        &plan,
        [first, second],
        |_| {},
    );
}

/// Multiplexed groups of the core PMU, by process. Some processes run for one interval only.
#[test]
fn turns() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=core core=intel");
    let plan = plan(
        "sapphire-rapids",
        "task-clock,cache-references,cache-misses,branches,branch-misses",
        "ipc,memory_stall_share,dispatch_stall_share,l2_miss_latency_cycles,branch_miss_ratio",
    );
    assert!(plan.rotated >= 2, "{} multiplexed groups", plan.rotated);
    let [a, b] = ["a", "b"].map(TestCgroup::new);
    let first: &[_] = &[
        (&a, "burn 0 150"),
        (&b, "burst 1 900 300 150"),
        (&b, "forks 3 5"),
    ];
    let second: &[_] = &[(&a, "burst 0 5000 15000 150")];
    let by_process = |config: &mut Config| config.by_process = true.into();
    record_windows("turns", by(By::Process), &plan, [first, second], by_process);
}

/// Two containers that share a CPU, and a third one with short waits. No PMU.
#[test]
fn waits() {
    let Some(_machine) = machine() else { return };
    let metrics = "cpus_used,cpu_wait_ratio,page_faults_per_second";
    let plan = plan("grace-cpu-superchip", "cpu-wait,cpu-waits", metrics);
    let [a, b, c] = ['a', 'b', 'c'].map(Container::new);
    let cgroups = [&a, &b, &c].map(|container| &container.cgroup);
    let first: &[_] = &[
        (cgroups[0], "burn 0 300"),
        (cgroups[1], "burn 0 300"),
        (cgroups[2], "bursts 1 200 800 500"),
    ];
    let second: &[_] = &[
        (cgroups[0], "burn 0 200"),
        (cgroups[2], "bursts 0 200 800 500"),
    ];
    record_windows("waits", by(By::Container), &plan, [first, second], |_| {});
}

/// Samples of loads and stores by two containers, with their pages.
#[test]
fn spe() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=grace,spe");
    pmu.control("spe clear");
    pmu.control("spe op 0 5 load 0x00 0x0 4 3 2 1 0x0016");
    pmu.control("spe op 0 3 load 0x00 0x8 12 8 2 1 0x001e");
    pmu.control("spe op 0 2 load 0x00 0xe 300 200 2 40 0x003e");
    pmu.control("spe op 0 1 load 0x00 0xd 500 200 2 1 0x001e");
    pmu.control("spe op 0 1 load 0x00 0x77 50 0 2 1 0x001e");
    pmu.control("spe op 0 2 store 0x01 - 6 6 2 1 0x0016");
    let plan = plan(
        "grace-cpu-superchip",
        "task-clock",
        "cmem_read_bandwidth,spe_load_rate,spe_load_latency,spe_store_latency,\
         spe_load_dram_ratio,spe_load_l1_ratio,spe_load_tlb_walk_ratio",
    );
    let [a, b] = ['a', 'b'].map(Container::new);
    let first: &[_] = &[(&a.cgroup, "burn 0 60"), (&b.cgroup, "burst 1 900 300 60")];
    let second: &[_] = &[(&b.cgroup, "burn 0 20")];
    let view = View {
        accesses: Some(Hottest { pages: 4, lines: 4 }),
        ..by(By::Container)
    };
    let all = record_windows("spe", view, &plan, [first, second], |config| {
        config.spe = spe_support::config().spe;
        if let Some(spe) = &mut config.spe {
            spe.pages = 1024;
        }
    });
    let samples = all.last().and_then(|last| last.samples.as_ref()).unwrap();
    let spe = samples.spe.as_ref().unwrap();
    assert!(spe.health.sum.records > 100, "{:?}", spe.health);
}

/// The only CPU of socket 1 goes offline in the first window, and online in the second.
#[test]
fn hotplug() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=grace,core");
    let plan = plan(
        "grace-cpu-superchip",
        "task-clock,cycles",
        "cmem_read_bandwidth,remote_read_bandwidth,scf_frequency,ipc",
    );
    let a = TestCgroup::new("a");
    let mut counting = Counting::plain(plan.clone(), |_| {});
    let mut all = vec![counting.session.pull().unwrap()];
    run(&mut counting, &[(&a, "burn 0 30"), (&a, "burn 1 30")]);
    for is_online in [false, true] {
        set_online(1, is_online);
        counting.session.drain().unwrap();
        run(&mut counting, &[(&a, "burn 0 30")]);
        all.push(counting.session.pull().unwrap());
    }
    run(&mut counting, &[(&a, "burn 1 30")]);
    all.push(counting.session.pull().unwrap());
    drop(counting);
    record("hotplug", by(By::Cgroup), &plan, &all);
}

/// Samples of a program with tags and phases, for the picture in docs/reference/regions.md.
#[test]
fn stream() {
    let Some(_machine) = spe_machine() else {
        return;
    };
    let bytes = regions::recorded_stream();
    if !value("RECORD").is_empty() {
        for piece in bytes.chunks(3 << 10) {
            let text = base64::engine::general_purpose::STANDARD.encode(piece);
            println!("recording stream {}", serde_json::json!({"base64": text}));
        }
    }
}
