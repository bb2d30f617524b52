//! What a window costs: a row of its pull, the difference of two snapshots, names and values, and
//! each format.
//!
//! The snapshots are made up: containers in pods, each with a row for every counter group on two
//! CPUs. Times are of the CPU, the shortest of a few runs, which other load on the machine disturbs
//! least.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(clippy::print_stdout, reason = "its output is the table")]
#![allow(
    clippy::cast_precision_loss,
    reason = "a benchmark's numbers are below 2^53"
)]

#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod bpf;
#[path = "../host/support.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod support;

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    hint::black_box,
    io::{self, Write},
    process::Command,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use probe_common::{CgroupId, GROUP_COUNTERS, UsageKey, UsageRow};
use probe_user::{
    catalogue::{Catalogue, Chip, Hardware, Per},
    derive::Report,
    emit::{Emitter, Format},
    join::{By, View},
    plan::{Column, CountSource, MetricSource, Plan, PlannedMetric},
    snapshot::{Health, Names, Snapshot},
    window::Window,
};
use support::Counting;

const RUNS: usize = 5;

const CPUS: u16 = 2;

/// Events that are shown; what is beyond are metrics of the catalogue.
const EVENTS: usize = 5;

/// Each size is measured in a process of its own, so that its peak of memory is its own.
fn main() {
    let sizes: Vec<u64> = std::env::args().filter_map(|it| it.parse().ok()).collect();
    if let [cgroups, metrics] = sizes[..] {
        return measure(cgroups, usize::try_from(metrics).unwrap());
    }
    println!(
        "{:>8} {:>8} {:>8} | {:>11} {:>9} {:>14} {:>9} {:>8} | {:>22} {:>24} {:>22} | {:>8}",
        "cgroups",
        "metrics",
        "values",
        "pull us/row",
        "window ms",
        "join+derive ms",
        "ns/value",
        "peak MB",
        "json MB, ms, MB/s",
        "openmetrics MB, ms, MB/s",
        "csv MB, ms, MB/s",
        "peak MB"
    );
    for metrics in [5, 50] {
        for cgroups in [100, 1_000, 10_000] {
            let size = [cgroups, metrics].map(|it| it.to_string());
            let mut own = Command::new(std::env::current_exe().unwrap());
            assert!(own.args(size).status().unwrap().success());
        }
    }
}

fn measure(cgroups: u64, metrics: usize) {
    let plan = plan(metrics);
    let earlier = snapshot(&plan, cgroups, 1);
    let later = snapshot(&plan, cgroups, 2);
    let view = View {
        by: By::Container,
        ..View::default()
    };
    let values = usize::try_from(cgroups).unwrap() * metrics;
    let (between, window) = fastest(|| Window::between(&earlier, &later, &plan));
    let (derive, report) = fastest(|| {
        let joined = view.join(&plan, &window, None);
        Report::new(&plan, &window, &joined, &view)
    });
    let without_text = peak_megabytes();
    let write = |format| {
        // As in a session: its buffer is kept from window to window.
        let written = Rc::new(Cell::new(0));
        let mut emitter = Emitter::new(Length(Rc::clone(&written)), format, false);
        let (time, bytes) = fastest(|| {
            emitter.write(&report).unwrap();
            written.get()
        });
        let (megabytes, seconds) = (bytes as f64 / 1e6, time.as_secs_f64());
        let rate = megabytes / seconds;
        format!("{megabytes:.2}, {:.2}, {rate:.0}", seconds * 1e3)
    };
    let (json, openmetrics, csv) = (
        write(Format::Json),
        write(Format::OpenMetrics),
        write(Format::Csv),
    );
    let peak = peak_megabytes();
    let pull = pull(&later.rows);
    println!(
        "{cgroups:>8} {metrics:>8} {values:>8} | {:>11} {:>9.2} {:>14.2} {:>9.0} {without_text:>8.1} | \
         {:>22} {:>24} {:>22} | {:>8.1}",
        pull.map_or_else(|| "-".to_owned(), |pull| format!("{pull:.3}")),
        between.as_secs_f64() * 1e3,
        derive.as_secs_f64() * 1e3,
        derive.as_secs_f64() * 1e9 / values as f64,
        json,
        openmetrics,
        csv,
        peak
    );
}

/// Microseconds that a row takes in a pull with these rows in the kernel's map. None where no
/// session can be started; the reason is printed.
fn pull(rows: &HashMap<UsageKey, UsageRow>) -> Option<f64> {
    let _machine = support::machine()?;
    let mut counting = Counting::plain(support::plan("task-clock"), |config| {
        config.max_rows = Some(u32::try_from(2 * rows.len()).unwrap());
    });
    let (without, _) = fastest(|| counting.session.pull().unwrap());
    let map = bpf::hash_map::<UsageKey, UsageRow>().unwrap();
    for (key, row) in rows {
        bpf::put(map, key, row).unwrap();
    }
    let (with, snapshot) = fastest(|| counting.session.pull().unwrap());
    assert!(snapshot.rows.len() >= rows.len());
    let time = with.saturating_sub(without);
    Some(time.as_secs_f64() * 1e6 / rows.len() as f64)
}

/// A writer that keeps only the length of the last window's text.
struct Length(Rc<Cell<usize>>);

impl Write for Length {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.set(text.len());
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The shortest time, and the last result: a session has one at a time.
fn fastest<T>(mut run: impl FnMut() -> T) -> (Duration, T) {
    let mut best = Duration::MAX;
    let mut last = None;
    for _ in 0..RUNS {
        drop(last.take());
        let begin = cpu_time();
        last = Some(black_box(run()));
        best = best.min(cpu_time().saturating_sub(begin));
    }
    (best, last.unwrap())
}

/// What this thread has used of a CPU.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.try_into().unwrap()
}

/// Five events, and metrics of cores from the catalogue, whose events fill further groups.
fn plan(metrics: usize) -> Plan {
    let mut plan = Plan::default();
    let names = [
        "task-clock",
        "cycles",
        "instructions",
        "cache-misses",
        "branch-misses",
    ];
    plan.columns = (0..EVENTS)
        .map(|at| Column {
            name: names[at].to_owned(),
            unit: (at == 0).then(|| "ns".to_owned()),
            scale: 1.0,
            place: CountSource::Core { group: 0, at },
            clock: at == 0,
            shown: true,
        })
        .collect();
    let mut places: BTreeMap<String, CountSource> = BTreeMap::new();
    let mut next = GROUP_COUNTERS;
    let catalogue = Catalogue::builtin().unwrap();
    let machine = Hardware::of_chip(Chip::named("tegra410").unwrap());
    let of_cores = |metric: &&probe_user::catalogue::Metric| {
        let counted = |event: &&str| metric.pmu.events[*event].sampled.is_none();
        metric.pmu.per == Per::Cpu
            && metric.valid_on(&machine).is_ok()
            && metric.events().iter().all(counted)
    };
    let chosen = catalogue.metrics().filter(of_cores).take(metrics - EVENTS);
    for metric in chosen {
        let mut place = |event: &str| {
            *places.entry(event.to_owned()).or_insert_with(|| {
                let (group, at) = (next / GROUP_COUNTERS, next % GROUP_COUNTERS);
                next += 1;
                CountSource::Core { group, at }
            })
        };
        let events = metric.events().into_iter();
        plan.metrics.list.push(PlannedMetric {
            sources: Ok(vec![MetricSource {
                events: events
                    .map(|event| (event.to_owned(), place(event)))
                    .collect(),
                ..MetricSource::default()
            }]),
            io: Vec::new(),
            metric: metric.clone(),
        });
    }
    assert_eq!(plan.metrics.list.len(), metrics - EVENTS);
    plan.groups = vec![Vec::new(); next.div_ceil(GROUP_COUNTERS)];
    plan.metrics.machine = Some(machine);
    plan.metrics.cpus = CPUS.into();
    plan
}

/// What was counted in `seconds` since the session began.
fn snapshot(plan: &Plan, cgroups: u64, seconds: u64) -> Snapshot {
    let mut rows = HashMap::new();
    let mut names = Names::default();
    for cgroup in 0..cgroups {
        let id = CgroupId(cgroup + 100);
        let hash = cgroup.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let uid = format!("{:08x}_0000_4000_8000_{:012x}", hash >> 32, cgroup / 2);
        let path = format!(
            "/kubepods.slice/kubepods-pod{uid}.slice/cri-containerd-{}.scope",
            format!("{hash:016x}").repeat(4)
        );
        names.cgroups.insert(id, path);
        for group in 0..plan.groups.len() {
            for cpu in 0..CPUS {
                let key = UsageKey {
                    cgroup: id,
                    tgid: 0,
                    cpu,
                    group: u16::try_from(group).unwrap(),
                };
                // Larger denominators than numerators, so that shares are below their bounds.
                let count = |at: usize| seconds * (hash >> 40) * (at as u64 + 3);
                rows.insert(
                    key,
                    UsageRow {
                        counts: std::array::from_fn(count),
                        enabled: seconds * 400_000_000,
                        running: seconds * 400_000_000,
                        made: 1,
                    },
                );
            }
        }
    }
    Snapshot {
        at: Duration::from_secs(seconds),
        boot_time: Duration::ZERO,
        rows,
        freed: Vec::new(),
        uncore: Vec::new(),
        topology: None,
        devices: None,
        monitored: Vec::new(),
        spe: None,
        names: Arc::new(names),
        health: Health::default(),
    }
}

/// The most memory that this process had so far.
fn peak_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let words = line.unwrap().split_whitespace().nth(1).unwrap();
    words.parse::<f64>().unwrap() / 1024.0
}
