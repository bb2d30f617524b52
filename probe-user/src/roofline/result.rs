//! The result of a measurement, [`Roofline`], and the values computed from its runs.

use serde::Serialize;

use super::{kernels::Stores, timed::TimedRun};

/// The version of the JSON. It rises when a field changes its meaning or is removed.
pub const FORMAT: u32 = 1;

/// Everything that was measured. Rates are per second, sizes in bytes, FLOPs in double precision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Roofline {
    /// The version of the JSON: [`FORMAT`].
    pub format: u32,
    /// The platform, as the catalogue calls it.
    pub platform: String,
    /// The SIMD extension that the kernels used.
    pub vectors: &'static str,
    /// Bytes of a cache line.
    pub line: u64,
    /// The CPUs that this process may run on, in the kernel's list format.
    pub cpus: String,
    /// Idle latencies.
    pub latencies: Vec<Latency>,
    /// Peaks of the cores.
    pub peaks: Vec<Peak>,
    /// Bandwidths of the triad.
    pub bandwidths: Vec<Bandwidth>,
    /// The rooflines of CPUs: peaks combined with bandwidths of memory.
    pub roofs: Vec<Roof>,
    /// What else ran on the machine.
    pub disturbance: Disturbance,
    /// Limits of this measurement, a sentence each.
    pub notes: Vec<String>,
}

/// The CPUs that a result was measured on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeasuredCpus {
    /// None: all sockets.
    pub socket: Option<u32>,
    /// Threads, each on a CPU of its own.
    pub threads: usize,
    /// Physical cores among those CPUs.
    pub cores: usize,
    /// The CPUs, in the kernel's list format.
    pub cpus: String,
}

/// Statistics of several runs of one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunStats {
    /// The value of the best run.
    pub best: f64,
    /// The median of the runs.
    pub median: f64,
    /// Number of runs.
    pub runs: usize,
    /// The part of the threads' time, from 0 to 1, in which they waited for their CPUs.
    pub waited: f64,
}

/// The idle latency: time of a load that depends on the load before it, on an idle machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// The socket of the CPU and of the memory.
    pub socket: u32,
    /// The CPU.
    pub cpu: u32,
    /// The level that holds the working set: `L1`, .., `memory`, or `given BYTES`.
    pub level: String,
    /// Bytes of the working set.
    pub bytes: u64,
    /// Nanoseconds of one load; the best is the least.
    pub nanoseconds: RunStats,
    /// The part of the memory in huge pages; None where it is unknown.
    pub huge_pages: Option<f64>,
}

/// The peak rate of floating-point operations, by fused multiply-adds in registers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Peak {
    /// The CPUs that it was measured on.
    #[serde(flatten)]
    pub on: MeasuredCpus,
    /// Operations per second.
    pub flops: RunStats,
}

/// The bandwidth of a triad, `a[i] = b[i] + s * c[i]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bandwidth {
    /// The CPUs that it was measured on.
    #[serde(flatten)]
    pub on: MeasuredCpus,
    /// The level that holds the arrays: `L1`, .., `memory`, or `given BYTES`.
    pub level: String,
    /// Bytes of the three arrays of all threads.
    pub bytes: u64,
    /// The kind of stores.
    pub stores: Stores,
    /// Bytes per second, counted as 24 bytes for each element.
    pub bytes_per_second: RunStats,
    /// The part of the first thread's arrays in huge pages.
    pub huge_pages: Option<f64>,
    /// The idle latency of the same level, in nanoseconds.
    pub latency_ns: Option<f64>,
    /// The best bandwidth times that latency: a lower bound of the mean number of bytes in flight.
    pub bytes_in_flight: Option<f64>,
    /// The bytes in flight as cache lines for each core.
    pub lines_in_flight_per_core: Option<f64>,
}

/// The roofline of some CPUs: a program of arithmetic intensity x reaches at most
/// `min(flops, x * bytes_per_second)`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Roof {
    /// The CPUs that it was measured on.
    #[serde(flatten)]
    pub on: MeasuredCpus,
    /// The best peak.
    pub flops: f64,
    /// The best bandwidth of memory, with either kind of stores.
    pub bytes_per_second: f64,
    /// The ridge point: FLOPs per byte above which the peak is the limit.
    pub ridge: f64,
}

/// What else ran on the machine during the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Disturbance {
    /// Seconds of the whole measurement.
    pub seconds: f64,
    /// CPUs that are online.
    pub cpus: usize,
    /// Mean number of CPUs that other tasks and interrupts used; None where it is unknown.
    pub others: Option<f64>,
    /// Mean number of CPUs that the hypervisor took (steal time); None where it is unknown.
    pub stolen: Option<f64>,
    /// The part of the threads' time in which they waited for their CPUs.
    pub waited: f64,
}

impl RunStats {
    /// Rates per second, where one iteration does `amount`.
    pub(super) fn rates(amount: f64, runs: &[TimedRun]) -> Option<Self> {
        Self::from_runs(runs, |seconds| amount / seconds, f64::total_cmp)
    }

    /// Nanoseconds of one step, where one iteration has `steps`.
    pub(super) fn nanoseconds(steps: f64, runs: &[TimedRun]) -> Option<Self> {
        Self::from_runs(runs, |seconds| seconds * 1e9 / steps, |a, b| b.total_cmp(a))
    }

    /// `value` converts the seconds of one iteration; `better` returns Greater if its first value
    /// is better.
    fn from_runs(
        runs: &[TimedRun],
        value: impl Fn(f64) -> f64,
        better: impl Fn(&f64, &f64) -> std::cmp::Ordering,
    ) -> Option<Self> {
        let mut values: Vec<f64> = (runs.iter())
            .map(|run| value(run.seconds_per_iteration))
            .collect();
        values.sort_by(|a, b| better(a, b));
        let middle = values.len() / 2;
        let median = match values.len() {
            0 => return None,
            even if even % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
            _ => values[middle],
        };
        Some(Self {
            best: *values.last()?,
            median,
            runs: values.len(),
            waited: waited(runs),
        })
    }
}

/// The part of the threads' time in which they waited for their CPUs.
pub(super) fn waited(runs: &[TimedRun]) -> f64 {
    let wall: f64 = runs.iter().map(|run| run.wall).sum();
    let waited: f64 = runs.iter().map(|run| run.waited).sum();
    if wall > 0.0 { waited / wall } else { 0.0 }
}

/// Bytes in flight that a bandwidth needs at a latency, by Little's law (John `McCalpin`, "Memory
/// Bandwidth on Xeon Phi (Knights Corner)").
#[must_use]
pub fn bytes_in_flight(bytes_per_second: f64, latency_ns: f64) -> f64 {
    bytes_per_second * latency_ns / 1e9
}

/// The bytes in flight as cache lines of `line` bytes, for each core.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
pub fn lines_per_core(bytes_in_flight: f64, line: u64, cores: usize) -> f64 {
    bytes_in_flight / line as f64 / cores as f64
}

/// The roofs of all CPUs and numbers of threads that have both a peak and a bandwidth of memory.
pub(super) fn roofs(peaks: &[Peak], bandwidths: &[Bandwidth], memory: &str) -> Vec<Roof> {
    let best = |on: &MeasuredCpus| {
        let same = bandwidths
            .iter()
            .filter(|bandwidth| bandwidth.on == *on && bandwidth.level == memory);
        same.map(|bandwidth| bandwidth.bytes_per_second.best)
            .max_by(f64::total_cmp)
    };
    let roof = |peak: &Peak| {
        let bytes_per_second = best(&peak.on)?;
        Some(Roof {
            on: peak.on.clone(),
            flops: peak.flops.best,
            bytes_per_second,
            ridge: peak.flops.best / bytes_per_second,
        })
    };
    peaks.iter().filter_map(roof).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(seconds_per_iteration: f64) -> TimedRun {
        TimedRun {
            seconds_per_iteration,
            wall: 2.0,
            waited: 0.5,
        }
    }

    /// 175 GB/s at 275 ns need 48,125 bytes, or 752 lines (`McCalpin` rounds to 768), on the 61
    /// cores of a Xeon Phi.
    #[test]
    fn bytes_in_flight_are_those_of_mccalpin() {
        let bytes = bytes_in_flight(175e9, 275.0);
        assert!((bytes - 48_125.0).abs() < 1e-6, "{bytes}");
        assert!((lines_per_core(bytes, 64, 1) - 751.953_125).abs() < 1e-9);
        assert!((lines_per_core(bytes, 64, 61) * 61.0 - 751.953_125).abs() < 1e-9);
    }

    /// STREAM's table in that note: at best, Triad moved 3 x 8 x 64e6 bytes in 0.0088 s, 174,663
    /// MB/s.
    #[test]
    fn the_best_run_of_a_rate_is_the_fastest_and_of_a_latency_the_least() {
        let runs: Vec<TimedRun> = [0.0091, 0.0088, 0.0089, 0.0090].map(run).into();
        let rates = RunStats::rates(24.0 * 64e6, &runs).unwrap();
        assert!((rates.best - 174_545.5e6).abs() < 1e5, "{rates:?}");
        let middle = f64::midpoint(24.0 * 64e6 / 0.0089, 24.0 * 64e6 / 0.0090);
        assert!((rates.median - middle).abs() < 1.0);
        assert_eq!(rates.runs, 4);
        assert!((rates.waited - 0.25).abs() < 1e-12);
        let latency = RunStats::nanoseconds(1e6, &[run(0.3), run(0.1), run(0.2)]).unwrap();
        assert!((latency.best - 100.0).abs() < 1e-9, "{latency:?}");
        assert!((latency.median - 200.0).abs() < 1e-9);
        assert_eq!(RunStats::rates(1.0, &[]), None);
    }

    #[test]
    fn a_roof_takes_the_better_stores_of_the_same_cpus() {
        let on = |threads| MeasuredCpus {
            socket: Some(0),
            threads,
            cores: threads,
            cpus: "0".into(),
        };
        let runs = |best| RunStats {
            best,
            median: best / 2.0,
            runs: 3,
            waited: 0.0,
        };
        let peak = |threads, best| Peak {
            on: on(threads),
            flops: runs(best),
        };
        let bandwidth = |threads, level: &str, stores, best| Bandwidth {
            on: on(threads),
            level: level.into(),
            bytes: 1,
            stores,
            bytes_per_second: runs(best),
            huge_pages: None,
            latency_ns: None,
            bytes_in_flight: None,
            lines_in_flight_per_core: None,
        };
        let bandwidths = [
            bandwidth(1, "L1", Stores::Plain, 900.0),
            bandwidth(1, "memory", Stores::Plain, 20.0),
            bandwidth(1, "memory", Stores::NonTemporal, 25.0),
            bandwidth(2, "memory", Stores::Plain, 30.0),
        ];
        let roofs = roofs(&[peak(1, 100.0), peak(4, 400.0)], &bandwidths, "memory");
        assert_eq!(roofs.len(), 1);
        assert!((roofs[0].ridge - 4.0).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn no_run_is_better_than_the_best(times in prop::collection::vec(1e-6_f64..10.0, 1..20)) {
            let runs: Vec<TimedRun> = times.iter().copied().map(run).collect();
            let rates = RunStats::rates(1.0, &runs).unwrap();
            let nanoseconds = RunStats::nanoseconds(1.0, &runs).unwrap();
            prop_assert!(times.iter().all(|time| 1.0 / time <= rates.best));
            prop_assert!(times.iter().all(|time| time * 1e9 >= nanoseconds.best));
            prop_assert!(rates.median <= rates.best && nanoseconds.median >= nanoseconds.best);
            prop_assert!((0.0..=1.0).contains(&rates.waited));
        }
    }
}
