//! Uncore counters on a fake sysfs whose PMUs are the kernel's software clock. They count
//! nanoseconds on any CPU, so time alone shows which counters moved, continued or stopped.

use std::{thread::sleep, time::Duration};

use test_support::Tree;

use super::*;
use crate::{
    event::{self},
    machine::{Pmus, Roots},
};

const EVENTS: &str =
    "{nvidia_scf_pmu_0/clock/,nvidia_scf_pmu_0/clock,name=twice/},uncore_imc_0/clock/";

struct UncoreFixture {
    root: Tree,
}

impl UncoreFixture {
    /// Two PMUs on CPU 0; both CPUs are on socket 0.
    fn new() -> Self {
        let machine = Self { root: Tree::new() };
        for pmu in ["nvidia_scf_pmu_0", "uncore_imc_0"] {
            let files = [
                ("type", "1\n"),
                ("cpumask", "0\n"),
                ("format/event", "config:0-7\n"),
                ("events/clock", "event=0x00\n"),
            ];
            machine.root.pmu(pmu, &files);
        }
        machine.root.write("devices/system/cpu/online", "0-1\n");
        for cpu in ["0", "1"] {
            let file = format!("devices/system/cpu/cpu{cpu}/topology/physical_package_id");
            machine.root.write(&file, "0\n");
        }
        machine
    }

    fn cpumask(&self, pmu: &str, cpus: &str) {
        self.root.pmu(pmu, &[("cpumask", cpus)]);
    }

    fn open(&self) -> (Plan, Result<Uncore, SessionError>) {
        let machine = self.machine();
        let pmus = machine.pmus().unwrap();
        let plan = Plan::new(&event::parse(EVENTS, pmus).unwrap()).unwrap();
        let uncore = Uncore::open(&plan, &machine);
        (plan, uncore)
    }

    fn machine(&self) -> Arc<Machine> {
        Arc::new(Machine::at(Roots {
            sys: self.root.path().to_owned(),
            ..Roots::default()
        }))
    }
}

fn read(uncore: &mut Uncore, plan: &Plan) -> Vec<Option<u64>> {
    sleep(Duration::from_millis(3));
    let readings = uncore.read(plan);
    readings.iter().map(|reading| reading.count).collect()
}

/// Whether every count has grown.
fn have_grown(before: &[Option<u64>], now: &[Option<u64>]) -> bool {
    before.len() == now.len() && before.iter().zip(now).all(|(before, now)| before < now)
}

#[test]
fn only_events_in_braces_share_a_group() {
    let machine = UncoreFixture::new();
    let (plan, uncore) = machine.open();
    assert_eq!(plan.uncore_groups, [0..2, 2..3]);
    let mut uncore = uncore.unwrap();
    let before = read(&mut uncore, &plan);
    assert!(before.iter().all(|count| *count > Some(0)), "{before:?}");
    assert!(have_grown(&before, &read(&mut uncore, &plan)));
    // Events that are read one after the other have different enabled times.
    let times = |reading: &UncoreReading| (reading.enabled, reading.running);
    let readings = uncore.read(&plan);
    assert_eq!(times(&readings[0]), times(&readings[1]));
    assert_ne!(times(&readings[0]), times(&readings[2]));
}

#[test]
fn counts_continue_when_the_cpumask_moves() {
    let machine = UncoreFixture::new();
    let (plan, uncore) = machine.open();
    let mut uncore = uncore.unwrap();
    let before = read(&mut uncore, &plan);
    // The new CPU is on another socket. The counter stays on its socket: the hardware is the same.
    machine.root.write(
        "devices/system/cpu/cpu1/topology/physical_package_id",
        "1\n",
    );
    machine.cpumask("nvidia_scf_pmu_0", "1\n");
    uncore.rescan = true;
    let after = read(&mut uncore, &plan);
    assert!(have_grown(&before, &after), "{before:?} {after:?}");
    assert!(have_grown(&after, &read(&mut uncore, &plan)));
    let cpus = |uncore: &Uncore| -> Vec<u32> {
        let units = uncore.groups.iter().flat_map(|group| group.units.values());
        units.map(|unit| unit.cpu).collect()
    };
    assert_eq!(cpus(&uncore), [1, 0]);
}

#[test]
fn a_pmu_that_vanishes_ends_only_its_own_series() {
    let machine = UncoreFixture::new();
    let (plan, uncore) = machine.open();
    let mut uncore = uncore.unwrap();
    let before = read(&mut uncore, &plan);
    let dir = "bus/event_source/devices/nvidia_scf_pmu_0";
    fs::remove_dir_all(machine.root.join(dir)).unwrap();
    uncore.rescan = true;
    let after = read(&mut uncore, &plan);
    assert_eq!(after[..2], [None, None]);
    assert!(before[2] < after[2]);
    assert!(after[2] < read(&mut uncore, &plan)[2]);
}

/// A driver is unbound and bound again, and its PMU may get another number.
#[test]
fn counts_continue_when_a_pmu_comes_back() {
    let machine = UncoreFixture::new();
    let (plan, uncore) = machine.open();
    let mut uncore = uncore.unwrap();
    let before = read(&mut uncore, &plan);
    let dir = machine
        .root
        .join("bus/event_source/devices/nvidia_scf_pmu_0");
    let elsewhere = machine.root.join("unbound");
    fs::rename(&dir, &elsewhere).unwrap();
    uncore.rescan = true;
    assert_eq!(read(&mut uncore, &plan)[..2], [None, None]);
    fs::rename(&elsewhere, &dir).unwrap();
    // Events are opened with the new number, which no PMU has.
    machine
        .root
        .pmu("nvidia_scf_pmu_0", &[("type", "4294967295\n")]);
    assert_eq!(read(&mut uncore, &plan)[..2], [None, None]);
    // Refused events are retried.
    machine.root.pmu("nvidia_scf_pmu_0", &[("type", "1\n")]);
    let back = read(&mut uncore, &plan);
    assert!(before[..2] <= back[..2], "{before:?} {back:?}");
    let after = read(&mut uncore, &plan);
    assert!(have_grown(&back, &after), "{back:?} {after:?}");
}

#[test]
fn a_stalled_event_is_reopened_without_a_hotplug_message() {
    let machine = UncoreFixture::new();
    let (plan, uncore) = machine.open();
    let mut uncore = uncore.unwrap();
    let before = read(&mut uncore, &plan);
    // A CPU that went offline and came back leaves a dead event with a readable descriptor.
    for unit in uncore.groups[1].units.values_mut() {
        perf::disable(unit.counters[0].event.as_ref().unwrap().as_fd()).unwrap();
        unit.read().unwrap();
    }
    let stalled = read(&mut uncore, &plan);
    assert!(uncore.rescan, "{before:?} {stalled:?}");
    let after = read(&mut uncore, &plan);
    assert!(
        !uncore.rescan && stalled[2] < after[2],
        "{stalled:?} {after:?}"
    );
}

#[test]
fn each_cpu_of_a_cpumask_is_an_instance_on_its_socket() {
    let machine = UncoreFixture::new();
    machine.cpumask("uncore_imc_0", "0-1\n");
    let (plan, uncore) = machine.open();
    let instances = |uncore: &mut Uncore| -> Vec<(usize, u32, u16)> {
        let readings = uncore.read(&plan);
        readings
            .iter()
            .map(|reading| (reading.at, reading.socket, reading.instance))
            .collect()
    };
    assert_eq!(instances(&mut uncore.unwrap())[2..], [(2, 0, 0), (2, 0, 1)]);
    machine.root.write(
        "devices/system/cpu/cpu1/topology/physical_package_id",
        "1\n",
    );
    let (_, uncore) = machine.open();
    assert_eq!(instances(&mut uncore.unwrap())[2..], [(2, 0, 0), (2, 1, 0)]);
}

#[test]
fn the_pmus_name_gives_the_socket_if_the_topology_does_not() {
    let machine = UncoreFixture::new();
    let (_, uncore) = machine.open();
    let mut uncore = uncore.unwrap();
    assert_eq!(uncore.socket("nvidia_scf_pmu_1", 0), 0, "the CPU's own");
    uncore.topology = Arc::default();
    assert_eq!(uncore.socket("nvidia_scf_pmu_1", 0), 1);
    assert_eq!(uncore.socket("nvidia_pcie_pmu_3_rc_7", 0), 3);
    assert_eq!(uncore.socket("nvidia_uncore_pmu_5", 0), 0);
    assert_eq!(uncore.socket("uncore_cha_5", 0), 0);
}

#[test]
fn a_cpumask_with_an_offline_cpu_is_refused_with_advice() {
    let machine = UncoreFixture::new();
    machine.cpumask("uncore_imc_0", "4095\n");
    let error = machine.open().1.err().unwrap().to_string();
    assert_eq!(
        error,
        "cannot count uncore_imc_0/clock/: the cpumask of uncore_imc_0 names CPU 4095, which is \
         offline; bring it online (`echo 1 > /sys/devices/system/cpu/cpu4095/online`)"
    );
}

/// Counters whose counts are not apportioned have no skew.
#[test]
fn the_skew_is_the_larger_increase_before_or_after_the_reading() {
    let machine = UncoreFixture::new();
    let (plan, uncore) = machine.open();
    let mut uncore = uncore.unwrap();
    uncore.apportioned = [0].into();
    let pause = || sleep(Duration::from_millis(3));
    let before = uncore.peek();
    assert_eq!(before.len(), 1);
    pause();
    let mut readings = uncore.read(&plan);
    pause();
    pause();
    let after = uncore.peek();
    uncore.bound_skew(&mut readings, &before, &after);
    let count = readings[0].count.unwrap();
    let (first, last) = (before[&(0, 0, 0)], after[&(0, 0, 0)]);
    // The clock counts nanoseconds, and ran for two pauses after the reading.
    assert_eq!(readings[0].skew, (count - first).max(last - count));
    assert!(readings[0].skew >= 6_000_000, "{readings:?}");
    assert!(readings[1..].iter().all(|reading| reading.skew == 0));
    // A counter that was reopened in between has an unknown skew, at most its count.
    uncore.bound_skew(&mut readings, &skew::Peek::new(), &after);
    assert_eq!(Some(readings[0].skew), readings[0].count);
}

#[test]
fn refusals_of_the_kernel_are_explained() {
    let machine = UncoreFixture::new();
    let (plan, _) = machine.open();
    let message = |error| {
        let error = std::io::Error::from_raw_os_error(error);
        counters::refused(&plan, &plan.uncore[2], 0, &error).to_string()
    };
    let denied = message(libc::EACCES);
    assert!(
        denied.starts_with(
            "cannot count uncore_imc_0/clock/ on CPU 0: permission denied: CAP_PERFMON is needed"
        ),
        "{denied}"
    );
    assert_eq!(denied, message(libc::EPERM));
    assert!(message(libc::EINVAL).contains("fewer events between the braces"));
    // Other errors have the C library's text.
    let word = std::io::Error::from_raw_os_error(libc::EIO);
    assert_eq!(
        message(libc::EIO),
        format!("cannot count uncore_imc_0/clock/ on CPU 0: {word}")
    );
}

#[test]
fn the_error_of_an_empty_cpumask_names_the_cpus_to_bring_online() {
    let machine = UncoreFixture::new();
    machine.cpumask("nvidia_scf_pmu_0", "\n");
    let dir = "bus/event_source/devices/nvidia_scf_pmu_0";
    machine
        .root
        .write(&format!("{dir}/associated_cpus"), "72-143\n");
    let pmus = Pmus::read(machine.root.path()).unwrap();
    let error = event::parse("nvidia_scf_pmu_0/clock/", &pmus).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the cpumask of `nvidia_scf_pmu_0` is empty, so there is no CPU to open \
         `nvidia_scf_pmu_0/clock/` on; bring one of the CPUs 72-143 online"
    );
}
