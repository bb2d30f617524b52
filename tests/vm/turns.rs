//! More events than the PMU has counters: the kernel's multiplexing, and turns of counter groups beside it.
//! The PMU counts at one rate, so the only error of what is scaled is that of the kernel's times.

use std::{path::Path, thread, time::Duration};

use probe_user::{
    derive::Value,
    event::{self, Pmus},
    load::Plan,
};

use crate::{
    accounting::{run, watched},
    guest::{clock_runs_alone, clock_slack, skip},
    report::row,
    support::{Counting, TestCgroup, machine},
    testpmu::{TestPmu, core, event},
};

/// Events of the core PMU by number; each counts one more per nanosecond than its number says.
fn events(pmu: &TestPmu, numbers: std::ops::Range<u64>) -> String {
    let (name, _) = core();
    let events = numbers.map(|n| {
        let code = event(n);
        let rate = (n + 1) * 1_000_000;
        pmu.control(&format!("rate {name} {code:#x} 0 0 {rate}"));
        format!("{name}/config={code:#x},name=e{n}/")
    });
    events.collect::<Vec<_>>().join(",")
}

/// The values of a cgroup, and how far the scaled counts are from what the PMU counted, at most.
fn scaled(pmu: &TestPmu, counting: &mut Counting, cgroup: &TestCgroup) -> (Vec<Value>, f64) {
    let window = counting.window();
    let values = row(counting, &window, cgroup).values;
    let values: Vec<Value> = values
        .into_iter()
        .map(|value| value.expect("it ran"))
        .collect();
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a test")]
    let ran = pmu.core_time(cgroup.id) as f64;
    let errors = values.iter().zip(1_u8..).map(|(value, rate)| {
        let error = value.scaled / (f64::from(rate) * ran) - 1.0;
        println!(
            "e{}: live {:.1}%, error {:+.3}%",
            rate - 1,
            value.running * 100.0,
            error * 100.0
        );
        error.abs()
    });
    let largest = errors.fold(0.0, f64::max);
    (values, largest)
}

/// Nine events on six counters: the kernel rotates them, and what is scaled is near the truth.
#[test]
fn more_events_than_counters_are_scaled() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=core");
    // The time that a group is on the PMU runs on while the CPU idles.
    pmu.control("idle 1");
    let a = watched(&pmu, "a");
    let mut counting = Counting::start(&events(&pmu, 0..9));
    run(&[(&a, "burn 0 3000")]);
    let (values, largest) = scaled(&pmu, &mut counting, &a);
    let rotated = values.iter().filter(|value| value.running < 0.95).count();
    assert!(rotated >= 3, "only {rotated} events were rotated");
    assert!(largest < clock_slack(), "{largest}");
}

/// The largest error of twelve events in two groups of which the PMU can count one.
fn largest_error(pmu: &TestPmu, rotated: usize) -> f64 {
    let pmus = Pmus::read(Path::new("/sys")).unwrap();
    let groups = format!("{{{}}},{{{}}}", events(pmu, 0..6), events(pmu, 6..12));
    let mut plan = Plan::new(&event::parse(&groups, &pmus).unwrap()).unwrap();
    plan.rotated = rotated;
    let a = watched(pmu, "a");
    let mut counting = Counting::with_plan(plan, |_| {});
    let mut load = a.load("burn 0 4000");
    load.go();
    for _ in 0..80 {
        thread::sleep(Duration::from_millis(50));
        if counting.session.rotates() {
            counting.session.rotate().unwrap();
        }
    }
    load.finish();
    scaled(pmu, &mut counting, &a).1
}

/// The same groups, by turns of 50 ms and as the kernel multiplexes them.
#[test]
fn turns_are_as_exact_as_the_kernels_multiplexing() {
    let Some(_machine) = machine() else { return };
    if Path::new("/sys/bus/event_source/devices/armv8_pmuv3").exists() {
        return skip("with QEMU's own PMU beside it there are two core PMUs");
    }
    if clock_runs_alone() {
        return skip("the host may run something else while the clock runs on");
    }
    let pmu = TestPmu::load("set=core");
    pmu.control("idle 1");
    let kernel = largest_error(&pmu, 0);
    let turns = largest_error(&pmu, 2);
    println!(
        "largest error: multiplexed {:.3}%, in turns {:.3}%",
        kernel * 100.0,
        turns * 100.0
    );
    assert!(turns < clock_slack(), "{turns}");
}
