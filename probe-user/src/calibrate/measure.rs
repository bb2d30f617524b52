//! Counts events while each kernel of the calibration runs.

use std::{sync::Arc, thread, time::Instant};

use super::{
    CalibrateError, CalibrateOptions,
    kernels::Kernel,
    load::{ThreadBytes, run},
    place::{CPUS, Place},
    vectors::{KernelRuns, Run, calibrated_for_sockets},
};
use crate::{
    calibration::{CalibratedMachine, CalibratedTraffic},
    catalogue::{Catalogue, resolve_hardware},
    join::share::{Accesses, Weights, measured_traffic},
    machine::{Machine, cpus::CpuList},
    plan::{Plan, PlanRequest, PlannedWeight, RESERVE_COUNTERS},
    roofline::allowed_cpus,
    session::{Config, Session},
    window::{Window, float},
};

/// The number of measurements of each kernel, on one CPU and again on all CPUs.
const RUNS: usize = 3;
/// Bytes to use if Linux reports no caches: the memory of all threads, and what stays in the caches
/// of one core and of all cores.
const WITHOUT_CACHES: (u64, u64, u64) = (384 << 20, 256 << 10, 256 << 10);
/// The memory as a multiple of the last-level caches: STREAM's rule for three arrays.
const BEYOND_CACHES: u64 = 12;

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// This machine.
    pub machine: CalibratedMachine,
    /// The calibration of each metric.
    pub traffics: Vec<CalibratedTraffic>,
    /// By metric and kernel, in the order of measurement.
    pub patterns: Vec<MeasuredPattern>,
    /// Metrics and their events that are left out, since these also count accesses that are not of
    /// the metric's traffic.
    pub left_out: Vec<(String, String)>,
    /// Metrics that are left out, each in a sentence with the reason.
    pub undivided: Vec<String>,
}

/// What a kernel moved, and what events counted for it.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredPattern {
    /// The metric.
    pub metric: String,
    /// The kernel and its number of CPUs.
    pub name: String,
    /// The traffic per second, in counts of the metric.
    pub per_second: f64,
    /// By event: its counts for each count of the traffic; None for a kernel that moves none of it.
    pub counts: Option<Vec<f64>>,
    /// Names of the events.
    pub events: Vec<String>,
}

/// Runs every kernel on this machine, which must do nothing else. It takes two minutes if a
/// measurement takes a second, and four with two sockets. `progress` gets the name of each kernel
/// before it runs.
///
/// # Errors
///
/// The machine cannot count the metrics, has more than two sockets, or is not quiet.
pub fn calibrate(
    machine: &Arc<Machine>,
    options: &CalibrateOptions,
    progress: impl FnMut(&str),
) -> Result<Measured, CalibrateError> {
    let places = Place::all(machine)?;
    let wanted = plan(machine, options, options.metrics.clone())?;
    let (usable, undivided) = metrics(&wanted, &places);
    if usable.is_empty() {
        let reason = undivided.into_iter().next();
        return Err(reason.unwrap_or(CalibrateError::NothingToCalibrate));
    }
    let (plan, metrics) = match usable.len() == wanted.metrics.list.len() {
        true => (wanted, usable),
        // Events of the other metrics would take counters from these.
        false => {
            let names = usable.into_iter().map(|metric| metric.name).collect();
            let plan = plan(machine, options, names)?;
            let (metrics, _) = metrics(&plan, &places);
            (plan, metrics)
        }
    };
    let config = Config {
        plan: plan.clone(),
        ..Config::default()
    };
    let mut measurement = Measurement {
        session: Session::start(config, machine)?,
        metrics,
        plan,
        options,
    };
    let online = machine.online()?;
    let allowed = allowed_cpus().map_err(Box::new)?;
    let topology = machine.topology();
    let runs_kernels = |cpu: &u32| {
        allowed.contains(*cpu) && (places.len() == 1 || topology.socket(*cpu) == Some(CPUS))
    };
    let cpus: Vec<u32> = online.iter().filter(runs_kernels).collect();
    if cpus.is_empty() {
        return Err(CalibrateError::NoCpus(CPUS));
    }
    let kernels = measurement.run_kernels(machine, &cpus, &places, progress)?;
    measurement.measured(machine, &places, &kernels, undivided)
}

/// A metric to calibrate.
struct MetricToCalibrate {
    /// Index into the metrics of the plan.
    at: usize,
    name: String,
    /// The weights of the metric's traffic: indices into the plan's weights, and names.
    weights: Vec<(usize, String)>,
}

/// The plan of these metrics; without any, of those of the machine's profile.
fn plan(
    machine: &Machine,
    options: &CalibrateOptions,
    metrics: Vec<String>,
) -> Result<Plan, CalibrateError> {
    let catalogue = Catalogue::builtin().map_err(Box::new)?;
    let hardware = resolve_hardware(machine, options.chip);
    let profile_metrics = hardware.profile().map(|profile| profile.metrics.clone());
    let metrics = match metrics.is_empty() {
        true => profile_metrics.unwrap_or_default(),
        false => metrics,
    };
    if metrics.is_empty() {
        return Err(CalibrateError::NothingToCalibrate);
    }
    let wanted = PlanRequest {
        metrics,
        all_weights: true,
        reserve_counters: RESERVE_COUNTERS,
        ..PlanRequest::default()
    };
    let plan = wanted
        .plan(machine, &catalogue, hardware)
        .map_err(Box::new)?;
    Ok(plan)
}

/// The metrics to calibrate, and why others cannot be. With two sockets only events are of use that
/// count the accesses to each memory apart.
fn metrics(plan: &Plan, places: &[Place]) -> (Vec<MetricToCalibrate>, Vec<CalibrateError>) {
    let (mut metrics, mut undivided) = (Vec::new(), Vec::new());
    for (at, planned) in plan.metrics.list.iter().enumerate() {
        let Some(traffic) = planned.metric.apportion.needs() else {
            continue;
        };
        let all = plan.weights.iter().enumerate();
        let of_traffic: Vec<_> = all.filter(|(_, weight)| weight.of == traffic).collect();
        if of_traffic.is_empty() {
            continue;
        }
        let name = planned.metric.name.clone();
        let several = places.len() > 1;
        let tells_memories = |weight: &PlannedWeight| !several || weight.local;
        let weights: Vec<(usize, String)> = (of_traffic.into_iter())
            .filter(|(_, weight)| tells_memories(weight))
            .map(|(at, weight)| (at, weight.name.to_string()))
            .collect();
        if weights.is_empty() || several && !planned.metric.is_of_all_sockets() {
            undivided.push(CalibrateError::BothMemories(name));
            continue;
        }
        metrics.push(MetricToCalibrate { at, name, weights });
    }
    (metrics, undivided)
}

struct Measurement<'a> {
    session: Session,
    metrics: Vec<MetricToCalibrate>,
    plan: Plan,
    options: &'a CalibrateOptions,
}

/// The runs of one kernel, by metric.
type ByMetric = Vec<KernelRuns>;

impl Measurement<'_> {
    /// Runs every kernel on one CPU and on all CPUs, with the memory of each place. Returns the
    /// runs by place.
    fn run_kernels(
        &mut self,
        machine: &Machine,
        cpus: &[u32],
        places: &[Place],
        mut progress: impl FnMut(&str),
    ) -> Result<Vec<Vec<ByMetric>>, CalibrateError> {
        let list: CpuList = cpus.iter().copied().collect();
        let caches = machine.caches(&list);
        let level = caches.iter().map(|cache| cache.level).max();
        let last = caches.iter().filter(|cache| Some(cache.level) == level);
        let last: Vec<u64> = last.map(|cache| cache.size).collect();
        let last_bytes: u64 = last.iter().sum();
        // A core uses one of the last-level caches, and shares it with others.
        let (memory, core_cache, all_caches) = match last.iter().min() {
            None => WITHOUT_CACHES,
            Some(smallest) => (last_bytes * BEYOND_CACHES, smallest / 2, last_bytes / 2),
        };
        let memory = self.options.size.unwrap_or(memory);
        let mut by_place = Vec::new();
        for place in places {
            let suffix = if place.is_remote() { ", remote" } else { "" };
            let mut kernels = Vec::new();
            for threads in [1, cpus.len()] {
                if threads == 1 && cpus.len() == 1 && !kernels.is_empty() {
                    break;
                }
                let each = threads as u64;
                let bytes = ThreadBytes {
                    memory: memory / each,
                    cached: core_cache.min(all_caches / each),
                };
                for kernel in Kernel::ALL {
                    let name = format!("{} on {threads}{suffix}", kernel.name());
                    progress(&name);
                    kernels.push(self.run_kernel(kernel, &name, &cpus[..threads], place, bytes)?);
                }
            }
            by_place.push(kernels);
        }
        Ok(by_place)
    }

    /// The runs of one kernel, minus the counts while nothing runs.
    fn run_kernel(
        &mut self,
        kernel: Kernel,
        name: &str,
        cpus: &[u32],
        place: &Place,
        bytes: ThreadBytes,
    ) -> Result<ByMetric, CalibrateError> {
        let before = self.measure(name, place)?;
        let runs = run(kernel, cpus, &place.nodes, bytes, || {
            // The first measurement may include the start of the threads, so it is discarded.
            self.measure(name, place)?;
            (0..RUNS)
                .map(|_| self.measure(name, place))
                .collect::<Result<Vec<_>, _>>()
        })?;
        let after = self.measure(name, place)?;
        let of_metric = |at: usize| {
            let idle = [&before[at], &after[at]];
            let metric_runs: Vec<&Run> = runs.iter().map(|run| &run[at]).collect();
            let others = idle.map(|idle| idle.traffic / idle.seconds);
            KernelRuns {
                name: name.to_owned(),
                moves: kernel.moves_memory(),
                threads: cpus.len(),
                others: others.into_iter().fold(0.0, f64::max),
                runs: less_idle(&metric_runs, idle),
            }
        };
        Ok((0..self.metrics.len()).map(of_metric).collect())
    }

    /// Waits for the time of a measurement. Meanwhile groups of counters take turns, if the events
    /// do not fit at one time.
    fn wait(&mut self) -> Result<(), CalibrateError> {
        let end = Instant::now() + self.options.time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let next = match self.session.rotates() {
                true => self.session.rotate_if_due(None)?,
                false => left,
            };
            thread::sleep(next.min(left));
        }
    }

    /// Counts during one measurement. Returns a run for each metric.
    fn measure(&mut self, kernel: &str, place: &Place) -> Result<Vec<Run>, CalibrateError> {
        let begin = self.session.pull()?;
        self.wait()?;
        let end = self.session.pull()?;
        let window = Window::between(&begin, &end, &self.plan);
        let metrics = self.metrics.iter();
        metrics
            .map(|metric| self.metric_run(metric, &window, kernel, place))
            .collect()
    }

    fn metric_run(
        &self,
        metric: &MetricToCalibrate,
        window: &Window,
        kernel: &str,
        place: &Place,
    ) -> Result<Run, CalibrateError> {
        let not_counted = |what: &str| CalibrateError::NotCounted {
            metric: metric.name.clone(),
            what: what.to_owned(),
            kernel: kernel.to_owned(),
        };
        let planned = &self.plan.metrics.list[metric.at];
        let traffic = measured_traffic(planned, window, place.socket)
            .ok_or_else(|| not_counted("the traffic"))?;
        let count = |accesses: Accesses, (at, name): &(usize, String)| {
            let weights = Weights::counted(&self.plan.weights[*at], window);
            let counted = weights.all_of(CPUS, accesses);
            Ok(counted.ok_or_else(|| not_counted(name))?.map(float).sum())
        };
        let elsewhere = match place.accesses {
            Accesses::All => None,
            Accesses::Local => Some(Accesses::Remote),
            Accesses::Remote => Some(Accesses::Local),
        };
        let kinds = [Some(place.accesses), elsewhere].into_iter().flatten();
        let weights = kinds.flat_map(|kind| metric.weights.iter().map(move |it| (kind, it)));
        let counts: Result<Vec<f64>, CalibrateError> =
            weights.map(|(kind, weight)| count(kind, weight)).collect();
        Ok(Run {
            seconds: window.length.as_secs_f64(),
            traffic: float(traffic),
            counts: counts?,
        })
    }

    fn measured(
        &self,
        machine: &Machine,
        places: &[Place],
        kernels: &[Vec<ByMetric>],
        mut undivided: Vec<CalibrateError>,
    ) -> Result<Measured, CalibrateError> {
        let mut measured = Measured {
            machine: CalibratedMachine::of(machine),
            traffics: Vec::new(),
            patterns: Vec::new(),
            left_out: Vec::new(),
            undivided: Vec::new(),
        };
        for (at, metric) in self.metrics.iter().enumerate() {
            let events: Vec<String> = metric.weights.iter().map(|(_, it)| it.clone()).collect();
            let by_place: Vec<Vec<KernelRuns>> = (kernels.iter())
                .map(|kernels| kernels.iter().map(|all| all[at].clone()).collect())
                .collect();
            let (traffic, left_out) = match calibrated_for_sockets(&metric.name, &events, &by_place)
            {
                Err(reason @ CalibrateError::NoEvent { .. }) => {
                    undivided.push(reason);
                    continue;
                }
                result => result?,
            };
            let left_out = left_out
                .into_iter()
                .map(|event| (metric.name.clone(), event));
            measured.left_out.extend(left_out);
            for (place, runs) in places.iter().zip(&by_place) {
                let patterns = match place.is_remote() {
                    true => &traffic.remote,
                    false => &traffic.patterns,
                };
                measured.patterns.extend(runs.iter().map(|kernel| {
                    let is_pattern = patterns.iter().any(|it| it.name == kernel.name);
                    let counts = (0..events.len()).map(|event| kernel.per_traffic(event));
                    MeasuredPattern {
                        metric: metric.name.clone(),
                        name: kernel.name.clone(),
                        per_second: kernel.traffic_per_second(),
                        counts: is_pattern.then(|| counts.collect()),
                        events: events.clone(),
                    }
                }));
            }
            measured.traffics.push(traffic);
        }
        measured.undivided = undivided.iter().map(ToString::to_string).collect();
        match undivided.into_iter().next() {
            Some(reason) if measured.traffics.is_empty() => Err(reason),
            _ => Ok(measured),
        }
    }
}

/// The runs without what other programs cause: the rates of two measurements without a kernel are
/// subtracted.
fn less_idle(runs: &[&Run], idle: [&Run; 2]) -> Vec<Run> {
    let rate = |value: &dyn Fn(&Run) -> f64| {
        let sum: f64 = idle.iter().map(|run| value(run)).sum();
        sum / idle.iter().map(|run| run.seconds).sum::<f64>()
    };
    let without = |run: &&Run| {
        let less = |value: f64, rate: f64| (value - rate * run.seconds).max(0.0);
        let counts = run.counts.iter().enumerate();
        Run {
            seconds: run.seconds,
            traffic: less(run.traffic, rate(&|run| run.traffic)),
            counts: counts
                .map(|(event, count)| less(*count, rate(&|run| run.counts[event])))
                .collect(),
        }
    };
    runs.iter().map(without).collect()
}
