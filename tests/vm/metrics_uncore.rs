//! Every documented metric of sockets and devices, against the test PMUs' own rates.

use std::{collections::BTreeMap, fs, path::Path, thread, time::Duration};

use probe_user::{
    catalogue::{Catalogue, Chip, Counts, Machine, Metric, Settings},
    derive::{PlaceRow, Report},
    event::Pmus,
    formula::{Implicit, NoValue},
    join::View,
    load::{MetricSource, Place, Plan, Request, Room},
    window::Window,
};

use crate::{
    support::{Counting, machine},
    testpmu::TestPmu,
};

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

fn uncore_metrics<'a>(catalogue: &'a Catalogue, machine: &Machine) -> Vec<&'a Metric> {
    let all = catalogue.select("all", machine).unwrap();
    let uncore = |metric: &&Metric| {
        let core = metric.pmu.pattern.is_core() || metric.pmu.pattern.to_string() == "software";
        !core
    };
    all.into_iter().filter(uncore).collect()
}

fn plan(chip: Chip) -> Plan {
    let catalogue = Catalogue::builtin().unwrap();
    let machine = Machine::of_chip(chip);
    let pmus = Pmus::read(Path::new("/sys")).unwrap();
    let metrics = uncore_metrics(&catalogue, &machine);
    let room = Room::of_this_machine(&catalogue, &machine, &pmus, 1);
    let request = Request {
        events: &[],
        metrics: &metrics,
        offered: &[],
        machine,
        cpus: 2,
        settings: Settings::default(),
    };
    Plan::packed(&request, &pmus, &room).unwrap()
}

/// What a metric must be at a place by the rates.
fn expected(
    plan: &Plan,
    window: &Window,
    rates: &Rates,
    metric: &Metric,
    source: &MetricSource,
    socket: u32,
) -> Result<f64, NoValue> {
    let mut counts = Counts::of_uncore();
    let mut units = 0;
    for (event, place) in &source.events {
        let Place::Uncore { at } = place else {
            panic!("{} is counted per CPU", metric.name)
        };
        let read = |reading: &&probe_user::pull::UncoreReading| {
            (reading.at, reading.socket) == (*at, socket)
        };
        let readings: Vec<_> = window.uncore.iter().filter(read).collect();
        let reading = match readings[..] {
            // A unit of the other socket.
            [] => continue,
            [reading] => reading,
            _ => panic!("{}: {} readings of {event}", metric.name, readings.len()),
        };
        units += u32::from(*event == source.events[0].0);
        let counter = &plan.uncore[*at].counter;
        let pmu = counter.pmu.clone().unwrap();
        // Intel's PMUs have a box for each socket, NVIDIA's are of one.
        let unit = if pmu.starts_with("uncore_") {
            socket
        } else {
            0
        };
        let words = [counter.config, counter.config1, counter.config2];
        let rate = rates.get(&(pmu.clone(), unit, words));
        let rate = rate.unwrap_or_else(|| panic!("{pmu} box {unit} never counted {words:x?}"));
        let running = reading.running;
        let count = u128::from(*rate) * u128::from(running) / 1_000_000;
        counts.add(event, u64::try_from(count).unwrap(), running, running);
    }
    if let Some(ports) = source.place.ports() {
        counts.set(Implicit::NumPorts, f64::from(ports));
    }
    counts.set(Implicit::NumUnits, f64::from(units));
    let machine = plan.metrics.machine.unwrap();
    metric.evaluate(&machine, &counts).map(|value| value.value)
}

/// Counts for a second and compares each value; returns how many had one.
fn every_metric_follows_the_rates(plan: &Plan) -> usize {
    let mut counting = Counting::with_plan(plan.clone(), |_| {});
    thread::sleep(Duration::from_secs(2));
    let window = counting.window();
    let rates = rates();
    let joined = View::default().join(&window, plan.groups.len());
    let report = Report::new(plan, &window, &joined, window.start);
    println!(
        "{} events in {} groups on {} PMUs, {} values",
        plan.uncore.len(),
        plan.uncore_groups.len(),
        rates
            .keys()
            .map(|(pmu, ..)| pmu)
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        report.places.len()
    );
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
            let of_source = |row: &&PlaceRow| {
                let mut place = row.place.clone();
                if source.place.socket.is_none() {
                    place.socket = None;
                }
                row.metric.name == metric.name && place == source.place
            };
            let rows: Vec<&PlaceRow> = report.places.iter().filter(of_source).collect();
            assert!(!rows.is_empty(), "{} at {}", metric.name, source.place);
            for row in rows {
                let socket = row.place.socket.unwrap();
                let truth = expected(plan, &window, &rates, metric, source, socket);
                let place = &row.place;
                match (&row.value, &truth) {
                    (Ok(value), Ok(truth)) => {
                        let error = value.value / truth - 1.0;
                        // The kernel stamps the turns of a group some us beside its counts, in an
                        // emulated machine.
                        let time = [Implicit::DurationTime, Implicit::Seconds];
                        let mut implicits = metric.formula.implicits().iter();
                        let over_time = implicits.any(|implicit| time.contains(implicit));
                        let limit = if over_time { 5e-3 } else { 1e-3 };
                        assert!(
                            error.abs() < limit,
                            "{} at {place}: {} and not {truth}",
                            metric.name,
                            value.value
                        );
                        values += 1;
                    }
                    (Err(NoValue::AboveBound { .. }), Err(NoValue::AboveBound { .. })) => {
                        println!(
                            "{} at {place}: above its bound, as its events' rates are",
                            metric.name
                        );
                    }
                    other => panic!("{} at {place}: {other:?}", metric.name),
                }
            }
        }
    }
    values
}

#[test]
fn of_grace() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=grace");
    let plan = plan(Chip::GraceHopperMulti);
    // SCF 18, PCIe 8, 7 each for C2C0, C2C1 and CNVLINK, and what goes beyond the seeds.
    assert!(plan.metrics.list.len() >= 47, "{}", plan.metrics.list.len());
    let values = every_metric_follows_the_rates(&plan);
    assert!(values >= 90, "{values} values on two sockets");
}

#[test]
fn of_tegra410() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=tegra410");
    let plan = plan(Chip::Tegra410);
    assert!(plan.metrics.list.len() >= 39, "{}", plan.metrics.list.len());
    let values = every_metric_follows_the_rates(&plan);
    assert!(values >= 78, "{values} values on two sockets");
}

#[test]
fn of_sapphire_rapids() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=intel");
    let plan = plan(Chip::SapphireRapids);
    assert!(plan.metrics.list.len() >= 14, "{}", plan.metrics.list.len());
    let values = every_metric_follows_the_rates(&plan);
    assert!(values >= 28, "{values} values on two sockets");
}

/// Kernels without drivers for Vera show PMUs without names: all metrics but the fabric's say that
/// theirs are missing.
#[test]
fn of_vera_on_a_kernel_without_its_drivers() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=vera");
    let plan = plan(Chip::Tegra410);
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
    every_metric_follows_the_rates(&plan);
}
