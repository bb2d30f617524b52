//! Uncore counters on two sockets: every metric, CPUs and PMUs that come and go.

use std::{collections::BTreeMap, fs, thread::sleep, time::Duration};

use probe_user::{
    catalogue::{Catalogue, CounterGroup, Counts, Machine, Metric, Per, Place, Platform, Settings},
    event::Pmus,
    formula::{Implicit, NoValue, Value},
    window::Window,
};

use crate::{
    guest::{skip, value},
    support::{Counting, machine},
    testpmu::TestPmu,
};

/// Count, by index of the event and socket.
fn counts(window: &Window) -> Vec<(usize, u32, Option<u64>)> {
    let readings = window.uncore.iter();
    readings
        .map(|reading| (reading.at, reading.socket, reading.count))
        .collect()
}

fn set_online(cpu: u32, online: bool) {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(file, if online { "1" } else { "0" }).unwrap();
}

/// Each CPU of the guest is a socket, by name for NVIDIA's PMUs and by CPU for Intel's.
#[test]
fn counts_are_those_of_their_socket() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=grace,intel rates=0");
    let mut counting = Counting::start(
        "nvidia_scf_pmu_0/cmem_rd_data/,nvidia_scf_pmu_1/cmem_rd_data/,uncore_cha_2/event=0x35,umask=0xc8f3ff04/",
    );
    pmu.control("add nvidia_scf_pmu_0 0x1a5 0 0 11");
    pmu.control("add nvidia_scf_pmu_1 0x1a5 0 0 22");
    pmu.control("add uncore_cha_2 0xc8f3ff00000435 0 0 33 0");
    pmu.control("add uncore_cha_2 0xc8f3ff00000435 0 0 44 1");
    assert_eq!(
        counts(&counting.window()),
        [
            (0, 0, Some(11)),
            (1, 1, Some(22)),
            (2, 0, Some(33)),
            (2, 1, Some(44))
        ]
    );
}

/// The values of metrics at their places, from one session in which all groups take turns.
fn values(
    metrics: &[&Metric],
    on: &Machine,
    pmus: &Pmus,
) -> Vec<Vec<(Place, Result<Value, NoValue>)>> {
    let groups: Vec<_> = metrics
        .iter()
        .map(|metric| metric.groups(pmus, &Settings::default()).unwrap())
        .collect();
    let events: Vec<String> = groups.iter().flatten().map(CounterGroup::text).collect();
    let mut counting = Counting::start(&events.join(","));
    sleep(Duration::from_secs(1));
    let window = counting.window();
    let mut at = 0;
    let mut all = Vec::new();
    for (metric, groups) in metrics.iter().zip(groups) {
        let mut places: BTreeMap<Place, (Counts, f64)> = BTreeMap::new();
        for group in groups {
            for (n, (name, _)) in group.events.iter().enumerate() {
                for reading in window.uncore.iter().filter(|reading| reading.at == at + n) {
                    let count = reading.count.expect("it can be read");
                    let place = Place {
                        socket: Some(reading.socket),
                        ..group.place.clone()
                    };
                    let counts = places.entry(place);
                    let counts = counts.or_insert_with(|| (Counts::of_uncore(), 0.0));
                    counts.0.add(name, count, reading.enabled, reading.running);
                    counts.1 += if n == 0 { 1.0 } else { 0.0 };
                }
            }
            at += group.events.len();
        }
        let value = |(place, (mut counts, units)): (Place, (Counts, f64))| {
            counts.set(Implicit::NumUnits, units);
            if let Some(ports) = place.ports() {
                counts.set(Implicit::NumPorts, ports.into());
            }
            let value = metric.evaluate(on, &counts);
            (place, value)
        };
        all.push(places.into_iter().map(value).collect());
    }
    all
}

/// Every documented uncore metric of a platform, on both sockets.
fn every_metric(set: &str, platform: Platform, least: usize) {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load(&format!("set={set}"));
    let pmus = Pmus::read("/sys".as_ref()).unwrap();
    let catalogue = Catalogue::builtin().unwrap();
    let on = Machine::of_platform(platform);
    let metrics: Vec<&Metric> = catalogue
        .metrics()
        .filter(|metric| metric.family.platforms.contains(&platform))
        .filter(|metric| metric.pmu.per != Per::Cpu && metric.pmu.product.is_none())
        .filter(|metric| metric.requires.is_none())
        .collect();
    for of_family in metrics.chunk_by(|a, b| a.pmu.key == b.pmu.key) {
        for (metric, values) in of_family.iter().zip(values(of_family, &on, &pmus)) {
            let mut sockets = [false; 2];
            for (place, value) in values {
                match value {
                    Ok(value) => assert!(value.value > 0.0, "{} {place}: {value:?}", metric.name),
                    // The rates of the test PMU are not those of a memory system.
                    Err(NoValue::AboveBound { .. }) => {}
                    Err(reason) => panic!("{} {place}: {reason}", metric.name),
                }
                sockets[place.socket.expect("it was read on one") as usize] = true;
            }
            assert_eq!(sockets, [true; 2], "{}", metric.name);
        }
    }
    println!("{} metrics", metrics.len());
    assert!(metrics.len() >= least, "{} metrics", metrics.len());
}

#[test]
fn every_metric_of_grace_has_a_value_on_both_sockets() {
    every_metric("grace", Platform::Grace, 40);
}

#[test]
fn every_metric_of_tegra410_has_a_value_on_both_sockets() {
    every_metric("tegra410", Platform::Vera, 30);
}

#[test]
fn every_metric_of_intel_has_a_value_on_both_sockets() {
    every_metric("intel cha=2 iio=1 imc=2", Platform::Spr, 20);
}

/// The only CPU of socket 1 leaves and comes back: that socket has no count meanwhile, the other counts on,
/// and nothing that was counted is lost.
#[test]
fn a_socket_that_goes_offline_comes_back() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=grace,intel rates=0");
    let mut counting = Counting::start(
        "nvidia_scf_pmu_0/cmem_rd_data/,nvidia_scf_pmu_1/cmem_rd_data/,uncore_imc_0/event=0x05,umask=0xcf/",
    );
    let add = |n: u64| {
        pmu.control(&format!("add nvidia_scf_pmu_* 0x1a5 0 0 {n}"));
        pmu.control(&format!("add uncore_imc_0 0xcf05 0 0 {n}"));
    };
    let all = |count: u64| {
        let count = Some(count);
        vec![(0, 0, count), (1, 1, count), (2, 0, count), (2, 1, count)]
    };
    add(5);
    assert_eq!(counts(&counting.window()), all(5));
    set_online(1, false);
    counting.session.drain().unwrap();
    pmu.control("add nvidia_scf_pmu_0 0x1a5 0 0 70");
    assert_eq!(
        counts(&counting.window()),
        [
            (0, 0, Some(75)),
            (1, 1, None),
            (2, 0, Some(5)),
            (2, 1, None)
        ]
    );
    set_online(1, true);
    counting.session.drain().unwrap();
    counting.window();
    pmu.control("add nvidia_scf_pmu_1 0x1a5 0 0 600");
    pmu.control("add uncore_imc_0 0xcf05 0 0 600 1");
    assert_eq!(
        counts(&counting.window()),
        [
            (0, 0, Some(75)),
            (1, 1, Some(605)),
            (2, 0, Some(5)),
            (2, 1, Some(605))
        ]
    );
}

/// A PMU of both CPUs moves to the other one when its own leaves.
#[test]
fn a_cpumask_that_moves_is_followed() {
    let Some(_machine) = machine() else { return };
    if value("ARCH") != "arm64" {
        return skip("CPU 0 holds the events, and x86 kernels do not take it offline");
    }
    let pmu = TestPmu::load("set=grace rates=0 sockets=1");
    let mut counting =
        Counting::start("{nvidia_scf_pmu_0/cmem_rd_data/,nvidia_scf_pmu_0/gmem_rd_data/}");
    let add = || {
        pmu.control("add nvidia_scf_pmu_0 0x1a5 0 0 1000");
        pmu.control("add nvidia_scf_pmu_0 0x16d 0 0 1");
    };
    let mut sum = 0;
    for round in 0..4 {
        add();
        let cpumask = fs::read_to_string("/sys/bus/event_source/devices/nvidia_scf_pmu_0/cpumask");
        sum += 1;
        let counted: Vec<_> = counting
            .window()
            .uncore
            .iter()
            .map(|reading| reading.count)
            .collect();
        println!(
            "round {round}, cpumask {:?}: {counted:?}",
            cpumask.unwrap().trim()
        );
        assert_eq!(counted, [Some(1000 * sum), Some(sum)]);
        let leaves = round % 2;
        set_online(leaves, false);
        counting.session.drain().unwrap();
        counting.window();
        set_online(leaves, true);
        counting.session.drain().unwrap();
    }
}

#[test]
fn a_pmu_that_vanishes_ends_its_series_and_no_other() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=grace rates=0");
    let mut counting = Counting::start(
        "{nvidia_scf_pmu_0/cmem_rd_data/,nvidia_scf_pmu_0/cycles/},nvidia_scf_pmu_1/cmem_rd_data/,nvidia_pcie_pmu_0/rd_bytes_loc/",
    );
    pmu.control("add nvidia_scf_pmu_* 0x1a5 0 0 3");
    assert_eq!(counts(&counting.window())[0], (0, 0, Some(3)));
    pmu.control("vanish nvidia_scf_pmu_0");
    pmu.control("add nvidia_scf_pmu_1 0x1a5 0 0 4");
    // One pull sees its last counts, one that it stands still, one that it is gone.
    let mut after = Vec::new();
    for _ in 0..3 {
        sleep(Duration::from_millis(5));
        after = counts(&counting.window());
    }
    assert_eq!(
        after,
        [(0, 0, None), (1, 0, None), (2, 1, Some(7)), (3, 0, Some(0))]
    );
    pmu.control("add nvidia_scf_pmu_1 0x1a5 0 0 10");
    sleep(Duration::from_millis(5));
    assert_eq!(counts(&counting.window())[2], (2, 1, Some(17)));
}
