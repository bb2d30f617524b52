//! `pmuscope stat -M all`: the printed values of sockets and devices.

use std::{thread, time::Duration};

use probe_user::{
    catalogue::Chip,
    derive::{Report, Subject},
    formula::Implicit,
    join::View,
};
use test_harness::{Counting, machine};

use crate::{
    cli::run,
    guest::clock_slack,
    metrics_uncore::{ROUNDING, enlarge_rates, plan},
    testpmu::TestPmu,
};

/// The PMUs count at the same rates in both runs.
#[test]
fn stat_prints_what_the_library_computes() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=grace");
    let plan = plan(Chip::named("grace-hopper-multi").unwrap());
    let mut counting = Counting::with_plan(plan.clone(), |_| {});
    enlarge_rates(&pmu);
    counting.first = counting.session.pull().unwrap();
    thread::sleep(Duration::from_secs(2));
    let window = counting.window();
    drop(counting);
    let view = View::default();
    let joined = view.join(&plan, &window, None);
    let report = Report::new(&plan, &window, &joined, &view);
    let what = "stat -M all --chip grace-hopper-multi --format json";
    let (printed, messages) = run(&format!("{what} --output-fd 1 -- sleep 2"));
    let mut compared = 0;
    for group in report.groups() {
        let (Subject::Place(place, _), [series]) = (group.subject, group.series) else {
            continue;
        };
        let (Some(value), name) = (series.estimate(), &report.metric(series).name) else {
            continue;
        };
        let same = |line: &&serde_json::Value| {
            line["metric"] == *name.as_str()
                && line["socket"] == place.socket.unwrap()
                && line["name"] == *place.to_string()
        };
        let places = printed["places"].as_array().unwrap();
        let line = places.iter().find(same);
        let line = line.unwrap_or_else(|| panic!("no {name} at {place} in {printed}{messages}"));
        let printed = line["value"].as_f64().unwrap();
        let mut list = plan.metrics.list.iter();
        let metric = list.find(|planned| planned.metric.name == *name).unwrap();
        let mut implicits = metric.metric.formula.implicits().iter();
        let limit = if ["scf_duration", "scf_cycles"].contains(&name.as_str()) {
            // These depend on the group's time on the PMU, which differs between the two plans.
            f64::INFINITY
        } else if implicits.any(|implicit| *implicit == Implicit::DurationTime) {
            // The printed and the computed rate depend on the kernel's clock.
            2.0 * clock_slack()
        } else {
            10.0 * ROUNDING
        };
        let error = (printed / value.value - 1.0).abs();
        assert!(error < limit, "{line} and not {}", value.value);
        compared += 1;
    }
    assert!(compared >= 90, "{compared} values on two sockets");
}
