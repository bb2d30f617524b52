//! Every documented metric of the cores, against a PMU whose rates are known.
//!
//! Each event counts a whole number per nanosecond on a CPU, and all reads on the `sched_switch`
//! tracepoint see one instant. So whatever group was live for however long, its counts must be its
//! rates times one number of nanoseconds, to the count, and every metric must be its formula of
//! them, to the digit. A rate is scaled by the kernel's times besides: how far those are from the
//! PMU's is told apart.

use std::{collections::BTreeMap, path::Path, thread, time::Duration};

use probe_user::{
    catalogue::{Catalogue, Chip, Hardware, Metric, Settings},
    derive::{Report, Subject},
    event::{self, Counter, Source},
    formula::{Absent, Implicit, Input, Sample},
    join::{By, Entity, View},
    machine::Pmus,
    plan::{Capacity, CountSource, Plan, PlannedMetric, Request},
    window::{Counted, Usage},
};

use crate::{
    accounting::{settled, watched},
    guest::{clock_slack, clock_slack_of_one_cpu, skip, value},
    hotplug::Alone,
    support::{Counting, Load, TestCgroup, machine, online, online_cpus},
    testpmu::{TestPmu, core},
};

/// The metrics that are counted per container.
fn core_metrics<'a>(catalogue: &'a Catalogue, machine: &Hardware) -> Vec<&'a Metric> {
    let all = catalogue.select("all", machine).unwrap();
    let core = |metric: &&Metric| metric.pmu.pattern.is_core();
    all.into_iter().filter(core).collect()
}

/// Gives every event of the metrics a rate of its own, in counts per ns, by its raw code. What is a
/// part of something else counts less, so that no share is above its bound.
fn rates(pmu: &TestPmu, pmus: &Pmus, metrics: &[&Metric]) -> BTreeMap<u64, u64> {
    let part = [
        "REFILL", "MISS", "WALK", "MIS_PRED", "STALL", "RETIRED", "misses",
    ];
    let whole = [
        "CPU_CYCLES",
        "CPU_CLK_UNHALTED.THREAD",
        "cycles",
        "OP_SPEC",
        "INST_SPEC",
    ];
    let (core, _) = core();
    let mut rates = BTreeMap::new();
    for metric in metrics {
        for group in metric.groups(pmus, &Settings::default()).unwrap() {
            for (name, perf) in &group.events {
                let found = event::parse(perf, pmus).unwrap();
                let Source::Counter(counter) = &found[0].events[0].source else {
                    panic!("{name} is no counter")
                };
                let Some(code) = code(counter) else { continue };
                let number = u64::try_from(rates.len()).unwrap();
                let rate = if whole.contains(&name.as_str()) {
                    // Some shares are sums of several events.
                    100_000 + number
                } else if part.iter().any(|word| name.contains(word)) {
                    1 + number
                } else {
                    1_000 + number
                };
                // A generic event and one of the same code are one counter.
                rates.entry(code).or_insert_with(|| {
                    pmu.control(&format!("rate {core} {code:#x} 0 0 {}", rate * 1_000_000));
                    rate
                });
            }
        }
    }
    rates
}

/// The raw code under which the test PMU counts an event; none for those that the kernel counts
/// itself.
fn code(counter: &Counter) -> Option<u64> {
    if counter.pmu.as_deref() == Some("software") {
        return None;
    }
    if counter.type_ > 3 {
        return Some(counter.config);
    }
    // The kernel's numbers: cycles, instructions, cache references and misses, branches and misses.
    let codes = if value("ARCH") == "arm64" {
        [0x11, 0x08, 0x04, 0x03, 0x21, 0x22]
    } else {
        [0x3c, 0xc0, 0x4f2e, 0x412e, 0xc4, 0xc5]
    };
    let at = usize::try_from(counter.config).unwrap();
    assert!(
        counter.type_ == 0 && at < codes.len(),
        "type {} config {at}",
        counter.type_
    );
    Some(codes[at])
}

struct Planned {
    machine: Hardware,
    plan: Plan,
    /// Counts per ns by raw code.
    rates: BTreeMap<u64, u64>,
}

/// A plan of all core metrics of a chip that the test PMU can count.
fn plan(pmu: &TestPmu, chip: Chip) -> Planned {
    let catalogue = Catalogue::builtin().unwrap();
    let machine = Hardware::of_chip(chip);
    let pmus = Pmus::read(Path::new("/sys")).unwrap();
    let mut metrics = core_metrics(&catalogue, &machine);
    // Generic cache events by number 3: the test PMU has none of them.
    metrics.retain(|metric| !metric.name.starts_with("dtlb_load_m"));
    assert!(metrics.len() > 8, "{} metrics", metrics.len());
    let rates = rates(pmu, &pmus, &metrics);
    let capacity = Capacity::of_this_machine(&catalogue, &machine, &pmus, online(), 1);
    let request = Request {
        events: &[],
        metrics: &metrics,
        offered: &[],
        machine,
        cpus: online_cpus().len(),
        settings: Settings::default(),
    };
    let plan = Plan::packed(&request, &pmus, &capacity).unwrap();
    for group in &plan.groups {
        let names: Vec<&str> = group
            .iter()
            .map(|planned| plan.columns[planned.column].name.as_str())
            .collect();
        println!("group {}", names.join(","));
    }
    Planned {
        machine,
        plan,
        rates,
    }
}

impl Planned {
    /// Counts per ns of an event of a group.
    fn rate(&self, group: usize, at: usize) -> Option<u64> {
        let code = code(&self.plan.groups[group][at].counter)?;
        Some(self.rates[&code])
    }

    /// For how long the PMU counted a group, ns: every event of the group must say the same, to the
    /// count.
    fn live(&self, group: usize, row: &Counted) -> u64 {
        let events = 0..self.plan.groups[group].len();
        let times = events.filter_map(|at| Some((row.counts[at], self.rate(group, at)?)));
        let times: Vec<(u64, u64)> = times.map(|(n, rate)| (n / rate, n % rate)).collect();
        let first = times[0];
        assert_eq!(first.1, 0, "group {group}: {times:?}");
        assert!(
            times.iter().all(|time| *time == first),
            "group {group}: {times:?}"
        );
        first.0
    }

    /// The time for which a group would have to count to have an estimate, ns: the same by every
    /// event.
    fn estimated(&self, group: usize, row: &Counted) -> f64 {
        let events = 0..self.plan.groups[group].len();
        let times = events.filter_map(|at| Some((row.estimate(at)?, self.rate(group, at)?)));
        #[expect(clippy::cast_precision_loss, reason = "rates of a test")]
        let times: Vec<f64> = times.map(|(n, rate)| n / rate as f64).collect();
        let same = |time: &f64| (time / times[0] - 1.0).abs() < 1e-12;
        assert!(times.iter().all(same), "group {group}: {times:?}");
        times[0]
    }

    /// What a metric must be, with the counts of its events from `count`: group, and place in it.
    fn expected(
        &self,
        metric: &PlannedMetric,
        window: Duration,
        count: impl Fn(usize, usize) -> f64,
    ) -> f64 {
        let mut known = Known {
            counts: BTreeMap::new(),
            cpus: f64::from(u32::try_from(online_cpus().len()).unwrap()),
            window,
        };
        for (event, place) in &metric.sources.as_ref().unwrap()[0].events {
            let CountSource::Core { group, at } = place else {
                panic!("{event} is not counted on CPUs")
            };
            *known.counts.entry(event.clone()).or_default() += count(*group, *at);
        }
        let value = metric.metric.evaluate(&self.machine, &known);
        value.unwrap().value
    }
}

/// Counts for all of the time on some CPUs.
struct Known {
    counts: BTreeMap<String, f64>,
    cpus: f64,
    window: Duration,
}

impl Input for Known {
    fn event(&self, name: &str) -> Result<Sample, Absent> {
        let count = *self.counts.get(name).ok_or(Absent::Missing)?;
        Ok(Sample { count, live: 1.0 })
    }

    fn implicit(&self, implicit: Implicit) -> Option<f64> {
        match implicit {
            Implicit::DurationTime => Some(self.window.as_secs_f64() * 1e9),
            Implicit::Seconds => Some(self.window.as_secs_f64()),
            Implicit::NumCpus => Some(self.cpus),
            _ => None,
        }
    }
}

/// How far the kernel's clocks, and the rates that stand on them, are from the PMU's time.
#[derive(Default)]
struct Errors {
    /// Of the time on the PMU, by group.
    running: Vec<f64>,
    /// Of the whole time.
    enabled: f64,
    /// Of rates by events of the PMU.
    rate: f64,
}

/// Compares every metric of a cgroup that ran for `ran` ns by the PMU.
#[track_caller]
fn compare(planned: &Planned, report: &Report, usage: &Usage, label: &str, ran: u64) -> Errors {
    let entity = Entity::Cgroup(label.to_owned());
    let subject = Subject::Entity(entity);
    let mut errors = Errors::default();
    let (mut live, mut estimated) = (Vec::new(), Vec::new());
    let rows: Vec<&Counted> = usage.iter().map(|row| row.as_ref().unwrap()).collect();
    for (group, row) in rows.iter().enumerate() {
        let time = planned.live(group, row);
        estimated.push(planned.estimated(group, row));
        errors.running.push(relative(row.running, time));
        errors.enabled = relative(row.enabled, ran);
        live.push(time);
    }
    let sum: u64 = live.iter().sum();
    println!("{label}: ran {ran} ns, {sum} of them with a group live: {live:?}");
    assert!(sum <= ran, "no time is counted twice");
    for metric in &planned.plan.metrics.list {
        let head = &metric.metric;
        let series = report.of(&subject, &head.name).next().unwrap();
        let value = series.value.as_ref();
        let value = value
            .unwrap_or_else(|reason| panic!("{} of {label}: {reason}", head.name))
            .estimate()
            .unwrap();
        // What the PMU counted by its rates, estimated for all of the time on each CPU.
        let exact = planned.expected(metric, report.length(), |group, at| {
            match planned.rate(group, at) {
                #[expect(clippy::cast_precision_loss, reason = "rates of a test")]
                Some(rate) => rate as f64 * estimated[group],
                None => rows[group].estimate(at).unwrap(),
            }
        });
        let error = value.value / exact - 1.0;
        assert!(error.abs() < 1e-12, "{}: {error:e}", head.name);
        // By the rates alone: task-clock is the kernel's own count of ns.
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a test")]
        let truth = planned.expected(metric, report.length(), |group, at| {
            planned.rate(group, at).unwrap_or(1) as f64 * ran as f64
        });
        let error = (value.value / truth - 1.0).abs();
        println!(
            "{label} {}: {} and not {truth} ({:.0}% live)",
            head.name,
            value.value,
            value.live * 100.0
        );
        if over_time(&metric.metric) {
            errors.rate = errors.rate.max(error);
        } else if !by_clock(metric, &planned.plan) {
            assert!(error < 1e-12, "{}: {error:e}", head.name);
        }
    }
    errors
}

/// How far the kernel's own count of ns is from the running time of its group, at most.
fn clock_error(planned: &Planned, usage: &Usage) -> f64 {
    let mut worst = 0.0_f64;
    for (group, row) in usage.iter().enumerate() {
        let row = row.as_ref().unwrap();
        for at in 0..planned.plan.groups[group].len() {
            if planned.rate(group, at).is_none() {
                worst = worst.max(relative(row.counts[at], row.running).abs());
            }
        }
    }
    worst
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a test")]
fn relative(measured: u64, truth: u64) -> f64 {
    measured as f64 / truth as f64 - 1.0
}

fn over_time(metric: &Metric) -> bool {
    let time = [Implicit::DurationTime, Implicit::Seconds];
    let mut implicits = metric.formula.implicits().iter();
    implicits.any(|implicit| time.contains(implicit))
}

fn by_clock(metric: &PlannedMetric, plan: &Plan) -> bool {
    let mut sources = metric.sources.iter().flatten();
    sources.any(|source| {
        source.events.iter().any(|(_, place)| {
            matches!(place, CountSource::Core { group, at }
                if code(&plan.groups[*group][*at].counter).is_none())
        })
    })
}

#[test]
fn every_core_metric_by_rotation() {
    by_rotation(own_chip(), Cpus::Two);
}

#[test]
fn every_core_metric_by_rotation_on_one_cpu() {
    by_rotation(own_chip(), Cpus::One);
}

#[test]
fn every_core_metric_of_sandy_bridge_by_rotation() {
    if value("ARCH") == "arm64" {
        return skip("the test PMU looks like an Arm core here");
    }
    by_rotation(Chip::named("sandy-bridge").unwrap(), Cpus::One);
}

fn own_chip() -> Chip {
    if value("ARCH") == "arm64" {
        Chip::named("neoverse-v2").unwrap()
    } else {
        Chip::named("sapphire-rapids").unwrap()
    }
}

/// How many CPUs of the guest are online.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cpus {
    One,
    Two,
}

fn by_rotation(chip: Chip, cpus: Cpus) {
    let Some(_machine) = machine() else { return };
    if Path::new("/sys/bus/event_source/devices/armv8_pmuv3").exists() {
        return skip("with QEMU's own PMU beside it there are two core PMUs");
    }
    let pmu = TestPmu::load("set=core");
    let _alone = (cpus == Cpus::One).then(Alone::new);
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
    let words: &[(&TestCgroup, &str)] = match cpus {
        Cpus::One => &[(&a, "burn 0 6000"), (&b, "burst 0 700 900 6000")],
        Cpus::Two => &[
            (&a, "burn 0 6000"),
            (&b, "burst 1 3000 500 6000"),
            (&b, "burst 0 700 900 6000"),
        ],
    };
    let mut loads: Vec<Load> = words.iter().map(|(of, words)| of.load(words)).collect();
    loads.iter_mut().for_each(Load::go);
    for _ in 0..120 {
        thread::sleep(Duration::from_millis(50));
        counting.session.rotate().unwrap();
    }
    loads.into_iter().for_each(|load| drop(load.finish()));
    let (window, after) = settled(&pmu, &mut counting, &[&a, &b]);
    let view = View {
        by: By::Cgroup,
        ..View::default()
    };
    let joined = view.join(&planned.plan, &window, None);
    let report = Report::new(&planned.plan, &window, &joined, &view);
    for ((cgroup, before), after) in [&a, &b].into_iter().zip(before).zip(after) {
        let usage = &joined
            .of(&Entity::Cgroup(cgroup.path.clone()))
            .unwrap()
            .delta;
        let errors = compare(&planned, &report, usage, &cgroup.path, after - before);
        let mut running = errors.running.clone();
        running.sort_by(f64::total_cmp);
        let (middle, clock) = (running[groups / 2], clock_error(&planned, usage));
        let percent = |part: f64| format!("{:.3}%", part * 100.0);
        println!(
            "{}: {groups} groups; time on the PMU off by {} to {}, in the middle {}; enabled time \
             off by {}; \
             task-clock off by {}; largest error of a rate {}",
            cgroup.path,
            percent(running[0]),
            percent(running[groups - 1]),
            percent(middle),
            percent(errors.enabled),
            percent(clock),
            percent(errors.rate),
        );
        // All else is exact: what is left is how far the kernel's times are from the PMU's.
        match cpus {
            Cpus::One => {
                let worst = running[0].abs().max(running[groups - 1].abs());
                let worst = [worst, errors.enabled.abs(), errors.rate, clock]
                    .into_iter()
                    .fold(0.0, f64::max);
                assert!(worst < clock_slack_of_one_cpu(), "{worst}");
            }
            // A single group has some 340 ms, of which one of the other CPU's turns is more than
            // 1%.
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
