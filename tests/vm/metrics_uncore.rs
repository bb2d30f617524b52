//! Every documented metric of sockets and devices, against the test PMUs' own rates.
//!
//! All events of a group are read at one moment, so their counts must be their rates times one time
//! on the PMU, within rounding, and every metric its formula of them. Rates also depend on the
//! kernel's clock, which in an emulated machine is less exact: how far it is from the PMU's time is
//! checked apart.

use std::{collections::BTreeMap, fs, thread, time::Duration};

use probe_user::{
    catalogue::{Catalogue, Chip, Counts, Hardware, Metric},
    derive::{Group, Part, Report, Subject},
    formula::Implicit,
    join::View,
    plan::{CountSource, MetricSource, Plan},
    snapshot::UncoreReading,
    window::Window,
};

use crate::{
    guest::clock_slack,
    plans::plan_of,
    support::{Counting, machine},
    testpmu::TestPmu,
};

/// What a count more or less in each turn can change: of the smallest rates, a turn has some
/// 100,000.
pub(crate) const ROUNDING: f64 = 1e-5;

/// Counts per ms by PMU, box and the three words of an event.
type Rates = BTreeMap<(String, u32, [u64; 3]), u64>;

fn rates() -> Rates {
    let text = fs::read_to_string("/sys/kernel/debug/testpmu/counters").unwrap();
    let line = |line: &str| {
        // name box config config1 config2 exclude rate task_rate value
        let fields: Vec<&str> = line.split(' ').collect();
        let hex = |at: usize| {
            let digits = fields[at].trim_start_matches("0x");
            u64::from_str_radix(digits, 16).unwrap()
        };
        let number = |at: usize| fields[at].parse::<u64>().unwrap();
        let unit = u32::try_from(number(1)).unwrap();
        let key = (fields[0].to_owned(), unit, [hex(2), hex(3), hex(4)]);
        (key, number(6))
    };
    // The first line is the heading.
    text.lines().skip(1).map(line).collect()
}

fn uncore_metrics<'a>(catalogue: &'a Catalogue, machine: &Hardware) -> Vec<&'a Metric> {
    let all = catalogue.select("all", machine).unwrap();
    let uncore = |metric: &&Metric| {
        let pattern = metric.pmu.pattern.to_string();
        // Software events and samples are the containers' too.
        let of_containers = pattern == "software" || pattern.starts_with("arm_spe_");
        !metric.pmu.pattern.is_core() && !of_containers
    };
    all.into_iter().filter(uncore).collect()
}

/// All metrics of the PMUs of a chip, as `-M all` packs them.
pub(crate) fn plan(chip: Chip) -> Plan {
    let catalogue = Catalogue::builtin().unwrap();
    let machine = Hardware::of_chip(chip);
    plan_of(machine, &uncore_metrics(&catalogue, &machine))
}

/// Gives every open event a rate so large that one count more or less does not matter: where the
/// kernel multiplexes, a group may lose a part of a count in each turn. Proportions of the module's
/// own rates are kept, since they depend on every bit of an encoding.
pub(crate) fn enlarge_rates(pmu: &TestPmu) {
    let rates = rates();
    for ((name, unit, [config, config1, config2]), rate) in &rates {
        let of_pmu = rates.iter().filter(|((other, ..), _)| other == name);
        let largest = of_pmu.map(|(_, rate)| *rate).max().unwrap();
        // The module takes rates below 2^43.
        let factor = ((1 << 42) / largest).min(100_000);
        pmu.control(&format!(
            "rate {name} {config:#x} {config1:#x} {config2:#x} {} {unit}",
            rate * factor
        ));
    }
}

/// A window in which everything counted, with the rates by which it did.
struct Counted<'a> {
    plan: &'a Plan,
    window: Window,
    rates: Rates,
    /// For how long the PMU counted each reading of the window, ms.
    live: Vec<f64>,
}

impl<'a> Counted<'a> {
    fn new(plan: &'a Plan, window: Window, rates: Rates) -> Self {
        let mut counted = Self {
            plan,
            live: Vec::new(),
            window,
            rates,
        };
        let readings = 0..counted.window.uncore.len();
        counted.live = readings.map(|at| counted.time(at)).collect();
        counted
    }

    /// The rate of a reading.
    fn rate(&self, reading: &UncoreReading) -> u64 {
        let counter = &self.plan.uncore[reading.at].counter;
        let pmu = counter.pmu.clone().unwrap();
        // Intel's PMUs have a box for each socket, NVIDIA's are of one.
        let unit = if pmu.starts_with("uncore_") {
            reading.socket
        } else {
            0
        };
        let words = [counter.config, counter.config1, counter.config2];
        let rate = self.rates.get(&(pmu.clone(), unit, words));
        *rate.unwrap_or_else(|| panic!("{pmu} box {unit} never counted {words:x?}"))
    }

    /// For how long the group of a reading was on the PMU, ms: all its events must say the same.
    fn time(&self, at: usize) -> f64 {
        let readings = &self.window.uncore;
        let reading = &readings[at];
        let mut groups = self.plan.uncore_groups.iter();
        let group = groups.find(|group| group.contains(&reading.at)).unwrap();
        let same = |other: &&UncoreReading| {
            group.contains(&other.at)
                && (other.socket, other.instance) == (reading.socket, reading.instance)
        };
        let time = |reading: &UncoreReading| {
            let count = reading.count.expect("every event counted");
            assert!(count > 0, "{reading:?}");
            float(count) / float(self.rate(reading))
        };
        let most = readings
            .iter()
            .filter(same)
            .max_by_key(|reading| reading.count);
        let (own, of_group) = (time(reading), time(most.expect("at least itself")));
        let error = own / of_group - 1.0;
        let column = self.plan.uncore[reading.at].column;
        let name = &self.plan.columns[column].name;
        assert!(error.abs() < ROUNDING, "{name}: {error:e} off its group");
        of_group
    }

    /// How far the kernel's times of the groups are from the PMU's, in order.
    fn clock_errors(&self) -> Vec<f64> {
        let readings = self.window.uncore.iter().zip(&self.live);
        let errors = readings.map(|(reading, live)| float(reading.running) / (live * 1e6) - 1.0);
        let mut errors: Vec<f64> = errors.collect();
        errors.sort_by(f64::total_cmp);
        errors
    }

    /// What a metric must be at a place: by the rates, and for how long the PMU and the kernel say
    /// that each group counted.
    fn expected(&self, metric: &Metric, source: &MetricSource, socket: u32) -> f64 {
        let mut counts = Counts::of_uncore();
        let mut units = 0;
        for (event, place) in &source.events {
            let CountSource::Uncore { at } = place else {
                panic!("{} is counted per CPU", metric.name)
            };
            let here = |(reading, _): &(&UncoreReading, &f64)| {
                (reading.at, reading.socket) == (*at, socket)
            };
            let readings: Vec<_> = self
                .window
                .uncore
                .iter()
                .zip(&self.live)
                .filter(here)
                .collect();
            let (reading, live) = match readings[..] {
                // A unit of the other socket.
                [] => continue,
                [reading] => reading,
                _ => panic!("{}: {} readings of {event}", metric.name, readings.len()),
            };
            units += u32::from(*event == source.events[0].0);
            let running = reading.running;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count"
            )]
            let count = (float(self.rate(reading)) * live).round() as u64;
            counts.add(event, count, running, running);
        }
        if let Some(ports) = source.place.ports(&metric.pmu) {
            counts.set(Implicit::NumPorts, f64::from(ports));
        }
        counts.set(Implicit::NumUnits, f64::from(units));
        let machine = self.plan.metrics.machine.unwrap();
        let value = metric.evaluate(&machine, &counts);
        value
            .unwrap_or_else(|reason| panic!("{}: {reason}", metric.name))
            .value
    }
}

#[expect(clippy::cast_precision_loss, reason = "ratios of large counts")]
fn float(count: u64) -> f64 {
    count as f64
}

/// Counts for two seconds and compares each value; returns how many had one.
fn every_metric_follows_the_rates(pmu: &TestPmu, plan: &Plan) -> usize {
    let mut counting = Counting::with_plan(plan.clone(), |_| {});
    enlarge_rates(pmu);
    counting.first = counting.session.pull().unwrap();
    thread::sleep(Duration::from_secs(2));
    let window = counting.window();
    let view = View::default();
    let joined = view.join(plan, &window, None);
    let report = Report::new(plan, &window, &joined, &view);
    let places: Vec<Group<'_>> = report
        .groups()
        .filter(|group| group.part == Part::Places)
        .collect();
    let counted = Counted::new(plan, window, rates());
    let errors = counted.clock_errors();
    if let [first, .., last] = errors[..] {
        let middle = errors[errors.len() / 2];
        println!(
            "{} events in {} groups, {} values; the kernel's times are off by {first:.2e} to \
             {last:.2e}, in the middle {middle:.2e}",
            plan.uncore.len(),
            plan.uncore_groups.len(),
            places.len()
        );
        assert!(middle.abs() < clock_slack(), "{middle}");
        // Of a hundred groups each has 20 ms, in turns between which QEMU may run its other CPU.
        let slack = 10.0 * clock_slack();
        assert!(first.abs().max(last.abs()) < slack, "{first} to {last}");
    }
    let mut values = 0;
    for planned in &plan.metrics.list {
        let metric = &planned.metric;
        let sources = match &planned.sources {
            Ok(sources) => sources,
            // A kernel has the PMUs of Vera with names or without.
            Err(reason) => {
                assert!(
                    reason.starts_with("there is no PMU nvidia_"),
                    "{}: {reason}",
                    metric.name
                );
                continue;
            }
        };
        for source in sources {
            let rows: Vec<_> = places
                .iter()
                .filter_map(|group| {
                    let (Subject::Place(at, _), [series]) = (group.subject, group.series) else {
                        panic!("{group:?}");
                    };
                    let mut place = at.clone();
                    if source.place.socket.is_none() {
                        place.socket = None;
                    }
                    let same = report.metric(series).name == metric.name && place == source.place;
                    same.then_some((at, series))
                })
                .collect();
            assert!(!rows.is_empty(), "{} at {}", metric.name, source.place);
            for (place, series) in rows {
                let socket = place.socket.unwrap();
                let truth = counted.expected(metric, source, socket);
                let value = series.value.as_ref();
                let value = value
                    .unwrap_or_else(|reason| panic!("{} at {place}: {reason}", metric.name))
                    .estimate()
                    .unwrap()
                    .value;
                assert!(
                    (value / truth - 1.0).abs() < 10.0 * ROUNDING,
                    "{} at {place}: {value} and not {truth}",
                    metric.name
                );
                values += 1;
            }
        }
    }
    values
}

#[test]
fn of_grace() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=grace");
    let plan = plan(Chip::named("grace-hopper-multi").unwrap());
    // SCF 18, PCIe 8, 7 each for C2C0, C2C1 and CNVLINK, and what goes beyond the seeds.
    assert!(plan.metrics.list.len() >= 47, "{}", plan.metrics.list.len());
    let values = every_metric_follows_the_rates(&pmu, &plan);
    assert!(values >= 90, "{values} values on two sockets");
}

#[test]
fn of_tegra410() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=tegra410");
    let plan = plan(Chip::named("tegra410").unwrap());
    assert!(plan.metrics.list.len() >= 39, "{}", plan.metrics.list.len());
    let values = every_metric_follows_the_rates(&pmu, &plan);
    assert!(values >= 78, "{values} values on two sockets");
}

#[test]
fn of_sapphire_rapids() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=intel");
    // By the module's own rates more reads would miss than there are.
    pmu.control("rate uncore_cha_* 0xc8f3fe00000435 0 0 5000");
    let plan = plan(Chip::named("sapphire-rapids").unwrap());
    assert!(plan.metrics.list.len() >= 14, "{}", plan.metrics.list.len());
    let values = every_metric_follows_the_rates(&pmu, &plan);
    assert!(values >= 28, "{values} values on two sockets");
}

/// Kernels without drivers for Vera show PMUs without names: all metrics but the fabric's say that
/// theirs are missing.
#[test]
fn of_vera_on_a_kernel_without_its_drivers() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=vera");
    let plan = plan(Chip::named("tegra410").unwrap());
    let here = plan
        .metrics
        .list
        .iter()
        .filter(|planned| planned.sources.is_ok());
    for planned in here {
        let pattern = planned.metric.pmu.pattern.to_string();
        assert!(
            pattern.starts_with("nvidia_uncore_pmu_"),
            "{}",
            planned.metric.name
        );
    }
    every_metric_follows_the_rates(&pmu, &plan);
}
