//! Known numbers of instructions per container, on the real (emulated) `PMUv3` under `-icount`.

use std::fs::File;

use probe_user::{
    catalogue::{Catalogue, Hardware},
    event::sampling::sampled,
    session::SamplingConfig,
    sys::spin::spin,
    window::{Owner, SampleKind, SampleWindow},
};
use test_harness::{Counting, TestCgroup, machine, online_cpus, this_machine};

use crate::{
    counter::{Counter, Levels, Target, pmu_type},
    guest::value,
    plans::metric_plan,
    report::row,
};

/// Instructions in one round of `load count`.
const PER_ROUND: u64 = 2;

/// `INST_RETIRED` and `CPU_CYCLES` (ARM DDI 0487, D13.12).
const INST_RETIRED: u64 = 0x08;
const CPU_CYCLES: u64 = 0x11;

/// Instructions by which pmuscope and perf's counters of a cgroup may differ: at a switch perf
/// reads its counters after the hook, and counts the hook's own instructions. Measured: 1,143 to
/// 1,343 in eight slices.
const NOISE: u64 = 5_000;

/// Counts of a container that runs `load count ROUNDS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    /// `inst_retired`, kernel included.
    instructions: u64,
    /// `cpu_cycles`, kernel included.
    cycles: u64,
    /// `inst_retired:u`
    user: u64,
    /// Instructions and cycles as perf counts them for the cgroup.
    by_perf: [u64; 2],
}

fn measure(pmu: &str, rounds: u64) -> Counted {
    let cgroup = TestCgroup::new("count");
    let mut counting = Counting::start(&format!(
        "{{{pmu}/inst_retired,name=inst/,{pmu}/cpu_cycles,name=cycles/,{pmu}/inst_retired,name=user/u}}"
    ));
    // Always 7 digits, since the program executes some instructions for each.
    let load = cgroup.load(&format!("count {rounds:07}"));
    let directory = File::open(&cgroup.directory).unwrap();
    let mut perf = [INST_RETIRED, CPU_CYCLES].map(|event| {
        let on = |cpu: u32| {
            let target = Target::Cgroup(&directory, cpu.cast_signed());
            let counter = Counter::open_at(Levels::All, pmu_type(pmu).unwrap(), event, &target);
            let counter = counter.expect("a counter of the cgroup");
            counter.enable();
            counter
        };
        online_cpus().into_iter().map(on).collect::<Vec<_>>()
    });
    load.finish();
    let by_perf = perf
        .each_mut()
        .map(|on| on.iter_mut().map(Counter::read).sum());
    let window = counting.window();
    let count = |event| counting.count(&window, event, cgroup.id).unwrap();
    Counted {
        instructions: count("inst"),
        cycles: count("cycles"),
        user: count("user"),
        by_perf,
    }
}

/// With `-icount` counts of instructions are exact: the same loop has the same count, and more
/// rounds add exactly their instructions.
#[test]
fn the_instructions_of_a_loop_are_exact() {
    let pmu = pmu_type("armv8_pmuv3").or_else(|| pmu_type("armv8_pmuv3_0"));
    let pmu = pmu.expect("arm64 guests have a core PMU");
    let mut counter = Counter::open(pmu, INST_RETIRED, &Target::This).expect("a counter");
    // The first run touches the pages of the code between the two ioctls.
    counter.count(|| spin(1));
    let first = counter.count(|| spin(1_000_000));
    let second = counter.count(|| spin(1_000_000));
    let double = counter.count(|| spin(2_000_000));
    println!("{first}, {second} and for twice the work {double} instructions");
    assert_eq!(first, second);
    assert_eq!(double - first, 2 * 1_000_000);
}

#[test]
fn containers_have_the_instructions_that_they_executed() {
    let Some(_machine) = machine() else { return };
    // An instruction takes 2^shift ns of guest time, and a cycle is a nanosecond.
    let shift: u32 = value("ICOUNT").parse().unwrap();
    let pmu = ["armv8_pmuv3", "armv8_pmuv3_0"]
        .into_iter()
        .find(|pmu| pmu_type(pmu).is_some())
        .unwrap();
    let start = measure(pmu, 1);
    println!("start: {start:?}");
    for rounds in [1, 1_000_000, 5_000_000] {
        let executed = (rounds - 1) * PER_ROUND;
        let runs = [measure(pmu, rounds), measure(pmu, rounds)];
        println!("{rounds} rounds: {runs:?}");
        for run in runs {
            // The program's own instructions are reproducible, and exact.
            assert_eq!(run.user, start.user + executed);
            // The kernel's part, including interrupts, differs from run to run.
            let [instructions, cycles] = run.by_perf;
            assert!(instructions >= executed);
            assert!(run.instructions.abs_diff(instructions) < NOISE);
            assert!(run.cycles.abs_diff(cycles) < NOISE << shift);
        }
    }
}

/// An instruction takes 2^shift ns of guest time and a cycle takes 1 ns, so IPC is 2^-shift.
#[test]
fn ipc_is_the_known_ipc_of_the_guest() {
    let Some(_machine) = machine() else { return };
    let shift: i32 = value("ICOUNT").parse().unwrap();
    let catalogue = Catalogue::builtin().unwrap();
    let machine = Hardware::detect(&this_machine());
    let plan = metric_plan(machine, &catalogue.select("ipc", &machine).unwrap());
    assert_eq!((plan.groups.len(), plan.rotated), (1, 0));
    let cgroup = TestCgroup::new("ipc");
    let mut counting = Counting::with_plan(plan, |_| {});
    cgroup.load("count 20000000").finish();
    let window = counting.window();
    let row = row(&counting, &window, &cgroup);
    let ipc = row.metrics[0].as_ref().unwrap();
    let expected = 0.5_f64.powi(shift);
    println!("ipc {} where {expected} is the machine's", ipc.value);
    assert!((ipc.value / expected - 1.0).abs() < 0.01, "{}", ipc.value);
}

/// The PMU's own overflows: a container has a sample for each period of its instructions.
///
/// The load makes a system call each 2,000 instructions: QEMU's timer for an overflow fires one
/// instruction early, and the overflow is only seen at the next exception.
#[test]
fn a_container_has_a_sample_for_each_period() {
    const PERIOD: u64 = 100_000;
    const CALLS: u64 = 20_000;
    const ROUNDS: u64 = 1000;
    let Some(_machine) = machine() else { return };
    let pmu = ["armv8_pmuv3", "armv8_pmuv3_0"]
        .into_iter()
        .find(|pmu| pmu_type(pmu).is_some())
        .unwrap();
    let events = format!("{pmu}/inst_retired,period={PERIOD}/u");
    let this = this_machine();
    let sampling = SamplingConfig {
        events: sampled(&events, this.pmus().unwrap(), None).unwrap(),
        ..SamplingConfig::default()
    };
    let cgroup = TestCgroup::new("samples");
    let counted = format!("{pmu}/inst_retired,name=user/u");
    let mut counting = Counting::with(&counted, |config| config.sampling = Some(sampling));
    let before = counting.session.pull().unwrap();
    cgroup.load(&format!("count {ROUNDS} {CALLS}")).finish();
    let now = counting.session.pull().unwrap();
    let window = SampleWindow::between(&before, &now).unwrap();
    let (cgroup, tgid) = (cgroup.id, 0);
    let counts = window.usage[&Owner { cgroup, tgid }][&SampleKind::event(0, None)];
    let whole = counting.window();
    let executed = counting.count(&whole, "user", cgroup).unwrap();
    let event = &window.events[0].health;
    println!(
        "{} samples of {executed} instructions, {event:?}",
        counts.samples
    );
    assert!(executed >= CALLS * ROUNDS * PER_ROUND);
    // The first period began with another task.
    assert!(
        counts.samples.abs_diff(executed / PERIOD) <= 2,
        "{}",
        counts.samples
    );
    // The first period began with another task, and the last one did not end.
    assert!(
        (counts.operations - executed as f64).abs() <= 2.0 * PERIOD as f64,
        "{}",
        counts.operations
    );
    // Other tasks make fewer system calls, so some of their overflows are missed.
    assert!(
        event.missed <= (event.counted - executed) / PERIOD + 1,
        "{event:?}"
    );
    assert_eq!(event.sum.reported, PERIOD * event.sum.samples);
}
