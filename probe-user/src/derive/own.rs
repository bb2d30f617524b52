//! This program's account of itself: what counting costs, and what could not be counted.

use probe_common::SampledCost;

use super::{Counter, Counting, Estimate, Kind, Metric, Reason, Report, Subject, Value};
use crate::{
    snapshot::{Health, Hook},
    window::Window,
};

const HOOKS: &[&str] = &["sched-switch", "cgroup-switches"];

/// Adds it. Counters are since the session began.
pub(super) fn add(report: &mut Report, window: &Window) {
    let subject = report.subject(Subject::Pmuscope);
    let mut add = |name: &str, unit: &str, kind, help: &str, value, total| {
        let metric = report.add_metric(Metric {
            name: name.to_owned(),
            help: help.to_owned(),
            unit: unit.to_owned(),
            kind,
            counting: Counting::All,
        });
        report.push([subject, metric, 0], value, total);
    };
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    let help = "This program";
    add(
        "build",
        "",
        Kind::Info,
        help,
        Ok(Value::Info(version)),
        None,
    );
    let hook = match window.health.hook {
        Hook::SchedSwitch => HOOKS[0],
        Hook::CgroupSwitches => HOOKS[1],
    };
    let hook = Value::State(hook, HOOKS);
    let help = "The kernel hook that accounts";
    add("hook", "", Kind::State, help, Ok(hook), None);
    let mut number = |(name, unit, kind, help, value): Line<'_>| {
        let value = value.ok_or(Reason::NotMeasured).map(|raw| {
            let estimate = Estimate::exact(float(raw));
            match kind {
                Kind::Counter => Value::Counter(Counter {
                    start: window.began,
                    raw,
                    estimate,
                    time: None,
                }),
                _ => Value::Gauge(estimate),
            }
        });
        let total = match &value {
            Ok(Value::Counter(counter)) => Some(*counter),
            _ => None,
        };
        add(name, unit, kind, help, value, total);
    };
    for line in accounting(&window.health) {
        number(line);
    }
    if let Some(samples) = &window.samples {
        for (name, value) in samples.health.counts() {
            number(of_sampling(&format!("spe_{name}"), value));
        }
    }
}

/// Name, unit, kind, help and value.
type Line<'a> = (&'a str, &'a str, Kind, &'a str, Option<u64>);

fn accounting(health: &Health) -> Vec<Line<'static>> {
    let mean = |sampled: &SampledCost| sampled.nanos.checked_div(sampled.samples);
    let count = |name, help, value| (name, "", Kind::Counter, help, Some(value));
    let gauge = |name, unit, help, value| (name, unit, Kind::Gauge, help, value);
    vec![
        count("runs", "Runs of the hook", health.runs),
        count("charges", "Times a slice was charged", health.charges),
        gauge(
            "ns_per_run_same_owner",
            "ns",
            "Mean cost of a run that charged nothing",
            mean(&health.same),
        ),
        gauge(
            "ns_per_run_charging",
            "ns",
            "Mean cost of a run that charged",
            mean(&health.changed),
        ),
        count(
            "sampled_runs",
            "Runs whose cost was measured",
            health.same.samples + health.changed.samples,
        ),
        gauge(
            "ns_per_counter_read",
            "ns",
            "What reading one counter takes",
            health.cost.read.each(),
        ),
        gauge(
            "counting_ppm_of_busiest_cpu",
            "ppm",
            "Part of a CPU that counting takes, where it takes most",
            health.cost.ppm(),
        ),
        gauge(
            "ipis_per_pull",
            "",
            "Interrupts that the last pull sent",
            Some(health.flushes),
        ),
        count(
            "group_exchanges",
            "Times a CPU went on to the next group of counters",
            health.exchanges,
        ),
        gauge(
            "rows",
            "",
            "Rows in the kernel's map",
            Some(health.rows as u64),
        ),
        gauge(
            "map_memory_bytes",
            "B",
            "Kernel memory of the maps, by arithmetic",
            Some(health.memory.total() as u64),
        ),
        count(
            "missed_switches",
            "Switches that no program saw",
            health.missed_switches,
        ),
        count(
            "late_switches",
            "Switches that only a second program saw",
            health.late_switches,
        ),
        count(
            "moved_while_running",
            "Slices whose task was moved to another cgroup while it ran",
            health.moved_running,
        ),
        (
            "estimated_ns",
            "ns",
            Kind::Counter,
            "Time of which it is estimated whose it was",
            Some(health.estimated_nanos),
        ),
        count(
            "overflowed_charges",
            "Charges that no row had room for",
            health.overflowed,
        ),
        count(
            "refused_rows_full",
            "Rows refused, as the map was full",
            health.refused.full,
        ),
        count(
            "refused_rows_no_memory",
            "Rows refused, as there was no memory",
            health.refused.no_memory,
        ),
        count(
            "refused_rows_locked",
            "Rows refused, as the map was locked",
            health.refused.contended,
        ),
        count(
            "rebased_counters",
            "Counters that went back",
            health.rebased,
        ),
        count(
            "refused_reads",
            "Counter reads that the kernel refused",
            health.read_errors,
        ),
        count(
            "map_retries",
            "Map calls that were made again",
            health.map_retries,
        ),
        count(
            "lost_events",
            "Events of cgroups and processes that were lost",
            health.lost_events,
        ),
    ]
}

/// What is measured anew, of what SPE's account holds; all else only grows.
const GAUGES: [&str; 6] = [
    "spe_period",
    "spe_aux_bytes",
    "spe_rows",
    "spe_irq_off_ns_max",
    "spe_ns_per_record",
    "spe_ns_per_record_by_bpf_stats",
];

fn of_sampling(name: &str, value: u64) -> Line<'_> {
    let unit = match name {
        name if name.ends_with("_bytes") => "B",
        name if name.split('_').any(|word| word == "ns") => "ns",
        _ => "",
    };
    let kind = if GAUGES.contains(&name) {
        Kind::Gauge
    } else {
        Kind::Counter
    };
    (
        name,
        unit,
        kind,
        "Of sampling: see docs/spe.md",
        Some(value),
    )
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a count of more than 2^53 has no better precision"
)]
fn float(count: u64) -> f64 {
    count as f64
}
