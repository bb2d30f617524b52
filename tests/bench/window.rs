//! The cost of a window: a row of its pull, the difference of two snapshots, names and values, and
//! each format.
//!
//! The snapshots are synthetic: containers in pods, each with a row for every counter group on two
//! CPUs. Times are CPU times, the shortest of a few runs, which other load disturbs least.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(clippy::print_stdout, reason = "its output is the table")]
#![allow(
    clippy::cast_precision_loss,
    reason = "a benchmark's numbers are below 2^53"
)]

use std::{
    cell::Cell,
    collections::BTreeMap,
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
    emit::{Emitter, OutputFormat},
    join::{By, Joined, View},
    plan::{CountSource, EventColumn, MetricSource, Plan, PlannedMetric},
    snapshot::{Names, Snapshot},
    window::Window,
};
use test_harness::{Counting, bpf, thread_time};

const RUNS: usize = 5;

const CPUS: u16 = 2;

/// Number of shown events; further values are metrics of the catalogue.
const EVENTS: usize = 5;

/// Numbers of rows in a pull. A container with 50 metrics has 12 rows.
const ROWS: [u64; 7] = [1_000, 20_000, 40_000, 60_000, 80_000, 100_000, 120_000];

const FORMATS: [(&str, OutputFormat); 3] = [
    ("json", OutputFormat::Json),
    ("openmetrics", OutputFormat::OpenMetrics),
    ("csv", OutputFormat::Csv),
];

/// Measures each size in its own process, which gives the peak of its memory.
fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|it| it != "--bench")
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().unwrap();
    match arguments[..] {
        ["pull", rows] => return measure_pull(number(rows)),
        [cgroups, metrics] => return measure(number(cgroups), number(metrics)),
        [cgroups, metrics, format] => {
            return measure_peak(number(cgroups), number(metrics), format);
        }
        _ => {}
    }
    println!(
        "{:>8} {:>8} {:>8} | {:>9} {:>14} {:>9} {:>14} | {:>22} {:>24} {:>22} | peak MB: {}",
        "cgroups",
        "metrics",
        "values",
        "window ms",
        "join+derive ms",
        "ns/value",
        "new names ms",
        "json MB, ms, MB/s",
        "openmetrics MB, ms, MB/s",
        "csv MB, ms, MB/s",
        FORMATS.map(|(name, _)| name).join(", "),
    );
    for metrics in ["5", "50"] {
        for cgroups in ["100", "1000", "10000"] {
            run_self(&[cgroups, metrics]);
            for (format, _) in FORMATS {
                run_self(&[cgroups, metrics, format]);
            }
            println!();
        }
    }
    println!("rows of a pull, us/row");
    for rows in ROWS {
        run_self(&["pull", &rows.to_string()]);
    }
}

/// Runs this program again with other arguments.
fn run_self(arguments: &[&str]) {
    let mut own = Command::new(std::env::current_exe().unwrap());
    assert!(own.args(arguments).status().unwrap().success());
}

/// Windows of a session: names stay the same, and each report reuses the previous one's memory.
struct Windows {
    plan: Plan,
    view: View,
    window: Window,
    before: Joined,
    report: Report,
}

impl Windows {
    fn new(cgroups: u64, metrics: u64) -> Self {
        let plan = plan(usize::try_from(metrics).unwrap());
        let view = View {
            by: By::Container,
            ..View::default()
        };
        let names = Arc::new(names(cgroups));
        let [earlier, later] = [1, 2].map(|seconds| snapshot(&plan, &names, seconds));
        let window = Window::between(&earlier, &later, &plan);
        let before = view.join(&plan, &window, None);
        // A session keeps only one snapshot.
        drop(earlier);
        let mut windows = Self {
            plan,
            view,
            window,
            before,
            report: Report::default(),
        };
        windows.next(true);
        windows
    }

    /// Makes the names and values of the next window; with `reuse`, from those of the previous one.
    fn next(&mut self, reuse: bool) {
        let before = reuse.then_some(&self.before);
        let joined = self.view.join(&self.plan, &self.window, before);
        let report = &mut self.report;
        report.renew(&self.plan, &self.window, &joined, &self.view);
    }
}

fn measure(cgroups: u64, metrics: u64) {
    let mut windows = Windows::new(cgroups, metrics);
    let names = Arc::clone(&windows.window.names);
    let [earlier, later] = [1, 2].map(|seconds| snapshot(&windows.plan, &names, seconds));
    let (between, _) = fastest(|| Window::between(&earlier, &later, &windows.plan));
    let (derive, ()) = fastest(|| windows.next(true));
    let (without_previous, ()) = fastest(|| windows.next(false));
    let text = FORMATS.map(|(_, format)| {
        let (megabytes, time) = write(format, &windows.report);
        let seconds = time.as_secs_f64();
        format!(
            "{megabytes:.2}, {:.2}, {:.0}",
            seconds * 1e3,
            megabytes / seconds
        )
    });
    let values = cgroups * metrics;
    print!(
        "{cgroups:>8} {metrics:>8} {values:>8} | {:>9.2} {:>14.2} {:>9.0} {:>14.2} | \
         {:>22} {:>24} {:>22} |",
        between.as_secs_f64() * 1e3,
        derive.as_secs_f64() * 1e3,
        derive.as_secs_f64() * 1e9 / values as f64,
        without_previous.as_secs_f64() * 1e3,
        text[0],
        text[1],
        text[2],
    );
    io::stdout().flush().unwrap();
}

/// Prints the peak memory of a session with this format: two snapshots, two windows and the text.
fn measure_peak(cgroups: u64, metrics: u64, format: &str) {
    let mut windows = Windows::new(cgroups, metrics);
    let names = Arc::clone(&windows.window.names);
    let [last, now] = [2, 3].map(|seconds| snapshot(&windows.plan, &names, seconds));
    windows.window = windows.window.next(&last, &now, &windows.plan);
    windows.next(true);
    let (_, format) = FORMATS.iter().find(|(name, _)| *name == format).unwrap();
    write(*format, &windows.report);
    print!(" {:.1}", peak_megabytes());
    io::stdout().flush().unwrap();
}

/// Megabytes of a window's text, and the time to write it. The buffer is reused, as in a session.
fn write(format: OutputFormat, report: &Report) -> (f64, Duration) {
    let written = Rc::new(Cell::new(0));
    let mut emitter = Emitter::new(Length(Rc::clone(&written)), format, false);
    let (time, ()) = fastest(|| emitter.write(report).unwrap());
    (written.get() as f64 / 1e6, time)
}

/// Prints the microseconds for a row in a pull with `number` rows in the kernel's map, or why no
/// session can start.
fn measure_pull(number: u64) {
    let plan = plan(50);
    let rows_per_container = plan.groups.len() as u64 * u64::from(CPUS);
    let rows = snapshot(&plan, &Arc::new(names(number / rows_per_container)), 1).rows;
    let Some(_machine) = test_harness::machine() else {
        return;
    };
    let mut counting = Counting::plain(test_harness::plan("task-clock"), |config| {
        config.max_rows = Some(u32::try_from(2 * rows.len()).unwrap());
    });
    let (without, _) = fastest(|| counting.session.pull().unwrap());
    let map = bpf::hash_map::<UsageKey, UsageRow>().unwrap();
    for (key, row) in rows.iter() {
        bpf::put(map, key, row).unwrap();
    }
    let (with, snapshot) = fastest(|| counting.session.pull().unwrap());
    assert!(snapshot.rows.len() >= rows.len());
    let time = with.saturating_sub(without);
    let per_row = time.as_secs_f64() * 1e6 / rows.len() as f64;
    println!("{:>8} {per_row:.3}", rows.len());
}

/// A writer that only stores the length of the last text.
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

/// The shortest time, and the last result. Earlier results are dropped, as in a session.
fn fastest<T>(mut run: impl FnMut() -> T) -> (Duration, T) {
    let mut best = Duration::MAX;
    let mut last = None;
    for _ in 0..RUNS {
        drop(last.take());
        let begin = thread_time();
        last = Some(black_box(run()));
        best = best.min(thread_time().saturating_sub(begin));
    }
    (best, last.unwrap())
}

/// Five events, and core metrics of the catalogue with events in further groups.
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
        .map(|at| EventColumn {
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
    let is_core = |metric: &&probe_user::catalogue::Metric| {
        let counted = |event: &&str| metric.pmu.events[*event].sampled.is_none();
        metric.pmu.per == Per::Cpu
            && metric.valid_on(&machine).is_ok()
            && metric.events().iter().all(counted)
    };
    let chosen = catalogue.metrics().filter(is_core).take(metrics - EVENTS);
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

/// Names of containers, two in a pod.
fn names(cgroups: u64) -> Names {
    let path = |cgroup: u64| {
        let hash = hash(cgroup);
        let uid = format!("{:08x}_0000_4000_8000_{:012x}", hash >> 32, cgroup / 2);
        let id = format!("{hash:016x}").repeat(4);
        format!("/kubepods.slice/kubepods-pod{uid}.slice/cri-containerd-{id}.scope")
    };
    Names {
        cgroups: (0..cgroups)
            .map(|cgroup| (CgroupId(cgroup + 100), path(cgroup)))
            .collect(),
        ..Names::default()
    }
}

fn hash(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A snapshot `seconds` after the session began.
fn snapshot(plan: &Plan, names: &Arc<Names>, seconds: u64) -> Snapshot {
    let rows = names.cgroups.keys().flat_map(|cgroup| {
        let hash = hash(cgroup.0);
        // Denominators are larger than numerators, so that ratios are below their bounds.
        let count = move |at: usize| seconds * (hash >> 40) * (at as u64 + 3);
        let row = UsageRow {
            counts: std::array::from_fn(count),
            enabled: seconds * 400_000_000,
            running: seconds * 400_000_000,
            estimated: 0,
            made: 1,
        };
        let places =
            (0..plan.groups.len()).flat_map(|group| (0..CPUS).map(move |cpu| (group, cpu)));
        places.map(move |(group, cpu)| {
            let key = UsageKey {
                cgroup: *cgroup,
                tgid: 0,
                cpu,
                group: u16::try_from(group).unwrap(),
            };
            (key, row)
        })
    });
    Snapshot {
        at: Duration::from_secs(seconds),
        rows: rows.collect(),
        names: Arc::clone(names),
        ..Snapshot::default()
    }
}

/// Peak memory of this process.
fn peak_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let words = line.unwrap().split_whitespace().nth(1).unwrap();
    words.parse::<f64>().unwrap() / 1024.0
}
