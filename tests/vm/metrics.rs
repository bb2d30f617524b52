//! Every documented metric of the cores, compared with a PMU of known rates.
//!
//! Each event counts a whole number per nanosecond on a CPU. The test PMU's clock stands still
//! during one `sched_switch` tracepoint, so all counters are read at the same instant. So the
//! counts of a group must be exactly its rates times one number of nanoseconds, however long the
//! group was running, and every metric must be exactly its formula of these counts. A rate also
//! depends on the kernel's times; their error is checked separately.

mod known;
mod topdown;

use std::{path::Path, thread, time::Duration};

use probe_user::{
    catalogue::{Chip, Metric},
    derive::{Report, Subject},
    formula::Implicit,
    join::{By, Entity, View},
    plan::Plan,
    window::{GroupCounts, Usage, Window},
};
use test_harness::{Counting, Load, TestCgroup, machine};

use self::known::{Planned, plan};
use crate::{
    accounting::{quiescent_window, watched},
    guest::{clock_slack, clock_slack_of_one_cpu, skip, value},
    hotplug::Cpu1Offline,
    testpmu::TestPmu,
};

/// Relative errors of the kernel's times, and of rates that depend on them, against the PMU's time.
#[derive(Default)]
struct ClockErrors {
    /// Of the time on the PMU, by group.
    running: Vec<f64>,
    /// Of the enabled time.
    enabled: f64,
    /// Largest error of rates of PMU events.
    rate: f64,
}

/// The report of a window by cgroup.
fn by_cgroup(plan: &Plan, window: &Window) -> Report {
    let view = View {
        by: By::Cgroup,
        ..View::default()
    };
    let joined = view.join(plan, window, None);
    Report::new(plan, window, &joined, &view)
}

/// Compares every metric of a cgroup that ran for `ran` ns by the PMU's clock.
#[track_caller]
fn compare(
    planned: &Planned,
    report: &Report,
    usage: &Usage,
    label: &str,
    ran: u64,
) -> ClockErrors {
    let entity = Entity::Cgroup(label.into());
    let subject = Subject::Entity(entity);
    let mut errors = ClockErrors::default();
    let (mut running, mut estimated) = (Vec::new(), Vec::new());
    let rows: Vec<&GroupCounts> = usage.iter().map(|row| row.as_ref().unwrap()).collect();
    for (group, row) in rows.iter().enumerate() {
        let time = planned.time_on_pmu(group, row);
        estimated.push(planned.estimated(group, row));
        errors.running.push(relative(row.running, time));
        errors.enabled = relative(row.enabled, ran);
        running.push(time);
    }
    let sum: u64 = running.iter().sum();
    println!("{label}: ran {ran} ns, {sum} of them with a group running: {running:?}");
    assert!(sum <= ran, "no time is counted twice");
    for metric in &planned.plan.metrics.list {
        let head = &metric.metric;
        let series = report.find_series(&subject, &head.name).next().unwrap();
        let value = series.value.as_ref();
        let value = value
            .unwrap_or_else(|reason| panic!("{} of {label}: {reason}", head.name))
            .estimate()
            .unwrap();
        // The value from the PMU's rates and the estimates for the enabled time.
        let length = report.length();
        #[expect(clippy::cast_precision_loss, reason = "rates of a test")]
        let rate = |group, at| planned.rate(group, at) as f64;
        let counter_time = |group: usize| rows[group].enabled;
        let exact = planned.expected(metric, length, counter_time, |group, at| {
            rate(group, at) * estimated[group]
        });
        let error = value.value / exact - 1.0;
        assert!(error.abs() < 1e-12, "{}: {error:e}", head.name);
        // The value from the PMU's rates and its own time.
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a test")]
        let true_value = planned.expected(
            metric,
            length,
            |_| ran,
            |group, at| rate(group, at) * ran as f64,
        );
        let error = (value.value / true_value - 1.0).abs();
        println!(
            "{label} {}: measured {}, true {true_value} ({:.0}% running)",
            head.name,
            value.value,
            value.running_ratio * 100.0
        );
        if uses_time(&metric.metric) {
            errors.rate = errors.rate.max(error);
        } else {
            assert!(error < 1e-12, "{}: {error:e}", head.name);
        }
    }
    errors
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a test")]
fn relative(measured: u64, true_value: u64) -> f64 {
    measured as f64 / true_value as f64 - 1.0
}

/// Whether the formula of a metric uses a time.
fn uses_time(metric: &Metric) -> bool {
    let time = [
        Implicit::DurationTime,
        Implicit::Seconds,
        Implicit::CounterTime,
    ];
    let mut implicits = metric.formula.implicits().iter();
    implicits.any(|implicit| time.contains(implicit))
}

#[test]
fn every_core_metric_by_rotation() {
    assert_exact_by_rotation(own_chip(), "set=core", Cpus::Two);
}

#[test]
fn every_core_metric_by_rotation_on_one_cpu() {
    assert_exact_by_rotation(own_chip(), "set=core", Cpus::One);
}

#[test]
fn every_core_metric_of_sandy_bridge_by_rotation() {
    if value("ARCH") == "arm64" {
        return skip("the test PMU looks like an Arm core here");
    }
    assert_exact_by_rotation(Chip::named("sandy-bridge").unwrap(), "set=core", Cpus::One);
}

#[test]
fn every_core_metric_of_zen_5_by_rotation() {
    if value("ARCH") == "arm64" {
        return skip("an AMD core does not count here");
    }
    let chip = Chip::named("epyc-zen5").unwrap();
    assert_exact_by_rotation(chip, "set=core core=amd", Cpus::One);
}

fn own_chip() -> Chip {
    if value("ARCH") == "arm64" {
        Chip::named("neoverse-v2").unwrap()
    } else {
        Chip::named("sapphire-rapids").unwrap()
    }
}

/// Number of online CPUs of the guest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cpus {
    One,
    Two,
}

/// A load that wakes for 20 us at a time. CPU time starts at the switch, but the counters are read
/// tens of microseconds later. So a correct rate must divide by the counters' enabled time, not by
/// the CPU time. Tested with and without rotation.
#[test]
fn frequency_is_accurate_for_short_slices() {
    let Some(_machine) = machine() else { return };
    if Path::new("/sys/bus/event_source/devices/armv8_pmuv3").exists() {
        return skip("with QEMU's own PMU beside it there are two core PMUs");
    }
    let pmu = TestPmu::load("set=core");
    let _cpu1_offline = Cpu1Offline::new();
    let planned = plan(&pmu, own_chip());
    let all = planned.plan.groups.len();
    for rotated in [0, all] {
        let mut plan = match rotated {
            0 => planned.single_metric_plan("frequency"),
            _ => planned.plan.clone(),
        };
        plan.rotated = rotated;
        let cgroup = watched(&pmu, &format!("wakes-{rotated}"));
        let mut counting = Counting::with_plan(plan.clone(), |_| {});
        let mut load = cgroup.load("burst 0 20 180 6000");
        load.go();
        for _ in 0..120 {
            thread::sleep(Duration::from_millis(50));
            if counting.session.rotates() {
                counting.session.rotate().unwrap();
            }
        }
        load.finish();
        let (window, _) = quiescent_window(&pmu, &mut counting, &[&cgroup]);
        let report = by_cgroup(&plan, &window);
        let entity = Entity::Cgroup(cgroup.path.as_str().into());
        let subject = Subject::Entity(entity);
        let series = report.find_series(&subject, "frequency").next().unwrap();
        let value = series.estimate().unwrap().value;
        let true_value = planned.first_event_rate("frequency");
        println!("{rotated} groups by rotation: measured {value}, true {true_value} counts per ns");
        // Measured: -0.7% on arm64 and -0.8% on amd64, about 0.15 us of each slice.
        assert!((value / true_value - 1.0).abs() < clock_slack());
    }
}

/// Rotates the groups of all core metrics under load, and compares each metric. `core` are the
/// parameters of the test PMU.
fn assert_exact_by_rotation(chip: Chip, core: &str, cpus: Cpus) {
    let Some(_machine) = machine() else { return };
    if Path::new("/sys/bus/event_source/devices/armv8_pmuv3").exists() {
        return skip("with QEMU's own PMU beside it there are two core PMUs");
    }
    let pmu = TestPmu::load(core);
    let _cpu1_offline = (cpus == Cpus::One).then(Cpu1Offline::new);
    let planned = plan(&pmu, chip);
    let groups = planned.plan.groups.len();
    assert_eq!(planned.plan.rotated, groups, "all groups are rotated");
    assert!(groups >= 2);
    for metric in &planned.plan.metrics.list {
        assert!(
            metric.sources.is_ok(),
            "{}: {:?}",
            metric.metric.name,
            metric.sources
        );
    }
    let [a, b] = ["a", "b"].map(|name| watched(&pmu, name));
    let mut counting = Counting::with_plan(planned.plan.clone(), |_| {});
    let before = [pmu.core_time(a.id), pmu.core_time(b.id)];
    let commands: &[(&TestCgroup, &str)] = match cpus {
        Cpus::One => &[(&a, "burn 0 6000"), (&b, "burst 0 700 900 6000")],
        Cpus::Two => &[
            (&a, "burn 0 6000"),
            (&b, "burst 1 3000 500 6000"),
            (&b, "burst 0 700 900 6000"),
        ],
    };
    let mut loads: Vec<Load> = (commands.iter())
        .map(|(cgroup, words)| cgroup.load(words))
        .collect();
    loads.iter_mut().for_each(Load::go);
    for _ in 0..120 {
        thread::sleep(Duration::from_millis(50));
        counting.session.rotate().unwrap();
    }
    loads.into_iter().for_each(|load| drop(load.finish()));
    let (window, after) = quiescent_window(&pmu, &mut counting, &[&a, &b]);
    let view = View {
        by: By::Cgroup,
        ..View::default()
    };
    let joined = view.join(&planned.plan, &window, None);
    let report = Report::new(&planned.plan, &window, &joined, &view);
    for ((cgroup, before), after) in [&a, &b].into_iter().zip(before).zip(after) {
        let usage = &joined
            .of(&Entity::Cgroup(cgroup.path.as_str().into()))
            .unwrap()
            .delta;
        let errors = compare(&planned, &report, usage, &cgroup.path, after - before);
        let mut running = errors.running.clone();
        running.sort_by(f64::total_cmp);
        let middle = running[groups / 2];
        let percent = |part: f64| format!("{:.3}%", part * 100.0);
        println!(
            "{}: {groups} groups; time on the PMU off by {} to {}, in the middle {}; enabled time \
             off by {}; largest error of a rate {}",
            cgroup.path,
            percent(running[0]),
            percent(running[groups - 1]),
            percent(middle),
            percent(errors.enabled),
            percent(errors.rate),
        );
        // All else is exact; only the kernel's times differ from the PMU's.
        match cpus {
            Cpus::One => {
                let largest_running = running[0].abs().max(running[groups - 1].abs());
                let worst = [largest_running, errors.enabled.abs(), errors.rate]
                    .into_iter()
                    .fold(0.0, f64::max);
                assert!(worst < clock_slack_of_one_cpu(), "{worst}");
            }
            // Of the running times only the median is checked: a group runs for about 340 ms, so an
            // error of one slice of the other CPU is more than 1%.
            Cpus::Two => {
                assert!(errors.enabled.abs() < clock_slack(), "{}", errors.enabled);
                assert!(middle.abs() < clock_slack(), "{middle}");
            }
        }
    }
    println!("{} exchanges", window.health.exchanges);
    assert!(window.health.exchanges > 100);
    assert_eq!(
        (window.health.sum.rebased, window.health.sum.read_errors),
        (0, 0)
    );
}
