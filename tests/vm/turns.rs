//! Turns of counter groups beside the kernel's own multiplexing of the same groups.

use std::{path::Path, thread, time::Duration};

use probe_user::{
    derive::Report,
    event::{self, Pmus},
    join::{By, Entity, View},
    load::Plan,
};

use crate::{
    accounting::watched,
    guest::{clock_slack, skip},
    support::{Counting, machine},
    testpmu::{TestPmu, core, event},
};

/// The largest error of twelve events in two groups of which the PMU can count one.
fn largest_error(pmu: &TestPmu, rotated: usize) -> f64 {
    let (name, _) = core();
    let group = |from: u64| {
        let events = (from..from + 6).map(|n| {
            let code = event(n);
            pmu.control(&format!(
                "rate {name} {code:#x} 0 0 {}",
                (n + 1) * 1_000_000
            ));
            format!("{name}/config={code:#x},name=e{n}/")
        });
        format!("{{{}}}", events.collect::<Vec<_>>().join(","))
    };
    let pmus = Pmus::read(Path::new("/sys")).unwrap();
    let events = event::parse(&format!("{},{}", group(0), group(6)), &pmus).unwrap();
    let mut plan = Plan::new(&events).unwrap();
    plan.rotated = rotated;
    let a = watched(pmu, "a");
    let mut counting = Counting::with_plan(plan.clone(), |_| {});
    let mut load = a.load("burn 0 4000");
    load.go();
    for _ in 0..80 {
        thread::sleep(Duration::from_millis(50));
        if counting.session.rotates() {
            counting.session.rotate().unwrap();
        }
    }
    load.finish();
    let window = counting.window();
    let view = View {
        by: By::Cgroup,
        ..View::default()
    };
    let joined = view.join(&window, plan.groups.len());
    let report = Report::new(&plan, &window, &joined, window.start);
    let label = Entity::Cgroup(a.path.clone());
    let row = report.rows.iter().find(|row| row.label == label).unwrap();
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a test")]
    let ran = pmu.core_time(a.id) as f64;
    let errors = row.values.iter().zip(1_u8..).map(|(value, rate)| {
        let value = value.expect("every group had a turn");
        println!("e{}: live {:.1}%", rate - 1, value.running * 100.0);
        (value.scaled / (f64::from(rate) * ran) - 1.0).abs()
    });
    errors.fold(0.0, f64::max)
}

/// The same groups, by turns of 50 ms and as the kernel multiplexes them.
#[test]
fn turns_are_as_exact_as_the_kernels_multiplexing() {
    let Some(_machine) = machine() else { return };
    if Path::new("/sys/bus/event_source/devices/armv8_pmuv3").exists() {
        return skip("with QEMU's own PMU beside it there are two core PMUs");
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
    // The PMU counts at one rate, so the only error of either is that of the kernel's times.
    assert!(turns < clock_slack(), "{turns}");
}
