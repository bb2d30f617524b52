//! Every documented metric of sockets and devices, compared with the test PMUs' own rates.
//!
//! All events of a group are read at one instant. So their counts must be their rates times one
//! time on the PMU, within rounding, and every metric must be its formula of these counts. Rates
//! also depend on the kernel's clock, which is less exact in an emulated machine; its error is
//! checked separately.

use std::{collections::BTreeMap, fs, thread, time::Duration};

use probe_user::{
    catalogue::{Catalogue, Chip, Hardware, Metric, MetricCounts},
    derive::{Report, ReportSection, Subject, SubjectSeries},
    formula::Implicit,
    join::View,
    plan::{CountSource, MetricSource, Plan},
    snapshot::UncoreReading,
    window::Window,
};
use test_harness::{Counting, machine};

use crate::{guest::clock_slack, plans::metric_plan, testpmu::TestPmu};

/// The relative error of one count in each multiplexing interval: with the smallest rates, an
/// interval has about 100,000 counts.
pub(crate) const ROUNDING: f64 = 1e-5;

/// Counts per ms by PMU, box, and config, config1 and config2 of an event.
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
        // Software events and samples also belong to containers.
        let per_container = pattern == "software" || pattern.starts_with("arm_spe_");
        !metric.pmu.pattern.is_core() && !per_container
    };
    all.into_iter().filter(uncore).collect()
}

/// All metrics of the PMUs of a chip, as `-M all` packs them.
pub(crate) fn plan(chip: Chip) -> Plan {
    let catalogue = Catalogue::builtin().unwrap();
    let machine = Hardware::of_chip(chip);
    metric_plan(machine, &uncore_metrics(&catalogue, &machine))
}

/// Sets a rate for every open event that is so large that single counts do not matter: if the
/// kernel multiplexes, a group may lose a part of a count in each interval. Keeps the proportions
/// of the module's own rates, which depend on every bit of an encoding.
pub(crate) fn enlarge_rates(pmu: &TestPmu) {
    let rates = rates();
    for ((name, unit, [config, config1, config2]), rate) in &rates {
        let same_pmu = rates.iter().filter(|((other, ..), _)| other == name);
        let largest = same_pmu.map(|(_, rate)| *rate).max().unwrap();
        // The module takes rates below 2^43.
        let factor = ((1 << 42) / largest).min(100_000);
        pmu.control(&format!(
            "rate {name} {config:#x} {config1:#x} {config2:#x} {} {unit}",
            rate * factor
        ));
    }
}

/// A window with the rates of all its events.
struct RatedWindow<'a> {
    plan: &'a Plan,
    window: Window,
    rates: Rates,
    /// Time on the PMU of each reading of the window, in ms.
    running: Vec<f64>,
}

impl<'a> RatedWindow<'a> {
    fn new(plan: &'a Plan, window: Window, rates: Rates) -> Self {
        let mut counted = Self {
            plan,
            running: Vec::new(),
            window,
            rates,
        };
        let readings = 0..counted.window.uncore.len();
        counted.running = readings.map(|at| counted.time(at)).collect();
        counted
    }

    /// The rate of a reading.
    fn rate(&self, reading: &UncoreReading) -> u64 {
        let counter = &self.plan.uncore[reading.at].counter;
        let pmu = counter.pmu.clone().unwrap();
        // Intel's PMUs have a box for each socket; each of NVIDIA's has one socket.
        let unit = if pmu.starts_with("uncore_") {
            reading.socket
        } else {
            0
        };
        let words = [counter.config, counter.config1, counter.config2];
        let rate = self.rates.get(&(pmu.clone(), unit, words));
        *rate.unwrap_or_else(|| panic!("{pmu} box {unit} never counted {words:x?}"))
    }

    /// Time on the PMU of a reading's group, in ms. It must be the same for all of the group's
    /// events.
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
        let (own, longest) = (time(reading), time(most.expect("at least itself")));
        let error = own / longest - 1.0;
        let column = self.plan.uncore[reading.at].column;
        let name = &self.plan.columns[column].name;
        assert!(error.abs() < ROUNDING, "{name}: {error:e} off its group");
        longest
    }

    /// Relative errors of the kernel's times of the groups against the PMU's, sorted.
    fn clock_errors(&self) -> Vec<f64> {
        let readings = self.window.uncore.iter().zip(&self.running);
        let mut errors: Vec<f64> = readings
            .map(|(reading, running)| float(reading.running) / (running * 1e6) - 1.0)
            .collect();
        errors.sort_by(f64::total_cmp);
        errors
    }

    /// The true value of a metric on a socket, by the rates and the time on the PMU of each group.
    fn expected(&self, metric: &Metric, source: &MetricSource, socket: u32) -> f64 {
        let mut counts = MetricCounts::for_uncore();
        let mut units = 0;
        for (event, place) in &source.events {
            let CountSource::Uncore { at } = place else {
                panic!("{} is counted per CPU", metric.name)
            };
            let matches = |(reading, _): &(&UncoreReading, &f64)| {
                (reading.at, reading.socket) == (*at, socket)
            };
            let readings: Vec<_> = self
                .window
                .uncore
                .iter()
                .zip(&self.running)
                .filter(matches)
                .collect();
            let (reading, time) = match readings[..] {
                // The event is of the other socket.
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
            let count = (float(self.rate(reading)) * time).round() as u64;
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

/// Counts for two seconds and compares each metric's values; returns the number of values.
fn compare_metrics(pmu: &TestPmu, plan: &Plan) -> usize {
    let mut counting = Counting::with_plan(plan.clone(), |_| {});
    enlarge_rates(pmu);
    counting.first = counting.session.pull().unwrap();
    thread::sleep(Duration::from_secs(2));
    let window = counting.window();
    let view = View::default();
    let joined = view.join(plan, &window, None);
    let report = Report::new(plan, &window, &joined, &view);
    let places: Vec<SubjectSeries<'_>> = report
        .groups()
        .filter(|group| group.section == ReportSection::Uncore)
        .collect();
    let counted = RatedWindow::new(plan, window, rates());
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
        // Each of a hundred groups runs for 20 ms, in intervals between which QEMU may run the
        // other CPU.
        let slack = 10.0 * clock_slack();
        assert!(first.abs().max(last.abs()) < slack, "{first} to {last}");
    }
    let mut values = 0;
    for planned in &plan.metrics.list {
        let metric = &planned.metric;
        let sources = match &planned.sources {
            Ok(sources) => sources,
            // A kernel shows Vera's PMUs either with names or without.
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
                let true_value = counted.expected(metric, source, socket);
                let value = series.value.as_ref();
                let value = value
                    .unwrap_or_else(|reason| panic!("{} at {place}: {reason}", metric.name))
                    .estimate()
                    .unwrap()
                    .value;
                assert!(
                    (value / true_value - 1.0).abs() < 10.0 * ROUNDING,
                    "{} at {place}: {value} and not {true_value}",
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
    // SCF 18, PCIe 8, 7 each for C2C0, C2C1 and CNVLINK, and further metrics.
    assert!(plan.metrics.list.len() >= 47, "{}", plan.metrics.list.len());
    let values = compare_metrics(&pmu, &plan);
    assert!(values >= 90, "{values} values on two sockets");
}

#[test]
fn of_tegra410() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=tegra410");
    let plan = plan(Chip::named("tegra410").unwrap());
    assert!(plan.metrics.list.len() >= 39, "{}", plan.metrics.list.len());
    let values = compare_metrics(&pmu, &plan);
    assert!(values >= 78, "{values} values on two sockets");
}

#[test]
fn of_sapphire_rapids() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=intel");
    // With the module's own rates there would be more misses than reads.
    pmu.control("rate uncore_cha_* 0xc8f3fe00000435 0 0 5000");
    let plan = plan(Chip::named("sapphire-rapids").unwrap());
    assert!(plan.metrics.list.len() >= 14, "{}", plan.metrics.list.len());
    let values = compare_metrics(&pmu, &plan);
    assert!(values >= 28, "{values} values on two sockets");
}

/// Kernels without drivers for Vera show unnamed PMUs: only the metrics of the fabric have sources.
#[test]
fn of_vera_on_a_kernel_without_its_drivers() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=vera");
    let plan = plan(Chip::named("tegra410").unwrap());
    let available = plan
        .metrics
        .list
        .iter()
        .filter(|planned| planned.sources.is_ok());
    for planned in available {
        let pattern = planned.metric.pmu.pattern.to_string();
        assert!(
            pattern.starts_with("nvidia_uncore_pmu_"),
            "{}",
            planned.metric.name
        );
    }
    compare_metrics(&pmu, &plan);
}
