//! Known numbers of instructions per container, on the real (emulated) `PMUv3` under `-icount`.

use crate::{
    counter::pmu_type,
    guest::{skip, value},
    support::{Counting, TestCgroup, machine},
};

/// Instructions of a round of `load count`.
const PER_ROUND: u64 = 2;

/// The start of the program, its end, and the interrupts that fall into its time: established by
/// the runs of one round below, which differ by less.
const NOISE: u64 = 60_000;

/// `inst_retired` and `cpu_cycles` of a container that runs `load count ROUNDS`.
fn measure(pmu: &str, rounds: u64) -> (u64, u64) {
    let cgroup = TestCgroup::new("count");
    let mut counting = Counting::start(&format!(
        "{{{pmu}/inst_retired,name=inst/,{pmu}/cpu_cycles,name=cycles/}}"
    ));
    cgroup.load(&format!("count {rounds}")).finish();
    let window = counting.window();
    let count = |event| counting.count(&window, event, cgroup.id).unwrap();
    (count("inst"), count("cycles"))
}

#[test]
fn containers_have_the_instructions_that_they_executed() {
    let Some(_machine) = machine() else { return };
    if value("ICOUNT").is_empty() {
        return skip("this guest runs without -icount");
    }
    let pmu = ["armv8_pmuv3", "armv8_pmuv3_0"]
        .into_iter()
        .find(|pmu| pmu_type(pmu).is_some())
        .unwrap();
    let starts: Vec<(u64, u64)> = (0..3).map(|_| measure(pmu, 1)).collect();
    let (start, start_cycles) = starts[0];
    for (inst, cycles) in &starts {
        println!("start: {inst} instructions, {cycles} cycles");
        assert!(inst.abs_diff(start) < NOISE && cycles.abs_diff(start_cycles) < NOISE * 2);
    }
    for rounds in [1_000_000, 5_000_000] {
        let (inst, cycles) = measure(pmu, rounds);
        let expected = start + (rounds - 1) * PER_ROUND;
        println!("{rounds} rounds: {inst} instructions, expected {expected}, {cycles} cycles");
        assert!(inst.abs_diff(expected) < NOISE, "{inst} is not {expected}");
        // An instruction takes 2^shift ns of guest time, and a cycle is a nanosecond.
        let shift: u32 = value("ICOUNT").parse().unwrap();
        let expected = start_cycles + (((rounds - 1) * PER_ROUND) << shift);
        assert!(
            cycles.abs_diff(expected) < NOISE << shift,
            "{cycles} cycles are not {expected}"
        );
    }
}
