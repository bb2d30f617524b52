//! Measures all places with all numbers of threads over all sizes.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::{
    Options, RooflineError, allowed,
    kernels::{Arrays, Chain, Stores, TRIAD_BYTES, Vectors},
    places::{self, Amount, MEMORY, Place},
    result::{
        Bandwidth, Disturbance, FORMAT, Latency, On, Peak, Roofline, Runs, bytes_in_flight,
        lines_per_core, roofs,
    },
    timed::{Repeat, Run, timed},
    work::{Chase, Huge, MultiplyAdd, ROUNDS, Triad},
};
use crate::{
    catalogue::Hardware,
    machine::{Machine, caches::Cache, cpu_time::CpuTime, cpus::CpuList, limits::Limits},
    sys::clock,
};

/// A run is that long at least: much more than the clock's step, less than a time slice, so that
/// some run is undisturbed.
const LEAST: Duration = Duration::from_millis(1);

/// Of one point, beside the first runs.
const MOST: Duration = Duration::from_secs(1);

/// The part of free memory that is used unless sizes are given, as its inverse.
const PART_OF_MEMORY: u64 = 4;

/// Where free memory is not told.
const UNKNOWN_MEMORY: u64 = 1 << 30;

/// Measures this machine. Takes some seconds, and all CPUs that it may use.
///
/// # Errors
///
/// Where the CPUs cannot be told or used, or memory cannot be had.
pub fn measure(machine: &Machine, options: &Options) -> Result<Roofline, RooflineError> {
    let before = (clock::now(), CpuTime::now(machine), clock::process_time());
    let setup = Setup::new(machine, options)?;
    let mut all = Measured::default();
    for place in &setup.places {
        if place.socket.is_some() {
            setup.latencies(place, &mut all)?;
        }
    }
    for place in &setup.places {
        for threads in setup.threads_of(place) {
            setup.peak(place, threads, &mut all)?;
            setup.bandwidths(place, threads, &mut all)?;
        }
    }
    let roofs = roofs(&all.peaks, &all.bandwidths, MEMORY);
    let mut notes = setup.notes;
    if setup.repeat.runs < super::timed::FEWEST {
        notes.push("few runs: the median says little".to_owned());
    }
    Ok(Roofline {
        format: FORMAT,
        platform: Hardware::detect(machine).platform.to_string(),
        vectors: setup.vectors.name(),
        line: setup.line,
        cpus: setup.cpus.to_string(),
        latencies: all.latencies,
        peaks: all.peaks,
        bandwidths: all.bandwidths,
        roofs,
        disturbance: disturbance(machine, before, &all.runs),
        notes,
    })
}

/// What others did since.
fn disturbance(
    machine: &Machine,
    (start, cpus, own): (Duration, Option<CpuTime>, Duration),
    runs: &[Run],
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

/// What is found out before anything is measured.
struct Setup {
    cpus: CpuList,
    caches: Vec<Cache>,
    line: u64,
    places: Vec<Place>,
    vectors: Vectors,
    /// Threads at most.
    most_threads: usize,
    /// Bytes of arrays at most.
    most_bytes: u64,
    threads: Vec<usize>,
    sizes: Vec<u64>,
    repeat: Repeat,
    notes: Vec<String>,
}

/// What was measured so far.
#[derive(Default)]
struct Measured {
    latencies: Vec<Latency>,
    peaks: Vec<Peak>,
    bandwidths: Vec<Bandwidth>,
    /// All of it.
    runs: Vec<Run>,
}

impl Setup {
    fn new(machine: &Machine, options: &Options) -> Result<Self, RooflineError> {
        let online = machine.online()?;
        let cpus: CpuList = allowed()?
            .iter()
            .filter(|cpu| online.contains(*cpu))
            .collect();
        let caches = machine.caches(&cpus);
        let limits = Limits::of_self(machine);
        let mut notes = Vec::new();
        let most_threads = most_threads(cpus.len(), limits.cpus);
        let limited = most_threads < cpus.len();
        if limited {
            notes.push(format!(
                "the cgroup may use {:.1} CPUs: threads are measured up to {most_threads}",
                limits.cpus.unwrap_or_default()
            ));
        }
        if let Some(asked) = options.threads.iter().find(|asked| **asked > most_threads) {
            return Err(RooflineError::Threads {
                asked: *asked,
                most: most_threads,
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
        let most_bytes = free / PART_OF_MEMORY;
        let all: Vec<u32> = cpus.iter().collect();
        if options.sizes.is_empty() && !places::is_beyond_caches(&caches, &all, most_bytes) {
            notes.push(format!(
                "a quarter of the free memory ({most_bytes} bytes) is less than twelve times the \
                 last-level caches, which STREAM asks for: caches hold a part of what is shown as \
                 memory"
            ));
        }
        if caches.is_empty() {
            notes.push("the machine tells no caches: only memory is measured".to_owned());
        }
        let topology = machine.topology();
        let core = |cpu: u32| {
            let list = |name: &str| -> Option<CpuList> {
                let file = format!("devices/system/cpu/cpu{cpu}/topology/{name}");
                machine.sys(&file)?.parse().ok()
            };
            let siblings = list("core_cpus_list").or_else(|| list("thread_siblings_list"));
            siblings.and_then(|list| list.iter().next()).unwrap_or(cpu)
        };
        let seats = places::seats(&cpus, |cpu| topology.socket(cpu).unwrap_or(0), core);
        Ok(Self {
            line: places::line(&caches),
            places: places::places(&seats),
            vectors: Vectors::detect(),
            most_threads,
            most_bytes,
            threads: options.threads.clone(),
            sizes: options.sizes.clone(),
            repeat: Repeat {
                runs: options.runs.max(1),
                least: LEAST,
                most: MOST,
            },
            cpus,
            caches,
            notes,
        })
    }

    /// Numbers of threads to measure at a place.
    fn threads_of(&self, place: &Place) -> Vec<usize> {
        if self.threads.is_empty() {
            return place.threads(self.most_threads);
        }
        let fit = |threads: &usize| (1..=place.cpus.len()).contains(threads);
        self.threads.iter().copied().filter(fit).collect()
    }

    fn amounts(&self, cpus: &[u32]) -> Vec<Amount> {
        if self.sizes.is_empty() {
            return places::amounts(&self.caches, cpus, self.most_bytes);
        }
        let given = |bytes: &u64| Amount {
            level: format!("given {bytes}"),
            bytes: *bytes,
        };
        self.sizes.iter().map(given).collect()
    }

    fn on(place: &Place, threads: usize) -> On {
        let (cpus, cores) = place.first(threads);
        On {
            socket: place.socket,
            threads: cpus.len(),
            cores,
            cpus: cpus.iter().copied().collect::<CpuList>().to_string(),
        }
    }

    /// The idle latency of each level on the first CPU of a socket.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn latencies(&self, place: &Place, all: &mut Measured) -> Result<(), RooflineError> {
        let (Some(socket), Some(cpu)) = (place.socket, place.cpus.first()) else {
            return Ok(());
        };
        for Amount { level, bytes } in self.amounts(&[*cpu]) {
            // STREAM's three arrays are more than one chain needs.
            let bytes = if level == MEMORY { bytes / 3 } else { bytes };
            let chain = Chain::new(bytes, self.line);
            let told = Huge::default();
            let work = Chase {
                chain: chain.map_err(|error| RooflineError::Memory { bytes, error })?,
                told: told.clone(),
            };
            let runs = timed(vec![(*cpu, work)], self.repeat)?;
            let nanoseconds = Runs::nanoseconds(Chase::STEPS as f64, &runs);
            all.latencies.extend(nanoseconds.map(|nanoseconds| Latency {
                socket,
                cpu: *cpu,
                level,
                bytes,
                nanoseconds,
                huge_pages: told.share(),
            }));
            all.runs.extend(runs);
        }
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn peak(&self, place: &Place, threads: usize, all: &mut Measured) -> Result<(), RooflineError> {
        let (cpus, _) = place.first(threads);
        let work = cpus.iter().map(|cpu| (*cpu, MultiplyAdd(self.vectors)));
        let runs = timed(work.collect(), self.repeat)?;
        let operations = (self.vectors.operations() * ROUNDS) as f64 * cpus.len() as f64;
        all.peaks
            .extend(Runs::rates(operations, &runs).map(|flops| Peak {
                on: Self::on(place, threads),
                flops,
            }));
        all.runs.extend(runs);
        Ok(())
    }

    fn bandwidths(
        &self,
        place: &Place,
        threads: usize,
        all: &mut Measured,
    ) -> Result<(), RooflineError> {
        let (cpus, _) = place.first(threads);
        for amount in self.amounts(cpus) {
            self.bandwidth(place, threads, &amount, Stores::Plain, all)?;
            // Past the caches is what these stores are for.
            if amount.level == MEMORY || !self.sizes.is_empty() {
                self.bandwidth(place, threads, &amount, Stores::NonTemporal, all)?;
            }
        }
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn bandwidth(
        &self,
        place: &Place,
        threads: usize,
        amount: &Amount,
        stores: Stores,
        all: &mut Measured,
    ) -> Result<(), RooflineError> {
        let (cpus, _) = place.first(threads);
        let each = amount.bytes / cpus.len() as u64;
        let told = Huge::default();
        let mut elements = 0;
        let mut work = Vec::new();
        for (at, cpu) in cpus.iter().enumerate() {
            let arrays = Arrays::new(each);
            let arrays = arrays.map_err(|error| RooflineError::Memory { bytes: each, error })?;
            elements += arrays.elements();
            let triad = Triad {
                arrays,
                vectors: self.vectors,
                stores,
                told: (at == 0).then(|| told.clone()),
            };
            work.push((*cpu, triad));
        }
        let runs = timed(work, self.repeat)?;
        let on = Self::on(place, threads);
        let latency_ns = latency(&all.latencies, place.socket, &amount.level);
        all.bandwidths.extend(
            Runs::rates((elements * TRIAD_BYTES) as f64, &runs).map(|rate| {
                let in_flight = latency_ns.map(|ns| bytes_in_flight(rate.best, ns));
                Bandwidth {
                    level: amount.level.clone(),
                    bytes: Arrays::bytes_of(each) * cpus.len() as u64,
                    stores,
                    bytes_per_second: rate,
                    huge_pages: told.share(),
                    latency_ns,
                    bytes_in_flight: in_flight,
                    lines_in_flight_per_core: in_flight
                        .map(|bytes| lines_per_core(bytes, self.line, on.cores)),
                    on,
                }
            }),
        );
        all.runs.extend(runs);
        Ok(())
    }
}

/// Threads at most: one for each CPU, and not more than the quota lets run all the time.
fn most_threads(cpus: usize, quota: Option<f64>) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number that is made smaller"
    )]
    let quota = quota.map_or(usize::MAX, |quota| quota.floor() as usize);
    quota.clamp(1, cpus.max(1))
}

/// The least latency of a level on a socket; of all sockets their mean.
#[expect(clippy::cast_precision_loss, reason = "a few sockets")]
fn latency(latencies: &[Latency], socket: Option<u32>, level: &str) -> Option<f64> {
    let same = latencies.iter().filter(|latency| {
        latency.level == level && socket.is_none_or(|socket| latency.socket == socket)
    });
    let all: Vec<f64> = same.map(|latency| latency.nanoseconds.best).collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}
