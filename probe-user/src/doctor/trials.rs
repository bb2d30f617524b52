//! Trials on the running kernel: a counter on each CPU, one in a cgroup, all counters of a core,
//! and a whole session.

use std::{
    fs::File,
    io,
    os::fd::AsFd as _,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{Area, Finding, Loss, Subject};
use crate::{
    catalogue::{Catalogue, Hardware, MetricSettings},
    event::{self, Counter, Exclude},
    machine::{Machine, Pmus, cgroup::Hierarchy, cpus::CpuList},
    plan::{
        self, Capacity, CounterTest, CounterTestError, Plan, PlanRequest, PlanRequestError,
        ResolvedRequest,
    },
    session::{Config, Session, SessionError},
    sys::perf,
    window::Window,
};

const AREA: Area = Area::Trials;

/// How long the session counts.
const TRIAL_TIME: Duration = Duration::from_millis(50);

/// The events of the session, if the machine has hardware counters.
pub(super) const TRIAL_EVENTS: &str = "task-clock,cycles,instructions";

/// Trials on a kernel.
pub(super) trait Trials {
    /// Opens a software event for all tasks of a CPU.
    fn open_on_cpu(&self, cpu: u32) -> io::Result<()>;

    /// Opens a software event for the tasks of a cgroup on CPU 0.
    fn open_in_cgroup(&self, directory: &Path) -> io::Result<()>;

    /// What the PMUs can count at one time.
    fn capacity(
        &self,
        request: &PlanRequest,
        machine: &Machine,
        catalogue: &Catalogue,
        hardware: &Hardware,
    ) -> Result<Capacity, PlanRequestError>;

    /// Runs a known loop with all counters of each core PMU. Returns the result by the PMU's name.
    fn counters(
        &self,
        pmus: &Pmus,
    ) -> Vec<(String, Result<plan::CounterTestResult, CounterTestError>)>;

    /// Loads and attaches the programs, counts for [`TRIAL_TIME`], and detaches them.
    fn count(&self) -> Result<TrialResult, String>;
}

/// The result of the session.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrialResult {
    /// Number of owners with time.
    pub(super) owners: usize,
    /// Charged time, idle included, as a percentage of the CPUs' time.
    pub(super) percent: u32,
    /// Error of `percent`: a CPU's window begins and ends at some moment within the two pulls.
    pub(super) within: u32,
    /// Nanoseconds to read a counter: a hardware counter, if there is one.
    pub(super) read: Option<u64>,
    /// The largest share of a CPU's time taken by counting, in parts per million.
    pub(super) ppm: Option<u64>,
}

pub(super) fn check(
    subject: &Subject,
    hierarchy: Option<&Hierarchy>,
    pmus: Option<&Pmus>,
) -> Vec<Finding> {
    let mut findings = vec![open_counter(subject)];
    let tried = pmus.map_or_else(Vec::new, |pmus| subject.trials.counters(pmus));
    findings.extend(tried.iter().map(|(pmu, counted)| counters(pmu, counted)));
    findings.push(session(subject, hierarchy));
    findings
}

fn open_counter(subject: &Subject) -> Finding {
    let check = "open a counter";
    let online = match subject.machine.online() {
        Ok(online) => online,
        Err(error) => {
            let loss = Loss::new("everything: it is not known which CPUs there are")
                .run("mount sysfs", "sudo mount -t sysfs none /sys");
            return AREA.stops(check, error.to_string(), loss);
        }
    };
    let mut refused: Option<io::Error> = None;
    let failed: CpuList = online
        .iter()
        .filter(|cpu| match subject.trials.open_on_cpu(*cpu) {
            Ok(()) => false,
            Err(error) => {
                refused.get_or_insert(error);
                true
            }
        })
        .collect();
    let Some(error) = refused else {
        return AREA.ok(
            check,
            format!("task-clock, for all tasks, on CPUs {online}"),
        );
    };
    let loss = Loss::new("everything: the tasks of those CPUs cannot be counted");
    let loss = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => loss.advise(
            "grant the capabilities (see rights above); in a container, allow perf_event_open \
                 in its seccomp profile",
        ),
        Some(libc::EMFILE | libc::ENFILE) => loss.run("raise the limit", "ulimit -n 65536"),
        _ => loss.advise("see `dmesg` for the kernel's reason"),
    };
    AREA.stops(check, format!("refused on CPUs {failed}: {error}"), loss)
}

/// Whether each counter of a core PMU counts a known loop correctly.
fn counters(pmu: &str, counted: &Result<plan::CounterTestResult, CounterTestError>) -> Finding {
    let check = "counters";
    let counted = match counted {
        Ok(counted) => counted,
        Err(reason) => {
            let loss = Loss::new("the proof that its counters count right")
                .advise("compare a count of instructions with that of another machine");
            return AREA.missing(check, format!("{pmu}: not tried: {reason}"), loss);
        }
    };
    let Some(fault) = counted.fault(pmu) else {
        let held = match counted.held {
            0 => String::new(),
            held => format!("; others hold {held} more"),
        };
        let (all, executed) = (counted.counts.len(), counted.executed);
        let found =
            format!("{pmu}: each of the {all} that are free counts {executed} instructions{held}");
        return AREA.ok(check, found);
    };
    let loss = if counted.working() < counted.counts.len() {
        Loss::new("the counters from that one on: fewer events are counted at one time")
    } else {
        Loss::new("trust in its counts: pmuscope uses them as they are")
    };
    let advice = "other tools use these counters too: do not trust their counts; in a virtual \
                  machine the hypervisor provides the counters: report it to its provider";
    AREA.degraded(check, fault, loss.advise(advice))
}

fn session(subject: &Subject, hierarchy: Option<&Hierarchy>) -> Finding {
    let check = "count";
    let not_tried = |why: &str| {
        let loss = Loss::new("the proof that the kernel takes the programs")
            .advise(format!("fix {why} above, and run doctor again"));
        AREA.missing(check, format!("not tried, for lack of {why}"), loss)
    };
    if !subject.may_count() {
        return not_tried("capabilities");
    }
    if hierarchy.is_none() {
        return not_tried("cgroup2");
    }
    match subject.trials.count() {
        Ok(TrialResult {
            owners,
            percent,
            within,
            read,
            ppm,
        }) => {
            let mut found = format!(
                "programs loaded and attached, {owners} owners charged in {} ms, {percent}% ± \
                 {within}% of the CPUs' time accounted for",
                TRIAL_TIME.as_millis()
            );
            if let Some((read, ppm)) = read.zip(ppm) {
                let (percent, hundredths) = (ppm / 10_000, ppm % 10_000 / 100);
                found += &format!(
                    ", a counter read in {read} ns, {percent}.{hundredths:02}% of a CPU taken by \
                     counting"
                );
            }
            AREA.ok(check, found)
        }
        Err(error) => {
            let loss = Loss::new("everything: the programs do not run here").run(
                "show what the kernel says of them",
                "PMUSCOPE_LOG=debug pmuscope stat -e task-clock -- true",
            );
            AREA.stops(check, error, loss)
        }
    }
}

/// The running kernel.
pub(super) struct RunningKernel {
    pub(super) machine: Arc<Machine>,
}

impl Trials for RunningKernel {
    fn open_on_cpu(&self, cpu: u32) -> io::Result<()> {
        perf::open(&Counter::task_clock().attr(), Exclude::default(), cpu, None).map(drop)
    }

    fn open_in_cgroup(&self, directory: &Path) -> io::Result<()> {
        let directory = File::open(directory)?;
        perf::open_in_cgroup(&Counter::task_clock().attr(), directory.as_fd(), 0).map(drop)
    }

    fn capacity(
        &self,
        request: &PlanRequest,
        machine: &Machine,
        catalogue: &Catalogue,
        hardware: &Hardware,
    ) -> Result<Capacity, PlanRequestError> {
        request.capacity(machine, catalogue, hardware)
    }

    fn counters(
        &self,
        pmus: &Pmus,
    ) -> Vec<(String, Result<plan::CounterTestResult, CounterTestError>)> {
        let cores = pmus.cores();
        let tried = cores.map(|pmu| {
            let counters = CounterTest::for_pmu(pmu, pmus);
            let counted = counters.and_then(|counters| counters.count());
            (pmu.name.clone(), counted)
        });
        tried.collect()
    }

    fn count(&self) -> Result<TrialResult, String> {
        let failed = |error: SessionError| error.to_string();
        let start = |events: &str| -> Result<Session, String> {
            let config = Config {
                plan: plan(&self.machine, events)?,
                ..Config::default()
            };
            Session::start(config, &self.machine).map_err(failed)
        };
        // Counts hardware events if possible, since they cost more to read.
        let mut session = start(TRIAL_EVENTS).or_else(|_| start("task-clock"))?;
        let mut pull_time = Duration::ZERO;
        let mut pull = || {
            let began = Instant::now();
            let snapshot = session.pull().map_err(failed);
            pull_time += began.elapsed();
            snapshot
        };
        let first = pull()?;
        thread::sleep(TRIAL_TIME);
        let last = pull()?;
        let cost = last.health.cost;
        let window = Window::between(&first, &last, session.plan());
        let rows: Vec<u64> = window
            .usage
            .values()
            .filter_map(|groups| Some(groups.first()?.as_ref()?.counts[0]))
            .collect();
        let cpus = self.machine.online().map_err(|error| error.to_string())?;
        let length = last.at.saturating_sub(first.at).as_nanos();
        let available = length * cpus.len() as u128;
        let charged: u128 = rows.iter().map(|nanos| u128::from(*nanos)).sum();
        let percent = (charged * 100).checked_div(available).unwrap_or(0);
        let within = (pull_time.as_nanos() * 100).div_ceil(length.max(1));
        if charged == 0 {
            return Err(format!(
                "the programs were loaded and attached, and charged nothing in {} ms",
                TRIAL_TIME.as_millis()
            ));
        }
        Ok(TrialResult {
            owners: rows.iter().filter(|nanos| **nanos > 0).count(),
            percent: u32::try_from(percent).unwrap_or(u32::MAX),
            within: u32::try_from(within).unwrap_or(u32::MAX),
            read: cost.read.each(),
            ppm: cost.ppm(),
        })
    }
}

/// The plan of a session that counts these events: task-clock first, events of each kind of core on
/// its own CPUs.
pub(super) fn plan(machine: &Machine, events: &str) -> Result<Plan, String> {
    let pmus = machine.pmus().map_err(|error| error.to_string())?;
    let catalogue = Catalogue::builtin().map_err(|error| error.to_string())?;
    let hardware = Hardware::detect(machine);
    let request = ResolvedRequest {
        events: &event::parse(events, pmus).map_err(|error| error.to_string())?,
        metrics: &[],
        offered: &[],
        machine: hardware,
        cpus: machine.online().map_err(|error| error.to_string())?.len(),
        settings: MetricSettings::default(),
    };
    // The documented capacity suffices: the session itself shows what fits the PMU.
    let capacity = Capacity::documented(&catalogue, &hardware, pmus, 0);
    Plan::packed(&request, pmus, &capacity).map_err(|error| error.to_string())
}
