//! More events than the PMU has counters: multiplexing by the kernel, and rotation of counter
//! groups by pmuscope. If the PMU counts at one rate, scaled counts only have the error of the
//! kernel's times. If it counts faster on one CPU than on the other, adding up before scaling would
//! be an error too.

use std::{path::Path, thread, time::Duration};

use probe_user::{
    catalogue::{Catalogue, Chip, Hardware, MetricSettings},
    derive::{CounterValue, Subject},
    event::{self, Scope},
    join::Entity,
    machine::Pmus,
    plan::{Capacity, Plan, ResolvedRequest},
};
use test_harness::{Counting, TestCgroup, machine};

use crate::{
    accounting::{run, watched},
    cli::{command, run_with_load},
    guest::{clock_follows_host, clock_slack, clock_slack_of_one_cpu, skip, value},
    hotplug::Cpu1Offline,
    report::{Row, report, row, rows},
    signals::{kill, stop},
    testpmu::{TestPmu, core, event},
};

/// Events of the core PMU by number. Event n counts n + 1 per nanosecond.
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

/// The values of a cgroup, and the largest relative error of scaled counts.
fn scaled(pmu: &TestPmu, counting: &mut Counting, cgroup: &TestCgroup) -> (Vec<CounterValue>, f64) {
    let window = counting.window();
    let values = row(counting, &window, cgroup).values;
    let values: Vec<CounterValue> = values
        .into_iter()
        .map(|value| value.expect("it ran"))
        .collect();
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a test")]
    let ran = pmu.core_time(cgroup.id) as f64;
    let errors = values.iter().zip(1_u8..).map(|(value, rate)| {
        let error = value.estimate.value / (f64::from(rate) * ran) - 1.0;
        println!(
            "e{}: running {:.1}%, error {:+.3}%",
            rate - 1,
            value.estimate.running_ratio * 100.0,
            error * 100.0
        );
        error.abs()
    });
    let largest = errors.fold(0.0, f64::max);
    (values, largest)
}

/// The kernel rotates nine events on six counters, and scaled counts are near the true counts.
#[test]
fn more_events_than_counters_are_scaled() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=core");
    // The PMU also counts while the CPU is idle, as the time of a group does.
    pmu.control("idle 1");
    let a = watched(&pmu, "a");
    let mut counting = Counting::start(&events(&pmu, 0..9));
    run(&[(&a, "burn 0 3000")]);
    let (values, largest) = scaled(&pmu, &mut counting, &a);
    let rotated = values
        .iter()
        .filter(|value| value.estimate.running_ratio < 0.95)
        .count();
    assert!(rotated >= 3, "only {rotated} events were rotated");
    assert!(largest < clock_slack(), "{largest}");
}

/// The largest error of twelve events in two groups, on a PMU that can count one group.
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

/// The same groups, rotated by pmuscope every 50 ms and multiplexed by the kernel.
#[test]
fn rotation_is_as_exact_as_multiplexing_by_the_kernel() {
    let Some(_machine) = machine() else { return };
    if Path::new("/sys/bus/event_source/devices/armv8_pmuv3").exists() {
        return skip("with QEMU's own PMU beside it there are two core PMUs");
    }
    if clock_follows_host() {
        return skip("the host may run something else while the clock runs on");
    }
    let pmu = TestPmu::load("set=core");
    pmu.control("idle 1");
    let kernel = largest_error(&pmu, 0);
    let rotated = largest_error(&pmu, 2);
    println!(
        "largest error: {:.3}% by the kernel, {:.3}% by rotation",
        kernel * 100.0,
        rotated * 100.0
    );
    assert!(rotated < clock_slack(), "{rotated}");
}

/// How many times faster events count on CPU 0 than on CPU 1.
const FAST: u64 = 10;

/// As [`events`], but [`FAST`] times faster on CPU 0.
fn uneven_events(pmu: &TestPmu, numbers: std::ops::Range<u64>) -> String {
    let text = events(pmu, numbers.clone());
    let (name, _) = core();
    for n in numbers {
        let (code, rate) = (event(n), (n + 1) * 1_000_000);
        pmu.control(&format!("rate {name} {code:#x} 0 0 {} 0", rate * FAST));
    }
    text
}

/// The true count of a cgroup for an uneven event that counts 1 per ns on CPU 1.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a test")]
fn uneven_count(pmu: &TestPmu, cgroup: &TestCgroup) -> f64 {
    let times = pmu.core_times(cgroup.id);
    let counts = times
        .iter()
        .map(|(cpu, ns)| if *cpu == 0 { ns * FAST } else { *ns });
    counts.sum::<u64>() as f64
}

/// Asserts that the row of a cgroup is within `limit` and within its stated error of the true
/// count, and that the total is the sum of the rows.
#[track_caller]
fn assert_uneven_counts(pmu: &TestPmu, counting: &mut Counting, cgroup: &TestCgroup, limit: f64) {
    let window = counting.window();
    let report = report(counting, &window);
    let (row, total) = (row(counting, &window, cgroup), Row::total(&report));
    let true_count = uneven_count(pmu, cgroup);
    for (at, rate) in (0..row.values.len()).zip(1_u8..) {
        let value = row.values[at].clone().unwrap().estimate;
        let error = value.value / (f64::from(rate) * true_count) - 1.0;
        let stated = value.counting_error().unwrap_or_default();
        println!(
            "e{at}: running {:.1}%, error {:+.3}%, stated {:.1}%",
            value.running_ratio * 100.0,
            error * 100.0,
            stated * 100.0
        );
        assert!(
            error.abs() < limit && error.abs() < 1.96 * stated,
            "{error}"
        );
        let total = total.values[at].clone().unwrap().estimate;
        // A row that ran for too short a time has no value, but its counts are in the total.
        let (known, unknown): (Vec<_>, Vec<_>) = rows(&report)
            .map(|(_, row)| row.values[at].clone())
            .partition(Result::is_ok);
        let sum: f64 = known
            .iter()
            .flatten()
            .map(|count| count.estimate.value)
            .sum();
        let least = if unknown.is_empty() { 1.0 - 1e-9 } else { 0.0 };
        let part = sum / total.value;
        assert!((least..=1.0 + 1e-9).contains(&part), "{total:?}, {sum}");
    }
}

/// Each group runs for a quarter of the time on one CPU, and for three quarters on the other.
#[test]
fn rotated_counts_are_scaled_on_each_cpu() {
    let Some(_machine) = machine() else { return };
    if Path::new("/sys/bus/event_source/devices/armv8_pmuv3").exists() {
        return skip("with QEMU's own PMU beside it there are two core PMUs");
    }
    let pmu = TestPmu::load("set=core");
    pmu.control("idle 1");
    let pmus = Pmus::read(Path::new("/sys")).unwrap();
    let groups = format!(
        "{{{}}},{{{}}}",
        uneven_events(&pmu, 0..6),
        uneven_events(&pmu, 6..12)
    );
    let mut plan = Plan::new(&event::parse(&groups, &pmus).unwrap()).unwrap();
    plan.rotated = 2;
    let a = watched(&pmu, "a");
    let mut counting = Counting::with_plan(plan, |_| {});
    let mut loads = ["burn 0 2000", "burn 1 2000"].map(|words| a.load(words));
    loads.iter_mut().for_each(test_harness::Load::go);
    thread::sleep(Duration::from_millis(500));
    counting.session.rotate().unwrap();
    loads.into_iter().for_each(|load| drop(load.finish()));
    assert_uneven_counts(&pmu, &mut counting, &a, clock_slack());
}

/// Another program counts on CPU 0, where the kernel then multiplexes the events of both programs.
#[test]
fn a_cpu_that_shares_its_counters_is_scaled_by_its_own_time() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=core");
    pmu.control("idle 1");
    let mut others = test_harness::plan(&format!("{{{}}}", events(&pmu, 6..12)));
    for planned in others.groups.iter_mut().flatten() {
        planned.counter.scope = Scope::Cpus("0".parse().unwrap());
    }
    let a = watched(&pmu, "a");
    let mut counting = Counting::start(&uneven_events(&pmu, 0..4));
    let other_counting = Counting::plain(others, |_| {});
    // The loads run one after the other, so that no slice of the other emulated CPU falls into an
    // interval of the kernel's multiplexing.
    for words in ["burn 0 2000", "burn 1 2000"] {
        run(&[(&a, words)]);
    }
    drop(other_counting);
    // Adding up before scaling would be off by 28%.
    assert_uneven_counts(&pmu, &mut counting, &a, clock_slack_of_one_cpu());
}

/// The first intervals are short: a command of 100 ms has values of as many groups as fit in it.
#[test]
fn a_short_command_has_values_of_many_groups() {
    let Some(_machine) = machine() else { return };
    if Path::new("/sys/bus/event_source/devices/armv8_pmuv3").exists() {
        return skip("with QEMU's own PMU beside it there are two core PMUs");
    }
    if clock_follows_host() {
        return skip("an exchange may take as long as the host does something else");
    }
    let pmu = TestPmu::load("set=core");
    pmu.control("idle 1");
    // An exchange on the other emulated CPU would wait for that CPU's slice.
    let _cpu1_offline = Cpu1Offline::new();
    let (name, _) = core();
    // Cache references and misses, branches and misses.
    let codes = if value("ARCH") == "arm64" {
        [0x04, 0x03, 0x21, 0x22]
    } else {
        [0x4f2e, 0x412e, 0xc4, 0xc5]
    };
    for (code, rate) in codes.into_iter().zip([8_000_000, 1_000_000].repeat(2)) {
        pmu.control(&format!("rate {name} {code:#x} 0 0 {rate}"));
    }
    // With two counters and the one for cycles there are three groups: the first two metrics share
    // one. An exchange takes 0.2 ms of this emulated CPU, so intervals are 20 ms.
    let metrics = [
        ("ipc", 2.0),
        ("branch_miss_mpki", 1000.0 / 6.0),
        ("branch_miss_ratio", 0.125),
        ("cache_miss_ratio", 0.125),
    ];
    let names = metrics.map(|(name, _)| name).join(",");
    let options = format!("stat --self --format json --reserve-counters 4 -M {names}");
    let (report, _) = run_with_load(&options, "burn 0 100");
    let exchanges = report["self"]["group_exchanges"].as_u64().unwrap();
    assert!(exchanges >= 3, "{exchanges} exchanges");
    for (name, expected) in metrics {
        let metric = &command(&report)["metrics"][name];
        let value = metric["value"].as_f64().expect(name);
        assert!((value / expected - 1.0).abs() < 1e-3, "{name}: {metric}");
        let running = metric["running"].as_f64().unwrap();
        assert!((0.1..0.6).contains(&running), "{name}: {metric}");
    }
}

/// The rates of two events change together while groups are multiplexed. Their ratio is constant,
/// but counts from different times would have another one.
#[test]
fn both_events_of_a_ratio_are_in_one_group() {
    let Some(_machine) = machine() else { return };
    if Path::new("/sys/bus/event_source/devices/armv8_pmuv3").exists() {
        return skip("with QEMU's own PMU beside it there are two core PMUs");
    }
    let pmu = TestPmu::load("set=core");
    let rate = |times: u64| {
        let (name, _) = core();
        let [references, misses] = if value("ARCH") == "arm64" {
            [0x04, 0x03]
        } else {
            [0x4f2e, 0x412e]
        };
        pmu.control(&format!(
            "rate {name} {references:#x} 0 0 {}",
            8_000_000 * times
        ));
        pmu.control(&format!(
            "rate {name} {misses:#x} 0 0 {}",
            1_000_000 * times
        ));
    };
    rate(1);
    let events = format!("cache-references,{},cache-misses", events(&pmu, 0..7));
    let (catalogue, machine) = (
        Catalogue::builtin().unwrap(),
        Hardware::of_chip(Chip::named("other").unwrap()),
    );
    let pmus = Pmus::read(Path::new("/sys")).unwrap();
    let general = catalogue.metrics().filter(|metric| metric.family.fallback);
    let request = ResolvedRequest {
        events: &event::parse(&events, &pmus).unwrap(),
        metrics: &[],
        offered: &general.collect::<Vec<_>>(),
        machine,
        cpus: 2,
        settings: MetricSettings::default(),
    };
    let capacity =
        Capacity::of_this_machine(&catalogue, &machine, &pmus, test_harness::online(), 1);
    let plan = Plan::packed(&request, &pmus, &capacity).unwrap();
    assert_eq!(plan.rotated, 2);
    let a = watched(&pmu, "a");
    let mut counting = Counting::with_plan(plan, |_| {});
    let mut load = a.load("burn 0 600000");
    load.go();
    for round in 0..20 {
        // Both rates change while nothing is counted.
        stop(load.pid());
        rate(if round % 2 == 0 { 1 } else { 20 });
        kill("-CONT", load.pid());
        thread::sleep(Duration::from_millis(100));
        counting.session.rotate().unwrap();
    }
    drop(load);
    let window = counting.window();
    let report = report(&counting, &window);
    let subject = Subject::Entity(Entity::Cgroup(a.path.as_str().into()));
    let series = report.find_series(&subject, "cache_miss_ratio").next();
    let ratio = series.expect("it is offered").estimate().unwrap();
    println!("{ratio:?}");
    assert!((ratio.value - 0.125).abs() < 0.125 / 100.0, "{ratio:?}");
    assert!(ratio.running_ratio < 0.9, "{ratio:?}");
}
