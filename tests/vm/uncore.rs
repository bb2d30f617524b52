//! Uncore counters on two sockets, while CPUs go offline and online and PMUs vanish.

use std::{
    fs,
    io::{Read as _, Seek as _},
    sync::Arc,
    thread::sleep,
    time::Duration,
};

use probe_user::window::Window;
use test_harness::{Counting, limit_files, machine, pmuscope};

use crate::{
    guest::{skip, value},
    testpmu::TestPmu,
};

/// Index of the event, socket and count of each reading.
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

/// Each CPU of the guest is a socket. NVIDIA's PMUs have the socket's number in their name; Intel's
/// are opened on the socket's CPU.
#[test]
fn each_socket_has_its_own_counts() {
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

/// Uncore events also need descriptors, for which the soft limit is raised.
#[test]
fn the_soft_limit_of_open_files_is_raised_for_uncore_events() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=grace,intel rates=0");
    // All events are different: an event that is requested twice is opened once.
    let events = (1..=120)
        .map(|ports| format!("nvidia_pcie_pmu_0/rd_bytes_loc,root_port={ports}/"))
        .collect::<Vec<_>>()
        .join(",");
    let mut command = pmuscope();
    command.args(["stat", "-e", &events, "--format", "csv"]);
    command.args(["--output-fd", "1", "--", "true"]);
    limit_files(&mut command, 64, 4096);
    let output = command.output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        printed.contains("nvidia_pcie_pmu_0/rd_bytes_loc,root_port=120/"),
        "{printed}"
    );

    limit_files(&mut command, 64, 128);
    let output = command.output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("for uncore events"), "{log}");
    assert!(
        log.contains("the hard limit of this process is 128: raise it"),
        "{log}"
    );
}

/// The only CPU of socket 1 goes offline and online. Meanwhile socket 1 has no count, socket 0
/// still counts, and no earlier count is lost.
#[test]
fn a_socket_counts_again_after_it_was_offline() {
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

/// A PMU of both CPUs moves to the other CPU when its reader CPU goes offline.
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
        "{nvidia_scf_pmu_0/cmem_rd_data/,nvidia_scf_pmu_0/cycles/},nvidia_scf_pmu_1/cmem_rd_data/,\
         nvidia_pcie_pmu_0/rd_bytes_loc/,nvidia_scf_pmu_0/cmem_rd_access/",
    );
    let log = Arc::new(tempfile::tempfile().unwrap());
    let subscriber = tracing_subscriber::fmt().with_writer(Arc::clone(&log));
    let _logging = tracing::subscriber::set_default(subscriber.finish());
    pmu.control("add nvidia_scf_pmu_* 0x1a5 0 0 3");
    assert_eq!(counts(&counting.window())[0], (0, 0, Some(3)));
    pmu.control("vanish nvidia_scf_pmu_0");
    pmu.control("add nvidia_scf_pmu_1 0x1a5 0 0 4");
    // One pull reads the PMU's last counts, one finds the PMU stopped, and one finds it gone.
    let mut after = Vec::new();
    for _ in 0..3 {
        sleep(Duration::from_millis(5));
        after = counts(&counting.window());
    }
    assert_eq!(
        after,
        [
            (0, 0, None),
            (1, 0, None),
            (2, 1, Some(7)),
            (3, 0, Some(0)),
            (4, 0, None),
        ]
    );
    pmu.control("add nvidia_scf_pmu_1 0x1a5 0 0 10");
    sleep(Duration::from_millis(5));
    assert_eq!(counts(&counting.window())[2], (2, 1, Some(17)));
    let mut logged = String::new();
    (&*log).rewind().unwrap();
    (&*log).read_to_string(&mut logged).unwrap();
    assert_eq!(
        logged.matches("nvidia_scf_pmu_0 is gone").count(),
        1,
        "{logged}"
    );
}
