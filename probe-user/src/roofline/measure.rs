//! Measures latency, peak and bandwidth for all groups of CPUs, numbers of threads and sizes.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::{
    RooflineError, RooflineOptions, allowed_cpus,
    kernels::{Arrays, Chain, Stores, TRIAD_BYTES, Vectors},
    result::{
        Bandwidth, Disturbance, FORMAT, Latency, MeasuredCpus, Peak, Roofline, RunStats,
        bytes_in_flight, lines_per_core, roofs,
    },
    sweep::{self, CpuGroup, CpuLocation, MEMORY, WorkingSet},
    timed::{Repeat, TimedRun, timed},
    work::{Chase, HugePages, MultiplyAdd, ROUNDS, Triad},
};
use crate::{
    catalogue::Hardware,
    machine::{Machine, caches::Cache, cpu_time::CpuTime, cpus::CpuList, limits::Limits},
    sys::clock,
};

/// The least length of a run: much more than the clock's resolution, but less than a time slice, so
/// that some runs are undisturbed.
const MIN_RUN_TIME: Duration = Duration::from_millis(1);

/// The time limit for one point of the sweep. It applies once the point has the minimum number of
/// runs.
const MAX_POINT_TIME: Duration = Duration::from_secs(1);

/// If no sizes are given, arrays may use the free memory divided by this.
const MEMORY_DIVISOR: u64 = 4;

/// Bytes of free memory to assume if the kernel does not report them.
const UNKNOWN_MEMORY: u64 = 1 << 30;

/// Measures this machine, on all CPUs that this process may use. Takes some seconds; with hundreds
/// of CPUs a minute or two.
///
/// # Errors
///
/// The CPUs are unknown or cannot be used, a thread cannot start, or memory cannot be allocated.
pub fn measure(machine: &Machine, options: &RooflineOptions) -> Result<Roofline, RooflineError> {
    let before = (clock::now(), CpuTime::now(machine), clock::process_time());
    let setup = Setup::new(machine, options)?;
    let mut results = Measurements::default();
    for group in &setup.groups {
        if group.socket.is_some() {
            setup.latencies(group, &mut results)?;
        }
    }
    for group in &setup.groups {
        for threads in setup.thread_counts(group) {
            setup.peak(group, threads, &mut results)?;
            setup.bandwidths(group, threads, &mut results)?;
        }
    }
    let roofs = roofs(&results.peaks, &results.bandwidths, MEMORY);
    let mut notes = setup.notes;
    if setup.repeat.runs < super::timed::MIN_RUNS {
        notes.push("few runs: the median says little".to_owned());
    }
    Ok(Roofline {
        format: FORMAT,
        platform: Hardware::detect(machine).platform.to_string(),
        vectors: setup.vectors.name(),
        line: setup.line,
        cpus: setup.cpus.to_string(),
        latencies: results.latencies,
        peaks: results.peaks,
        bandwidths: results.bandwidths,
        roofs,
        disturbance: disturbance(machine, before, &results.runs),
        notes,
    })
}

/// What other tasks did since `start`, at which `cpus` and `own` were the CPU times of the machine
/// and of this process.
fn disturbance(
    machine: &Machine,
    (start, cpus, own): (Duration, Option<CpuTime>, Duration),
    runs: &[TimedRun],
) -> Disturbance {
    let seconds = clock::now().saturating_sub(start).as_secs_f64();
    let used = CpuTime::now(machine)
        .zip(cpus)
        .map(|(now, then)| now.since(&then));
    let own = clock::process_time().saturating_sub(own);
    Disturbance {
        seconds,
        cpus: machine.online().map_or(0, |online| online.len()),
        others: used.map(|used| used.busy.saturating_sub(own).as_secs_f64() / seconds),
        stolen: used.map(|used| used.stolen.as_secs_f64() / seconds),
        waited: super::result::waited(runs),
    }
}

/// The machine's facts and the options, before anything is measured.
struct Setup {
    cpus: CpuList,
    caches: Vec<Cache>,
    /// Bytes of a cache line.
    line: u64,
    groups: Vec<CpuGroup>,
    vectors: Vectors,
    max_threads: usize,
    /// The most bytes of all arrays together, if no sizes are given.
    max_bytes: u64,
    /// Numbers of threads, as in the options; empty: chosen for each group.
    threads: Vec<usize>,
    /// Sizes in bytes, as in the options; empty: chosen by the caches.
    sizes: Vec<u64>,
    repeat: Repeat,
    notes: Vec<String>,
}

/// Results so far.
#[derive(Default)]
struct Measurements {
    latencies: Vec<Latency>,
    peaks: Vec<Peak>,
    bandwidths: Vec<Bandwidth>,
    /// The runs of all results.
    runs: Vec<TimedRun>,
}

impl Setup {
    fn new(machine: &Machine, options: &RooflineOptions) -> Result<Self, RooflineError> {
        let online = machine.online()?;
        let cpus: CpuList = allowed_cpus()?
            .iter()
            .filter(|cpu| online.contains(*cpu))
            .collect();
        let caches = machine.caches(&cpus);
        let limits = Limits::for_self(machine);
        let mut notes = Vec::new();
        let max_threads = max_threads(cpus.len(), limits.cpus);
        let limited = max_threads < cpus.len();
        if limited {
            notes.push(format!(
                "the cgroup may use {:.1} CPUs: threads are measured up to {max_threads}",
                limits.cpus.unwrap_or_default()
            ));
        }
        if let Some(asked) = options.threads.iter().find(|asked| **asked > max_threads) {
            return Err(RooflineError::Threads {
                asked: *asked,
                most: max_threads,
                why: if limited { " by its cgroup" } else { "" },
            });
        }
        let free = limits.memory.unwrap_or(UNKNOWN_MEMORY);
        if let Some(asked) = options.sizes.iter().find(|asked| **asked > free / 4 * 3) {
            return Err(RooflineError::Size {
                asked: *asked,
                most: free,
            });
        }
        let max_bytes = free / MEMORY_DIVISOR;
        let all: Vec<u32> = cpus.iter().collect();
        if options.sizes.is_empty() && !sweep::is_beyond_caches(&caches, &all, max_bytes) {
            notes.push(format!(
                "a quarter of the free memory ({max_bytes} bytes) is less than twelve times the \
                 last-level caches, which STREAM asks for: caches hold a part of what is shown as \
                 memory"
            ));
        }
        if caches.is_empty() {
            notes.push("the machine tells no caches: only memory is measured".to_owned());
        }
        let topology = machine.topology();
        let first_of_core = |cpu: u32| {
            let list = |name: &str| -> Option<CpuList> {
                let file = format!("devices/system/cpu/cpu{cpu}/topology/{name}");
                machine.sys(&file)?.parse().ok()
            };
            let siblings = list("core_cpus_list").or_else(|| list("thread_siblings_list"));
            siblings.and_then(|list| list.iter().next()).unwrap_or(cpu)
        };
        let location = |cpu| CpuLocation {
            cpu,
            socket: topology.socket(cpu).unwrap_or(0),
            core: first_of_core(cpu),
        };
        let locations: Vec<CpuLocation> = cpus.iter().map(location).collect();
        Ok(Self {
            line: sweep::line_size(&caches),
            groups: sweep::cpu_groups(&locations),
            vectors: Vectors::detect(),
            max_threads,
            max_bytes,
            threads: options.threads.clone(),
            sizes: options.sizes.clone(),
            repeat: Repeat {
                runs: options.runs.max(1),
                min_run_time: MIN_RUN_TIME,
                max_total_time: MAX_POINT_TIME,
            },
            cpus,
            caches,
            notes,
        })
    }

    /// Numbers of threads to measure in a group.
    fn thread_counts(&self, group: &CpuGroup) -> Vec<usize> {
        if self.threads.is_empty() {
            return group.thread_counts(self.max_threads);
        }
        let is_possible = |threads: &usize| (1..=group.cpus.len()).contains(threads);
        self.threads.iter().copied().filter(is_possible).collect()
    }

    fn working_sets(&self, cpus: &[u32]) -> Vec<WorkingSet> {
        if self.sizes.is_empty() {
            return sweep::working_sets(&self.caches, cpus, self.max_bytes);
        }
        let given = |bytes: &u64| WorkingSet {
            level: format!("given {bytes}"),
            bytes: *bytes,
        };
        self.sizes.iter().map(given).collect()
    }

    fn measured_cpus(group: &CpuGroup, threads: usize) -> MeasuredCpus {
        let (cpus, cores) = group.first_cpus(threads);
        MeasuredCpus {
            socket: group.socket,
            threads: cpus.len(),
            cores,
            cpus: cpus.iter().copied().collect::<CpuList>().to_string(),
        }
    }

    /// The idle latency of each level on the first CPU of a socket.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn latencies(&self, group: &CpuGroup, results: &mut Measurements) -> Result<(), RooflineError> {
        let (Some(socket), Some(cpu)) = (group.socket, group.cpus.first()) else {
            return Ok(());
        };
        for WorkingSet { level, bytes } in self.working_sets(&[*cpu]) {
            // The size is that of STREAM's three arrays, but a chain has one.
            let bytes = if level == MEMORY { bytes / 3 } else { bytes };
            let chain = Chain::new(bytes, self.line);
            let huge_pages = HugePages::default();
            let work = Chase {
                chain: chain.map_err(|error| RooflineError::Memory { bytes, error })?,
                huge_pages: huge_pages.clone(),
            };
            let runs = timed(vec![(*cpu, work)], self.repeat)?;
            let nanoseconds = RunStats::nanoseconds(Chase::STEPS as f64, &runs);
            results
                .latencies
                .extend(nanoseconds.map(|nanoseconds| Latency {
                    socket,
                    cpu: *cpu,
                    level,
                    bytes,
                    nanoseconds,
                    huge_pages: huge_pages.ratio(),
                }));
            results.runs.extend(runs);
        }
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn peak(
        &self,
        group: &CpuGroup,
        threads: usize,
        results: &mut Measurements,
    ) -> Result<(), RooflineError> {
        let (cpus, _) = group.first_cpus(threads);
        let work = cpus.iter().map(|cpu| (*cpu, MultiplyAdd(self.vectors)));
        let runs = timed(work.collect(), self.repeat)?;
        let operations = (self.vectors.operations() * ROUNDS) as f64 * cpus.len() as f64;
        results
            .peaks
            .extend(RunStats::rates(operations, &runs).map(|flops| Peak {
                on: Self::measured_cpus(group, threads),
                flops,
            }));
        results.runs.extend(runs);
        Ok(())
    }

    fn bandwidths(
        &self,
        group: &CpuGroup,
        threads: usize,
        results: &mut Measurements,
    ) -> Result<(), RooflineError> {
        let (cpus, _) = group.first_cpus(threads);
        for working_set in self.working_sets(cpus) {
            self.bandwidth(group, threads, &working_set, Stores::Plain, results)?;
            // Non-temporal stores bypass the caches, so they are measured on memory and on given
            // sizes only.
            if working_set.level == MEMORY || !self.sizes.is_empty() {
                self.bandwidth(group, threads, &working_set, Stores::NonTemporal, results)?;
            }
        }
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn bandwidth(
        &self,
        group: &CpuGroup,
        threads: usize,
        working_set: &WorkingSet,
        stores: Stores,
        results: &mut Measurements,
    ) -> Result<(), RooflineError> {
        let (cpus, _) = group.first_cpus(threads);
        let bytes_per_thread = working_set.bytes / cpus.len() as u64;
        let huge_pages = HugePages::default();
        let mut elements = 0;
        let mut work = Vec::new();
        for (at, cpu) in cpus.iter().enumerate() {
            let arrays = Arrays::new(bytes_per_thread).map_err(|error| RooflineError::Memory {
                bytes: bytes_per_thread,
                error,
            })?;
            elements += arrays.elements();
            let triad = Triad {
                arrays,
                vectors: self.vectors,
                stores,
                huge_pages: (at == 0).then(|| huge_pages.clone()),
            };
            work.push((*cpu, triad));
        }
        let runs = timed(work, self.repeat)?;
        let on = Self::measured_cpus(group, threads);
        let latency_ns = latency(&results.latencies, group.socket, &working_set.level);
        results
            .bandwidths
            .extend(
                RunStats::rates((elements * TRIAD_BYTES) as f64, &runs).map(|rate| {
                    let in_flight = latency_ns.map(|ns| bytes_in_flight(rate.best, ns));
                    Bandwidth {
                        level: working_set.level.clone(),
                        bytes: Arrays::total_bytes(bytes_per_thread) * cpus.len() as u64,
                        stores,
                        bytes_per_second: rate,
                        huge_pages: huge_pages.ratio(),
                        latency_ns,
                        bytes_in_flight: in_flight,
                        lines_in_flight_per_core: in_flight
                            .map(|bytes| lines_per_core(bytes, self.line, on.cores)),
                        on,
                    }
                }),
            );
        results.runs.extend(runs);
        Ok(())
    }
}

/// The most threads: one for each CPU, but no more than the CPU quota lets run all the time.
fn max_threads(cpus: usize, quota: Option<f64>) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number that is made smaller"
    )]
    let quota = quota.map_or(usize::MAX, |quota| quota.floor() as usize);
    quota.clamp(1, cpus.max(1))
}

/// The best latency of a level on a socket, in nanoseconds; without a socket, the mean of the best
/// latencies of all sockets. None if the level was not measured.
#[expect(clippy::cast_precision_loss, reason = "a few sockets")]
fn latency(latencies: &[Latency], socket: Option<u32>, level: &str) -> Option<f64> {
    let matching = latencies.iter().filter(|latency| {
        latency.level == level && socket.is_none_or(|socket| latency.socket == socket)
    });
    let all: Vec<f64> = matching.map(|latency| latency.nanoseconds.best).collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}
