//! A plan in which every event counts at its own known rate, and the true values of its metrics.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use probe_user::{
    catalogue::{Catalogue, Chip, Hardware, Metric, MetricSettings},
    event::{self, Counter, Source},
    formula::{Absent, EventCount, Implicit, Input},
    machine::Pmus,
    plan::{CountSource, Plan, PlannedMetric},
    window::GroupCounts,
};
use test_harness::online_cpus;

use crate::{
    plans::metric_plan,
    testpmu::{TestPmu, core},
};

/// The metrics that core PMUs count per container.
fn core_metrics<'a>(catalogue: &'a Catalogue, machine: &Hardware) -> Vec<&'a Metric> {
    let all = catalogue.select("all", machine).unwrap();
    let core = |metric: &&Metric| metric.pmu.pattern.is_core();
    all.into_iter().filter(core).collect()
}

/// Sets a different rate for every event of the metrics; returns counts per ns by raw code. Events
/// that are a part of another event count less, so that no ratio is above its bound.
fn rates(pmu: &TestPmu, pmus: &Pmus, metrics: &[&Metric]) -> BTreeMap<u64, u64> {
    let part = [
        "REFILL",
        "MISS",
        "WALK",
        "MIS_PRED",
        "STALL",
        "RETIRED",
        "MEMORY_BOUND",
        "misses",
    ];
    let whole = [
        "CPU_CYCLES",
        "CPU_CLK_UNHALTED.THREAD",
        "cycles",
        "OP_SPEC",
        "INST_SPEC",
        "TOPDOWN.SLOTS_P",
    ];
    let (core, _) = core();
    let mut rates = BTreeMap::new();
    for metric in metrics {
        for group in metric.groups(pmus, &MetricSettings::default()).unwrap() {
            for (name, perf) in &group.events {
                let found = event::parse(perf, pmus).unwrap();
                let Source::Counter(counter) = &found[0].events[0].source else {
                    panic!("{name} is no counter")
                };
                let code = code(counter);
                let number = u64::try_from(rates.len()).unwrap();
                let rate = if whole.contains(&name.as_str()) {
                    // Some shares are sums of several events.
                    100_000 + number
                } else if part.iter().any(|word| name.contains(word)) {
                    1 + number
                } else {
                    1_000 + number
                };
                // A generic event and a raw event of the same code share a counter.
                rates.entry(code).or_insert_with(|| {
                    pmu.control(&format!("rate {core} {code:#x} 0 0 {}", rate * 1_000_000));
                    rate
                });
            }
        }
    }
    rates
}

/// The raw code under which the test PMU counts an event.
fn code(counter: &Counter) -> u64 {
    if counter.type_ > 3 {
        return counter.config;
    }
    // The kernel's numbers: cycles, instructions, cache references and misses, branches and misses.
    let cycles = fs::read_to_string("/sys/bus/event_source/devices/cpu/events/cpu-cycles");
    let codes = match cycles.as_deref().map(str::trim) {
        // AMD's
        Ok("event=0x76") => [0x76, 0xc0, 0xff60, 0x964, 0xc2, 0xc3],
        Ok(_) => [0x3c, 0xc0, 0x4f2e, 0x412e, 0xc4, 0xc5],
        Err(_) => [0x11, 0x08, 0x04, 0x03, 0x21, 0x22],
    };
    let at = usize::try_from(counter.config).unwrap();
    assert!(
        counter.type_ == 0 && at < codes.len(),
        "type {} config {at}",
        counter.type_
    );
    codes[at]
}

/// A plan whose counts and metrics are known in advance.
pub(super) struct Planned {
    machine: Hardware,
    pub(super) plan: Plan,
    /// Counts per ns by raw code.
    rates: BTreeMap<u64, u64>,
}

/// A plan of all core metrics of a chip that the test PMU can count.
pub(super) fn plan(pmu: &TestPmu, chip: Chip) -> Planned {
    let catalogue = Catalogue::builtin().unwrap();
    let machine = Hardware::of_chip(chip);
    let pmus = Pmus::read(Path::new("/sys")).unwrap();
    let mut metrics = core_metrics(&catalogue, &machine);
    // The test PMU has no generic cache events (type 3).
    metrics.retain(|metric| !metric.name.starts_with("dtlb_load_m"));
    // With a reserved counter, the six events of this metric need seven counters: Sapphire Rapids
    // has eight, the test PMU six.
    metrics.retain(|metric| metric.name != "flops_per_l3_read_miss_byte");
    assert!(metrics.len() > 8, "{} metrics", metrics.len());
    let rates = rates(pmu, &pmus, &metrics);
    let plan = metric_plan(machine, &metrics);
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
    pub(super) fn rate(&self, group: usize, at: usize) -> u64 {
        self.rates[&code(&self.plan.groups[group][at].counter)]
    }

    /// A plan of only one of these metrics.
    pub(super) fn single_metric_plan(&self, metric: &str) -> Plan {
        metric_plan(self.machine, &[&self.metric(metric).metric])
    }

    /// Counts per ns of the first event of a metric.
    pub(super) fn first_event_rate(&self, metric: &str) -> f64 {
        let sources = self.metric(metric).sources.as_ref().unwrap();
        let (event, place) = &sources[0].events[0];
        let CountSource::Core { group, at } = *place else {
            panic!("{event} is not counted on CPUs")
        };
        #[expect(clippy::cast_precision_loss, reason = "rates of a test")]
        let rate = self.rate(group, at) as f64;
        rate
    }

    fn metric(&self, name: &str) -> &PlannedMetric {
        let mut list = self.plan.metrics.list.iter();
        list.find(|it| it.metric.name == name).unwrap()
    }

    /// The time for which the PMU counted a group, in ns. It must be exactly the same for all
    /// events of the group.
    pub(super) fn time_on_pmu(&self, group: usize, row: &GroupCounts) -> u64 {
        let events = 0..self.plan.groups[group].len();
        let times: Vec<(u64, u64)> = events
            .map(|at| (row.counts[at], self.rate(group, at)))
            .map(|(n, rate)| (n / rate, n % rate))
            .collect();
        let first = times[0];
        assert_eq!(first.1, 0, "group {group}: {times:?}");
        assert!(
            times.iter().all(|time| *time == first),
            "group {group}: {times:?}"
        );
        first.0
    }

    /// The time in ns that a group's estimates correspond to. It must be the same for all events.
    pub(super) fn estimated(&self, group: usize, row: &GroupCounts) -> f64 {
        let events = 0..self.plan.groups[group].len();
        let estimates = events.filter_map(|at| Some((row.estimate(at)?, self.rate(group, at))));
        #[expect(clippy::cast_precision_loss, reason = "rates of a test")]
        let times: Vec<f64> = estimates.map(|(n, rate)| n / rate as f64).collect();
        let same = |time: &f64| (time / times[0] - 1.0).abs() < 1e-12;
        assert!(times.iter().all(same), "group {group}: {times:?}");
        times[0]
    }

    /// The true value of a metric. `counter_time` returns the time for which a group's owner ran;
    /// `count` returns the count of an event by group and index in it.
    pub(super) fn expected(
        &self,
        metric: &PlannedMetric,
        window: Duration,
        counter_time: impl Fn(usize) -> u64,
        count: impl Fn(usize, usize) -> f64,
    ) -> f64 {
        let mut known = KnownCounts {
            counts: BTreeMap::new(),
            cpus: f64::from(u32::try_from(online_cpus().len()).unwrap()),
            window,
            counter_time: None,
        };
        for (event, place) in &metric.sources.as_ref().unwrap()[0].events {
            let CountSource::Core { group, at } = place else {
                panic!("{event} is not counted on CPUs")
            };
            known.counter_time.get_or_insert(counter_time(*group));
            *known.counts.entry(event.clone()).or_default() += count(*group, *at);
        }
        let value = metric.metric.evaluate(&self.machine, &known);
        value.unwrap().value
    }
}

/// Known counts as the input of a formula.
struct KnownCounts {
    counts: BTreeMap<String, f64>,
    cpus: f64,
    window: Duration,
    /// The counter time of the first event's group, in ns.
    counter_time: Option<u64>,
}

impl Input for KnownCounts {
    fn event(&self, name: &str) -> Result<EventCount, Absent> {
        let count = *self.counts.get(name).ok_or(Absent::Missing)?;
        Ok(EventCount {
            count,
            running_ratio: 1.0,
        })
    }

    fn implicit(&self, implicit: Implicit) -> Option<f64> {
        match implicit {
            Implicit::DurationTime => Some(self.window.as_secs_f64() * 1e9),
            Implicit::Seconds => Some(self.window.as_secs_f64()),
            Implicit::NumCpus => Some(self.cpus),
            #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a test")]
            Implicit::CounterTime => self.counter_time.map(|nanos| nanos as f64),
            _ => None,
        }
    }
}
