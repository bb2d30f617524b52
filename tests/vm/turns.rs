//! More events than the PMU has counters: the kernel's multiplexing, and pmuscope's turns of
//! counter groups. Where the PMU counts at one rate, scaled counts have only the error of the
//! kernel's times. Where it counts faster on one CPU than on the other, adding up before scaling
//! would be an error too.

use std::{path::Path, thread, time::Duration};

use probe_user::{
    catalogue::{Catalogue, Chip, Hardware, Settings},
    derive::{Counter, Subject},
    event::{self, Scope},
    join::Entity,
    machine::Pmus,
    plan::{Capacity, Plan, Request},
};

use crate::{
    accounting::{run, watched},
    cli::{command, run_with_load},
    guest::{clock_runs_alone, clock_slack, clock_slack_of_one_cpu, skip, value},
    hotplug::Alone,
    report::{Row, report, row, rows},
    signals::{kill, stop},
    support::{self, Counting, TestCgroup, machine},
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
fn scaled(pmu: &TestPmu, counting: &mut Counting, cgroup: &TestCgroup) -> (Vec<Counter>, f64) {
    let window = counting.window();
    let values = row(counting, &window, cgroup).values;
    let values: Vec<Counter> = values
        .into_iter()
        .map(|value| value.expect("it ran"))
        .collect();
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a test")]
    let ran = pmu.core_time(cgroup.id) as f64;
    let errors = values.iter().zip(1_u8..).map(|(value, rate)| {
        let error = value.estimate.value / (f64::from(rate) * ran) - 1.0;
        println!(
            "e{}: live {:.1}%, error {:+.3}%",
            rate - 1,
            value.estimate.live * 100.0,
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
    let rotated = values
        .iter()
        .filter(|value| value.estimate.live < 0.95)
        .count();
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

/// How many times as much events count on CPU 0 as on CPU 1.
const FAST: u64 = 10;

/// The same events, slower by [`FAST`] on CPU 1.
fn uneven_events(pmu: &TestPmu, numbers: std::ops::Range<u64>) -> String {
    let text = events(pmu, numbers.clone());
    let (name, _) = core();
    for n in numbers {
        let (code, rate) = (event(n), (n + 1) * 1_000_000);
        pmu.control(&format!("rate {name} {code:#x} 0 0 {} 0", rate * FAST));
    }
    text
}

/// What an event counts for each of its number of ns of a cgroup.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a test")]
fn weighed(pmu: &TestPmu, cgroup: &TestCgroup) -> f64 {
    let times = pmu.core_times(cgroup.id);
    let counts = times
        .iter()
        .map(|(cpu, ns)| if *cpu == 0 { ns * FAST } else { *ns });
    counts.sum::<u64>() as f64
}

/// The row of a cgroup has the truth within `limit`, which its stated error holds; and the total is
/// the sum of the rows.
#[track_caller]
fn uneven_counts_are_true(pmu: &TestPmu, counting: &mut Counting, cgroup: &TestCgroup, limit: f64) {
    let window = counting.window();
    let report = report(counting, &window);
    let (row, total) = (row(counting, &window, cgroup), Row::total(&report));
    let truth = weighed(pmu, cgroup);
    for (at, rate) in (0..row.values.len()).zip(1_u8..) {
        let value = row.values[at].clone().unwrap().estimate;
        let error = value.value / (f64::from(rate) * truth) - 1.0;
        let stated = value.counting_error().unwrap_or_default();
        println!(
            "e{at}: live {:.1}%, error {:+.3}%, stated {:.1}%",
            value.live * 100.0,
            error * 100.0,
            stated * 100.0
        );
        assert!(
            error.abs() < limit && error.abs() < 1.96 * stated,
            "{error}"
        );
        let total = total.values[at].clone().unwrap().estimate;
        // Who ran for too little time to be known has no value, and what was counted of it is in
        // the total.
        let rows = rows(&report).map(|(_, row)| row.values[at].clone());
        let (known, unknown): (Vec<_>, Vec<_>) = rows.partition(Result::is_ok);
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

/// Each group is live for a quarter of the time on one CPU and three quarters on the other.
#[test]
fn turns_are_made_up_for_on_each_cpu() {
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
    loads.iter_mut().for_each(support::Load::go);
    thread::sleep(Duration::from_millis(500));
    counting.session.rotate().unwrap();
    loads.into_iter().for_each(|load| drop(load.finish()));
    uneven_counts_are_true(&pmu, &mut counting, &a, clock_slack());
}

/// Another program counts on CPU 0, where the kernel then multiplexes both.
#[test]
fn a_cpu_that_shares_its_counters_is_scaled_by_its_own_time() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=core");
    pmu.control("idle 1");
    let mut others = support::plan(&format!("{{{}}}", events(&pmu, 6..12)));
    for planned in others.groups.iter_mut().flatten() {
        planned.counter.scope = Scope::Cpus("0".parse().unwrap());
    }
    let a = watched(&pmu, "a");
    let mut counting = Counting::start(&uneven_events(&pmu, 0..4));
    let beside = Counting::plain(others, |_| {});
    // One after the other, so that no turn of another emulated CPU falls into one of the kernel's
    // turns.
    for words in ["burn 0 2000", "burn 1 2000"] {
        run(&[(&a, words)]);
    }
    drop(beside);
    // Added up before scaling, it would be off by 28%.
    uneven_counts_are_true(&pmu, &mut counting, &a, clock_slack_of_one_cpu());
}

/// The first turns are short: a command of 100 ms has values of as many groups as fit in it.
#[test]
fn a_short_command_has_values_of_many_groups() {
    let Some(_machine) = machine() else { return };
    if Path::new("/sys/bus/event_source/devices/armv8_pmuv3").exists() {
        return skip("with QEMU's own PMU beside it there are two core PMUs");
    }
    if clock_runs_alone() {
        return skip("an exchange may take as long as the host does something else");
    }
    let pmu = TestPmu::load("set=core");
    pmu.control("idle 1");
    // An exchange on another emulated CPU takes as long as that CPU's turn.
    let _alone = Alone::new();
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
    // Two counters, and that of cycles, are three groups: the first two metrics are of one. An
    // exchange takes 0.2 ms of this emulated CPU, so its turns last 20 ms.
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
        let live = metric["running"].as_f64().unwrap();
        assert!((0.1..0.6).contains(&live), "{name}: {metric}");
    }
}

/// Two events whose rates change together, while groups take turns: their ratio is the same at all
/// times, but their counts at different times are not.
#[test]
fn a_ratio_is_of_one_group() {
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
    let request = Request {
        events: &event::parse(&events, &pmus).unwrap(),
        metrics: &[],
        offered: &general.collect::<Vec<_>>(),
        machine,
        cpus: 2,
        settings: Settings::default(),
    };
    let capacity = Capacity::of_this_machine(&catalogue, &machine, &pmus, support::online(), 1);
    let plan = Plan::packed(&request, &pmus, &capacity).unwrap();
    assert_eq!(plan.rotated, 2);
    let a = watched(&pmu, "a");
    let mut counting = Counting::with_plan(plan, |_| {});
    let mut load = a.load("burn 0 600000");
    load.go();
    for turn in 0..20 {
        // Both rates change while nothing is counted.
        stop(load.pid());
        rate(if turn % 2 == 0 { 1 } else { 20 });
        kill("-CONT", load.pid());
        thread::sleep(Duration::from_millis(100));
        counting.session.rotate().unwrap();
    }
    drop(load);
    let window = counting.window();
    let report = report(&counting, &window);
    let subject = Subject::Entity(Entity::Cgroup(a.path.as_str().into()));
    let ratio = report.of(&subject, "cache_miss_ratio").next();
    let ratio = ratio.expect("it is offered").estimate().unwrap();
    println!("{ratio:?}");
    assert!((ratio.value - 0.125).abs() < 0.125 / 100.0, "{ratio:?}");
    assert!(ratio.live < 0.9, "{ratio:?}");
}
