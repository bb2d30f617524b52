//! The result of a measurement, and what is computed of it.

use serde::Serialize;

use super::{kernels::Stores, timed::Run};

/// The version of the JSON: it rises where a field gets another meaning or goes.
pub const FORMAT: u32 = 1;

/// Everything that was measured. Rates are per second, bytes are bytes, FLOPs are of doubles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Roofline {
    /// [`FORMAT`].
    pub format: u32,
    /// The platform, as the catalogue calls it.
    pub platform: String,
    /// The vectors that the kernels used.
    pub vectors: &'static str,
    /// Bytes of a cache line.
    pub line: u64,
    /// The CPUs that this process may run on, as the kernel lists them.
    pub cpus: String,
    /// Idle latencies.
    pub latencies: Vec<Latency>,
    /// Peaks of the cores.
    pub peaks: Vec<Peak>,
    /// Bandwidths of the triad.
    pub bandwidths: Vec<Bandwidth>,
    /// Peaks with the bandwidths of memory.
    pub roofs: Vec<Roof>,
    /// What ran beside it.
    pub disturbance: Disturbance,
    /// What else is to be known, a sentence each.
    pub notes: Vec<String>,
}

/// Which CPUs something was measured on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct On {
    /// None: all sockets.
    pub socket: Option<u32>,
    /// Threads, each on a CPU of its own.
    pub threads: usize,
    /// Physical cores among those CPUs.
    pub cores: usize,
    /// The CPUs, as the kernel lists them.
    pub cpus: String,
}

/// Several runs of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Runs {
    /// Of the best run.
    pub best: f64,
    /// The middle one.
    pub median: f64,
    /// How many there were.
    pub runs: usize,
    /// The part of their time in which threads did not run, from 0 to 1: others had their CPUs.
    pub waited: f64,
}

/// The time that a load takes which depends on the one before, when nothing else goes on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// The socket of the CPU and of the memory.
    pub socket: u32,
    /// The CPU.
    pub cpu: u32,
    /// What holds the memory: `L1`, .., `memory`, or `given`.
    pub level: String,
    /// The bytes that were gone through.
    pub bytes: u64,
    /// Nanoseconds; the best is the least.
    pub nanoseconds: Runs,
    /// The part of the memory in huge pages; None where that is not told.
    pub huge_pages: Option<f64>,
}

/// The floating-point operations of fused multiply-adds in registers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Peak {
    /// Where.
    #[serde(flatten)]
    pub on: On,
    /// Operations per second.
    pub flops: Runs,
}

/// The bandwidth of a triad, `a[i] = b[i] + s * c[i]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bandwidth {
    /// Where.
    #[serde(flatten)]
    pub on: On,
    /// What holds the arrays.
    pub level: String,
    /// Bytes of the three arrays of all threads.
    pub bytes: u64,
    /// How it wrote.
    pub stores: Stores,
    /// Bytes per second, 24 for each element.
    pub bytes_per_second: Runs,
    /// The part of the first thread's arrays in huge pages.
    pub huge_pages: Option<f64>,
    /// The idle latency of the same level, in nanoseconds.
    pub latency_ns: Option<f64>,
    /// The best bandwidth times that latency: what is on its way at any moment, at least.
    pub bytes_in_flight: Option<f64>,
    /// The same in cache lines, for each core.
    pub lines_in_flight_per_core: Option<f64>,
}

/// The roofline of some CPUs: what a program can reach of an arithmetic intensity x is
/// `min(flops, x * bytes_per_second)`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Roof {
    /// Where.
    #[serde(flatten)]
    pub on: On,
    /// The best peak.
    pub flops: f64,
    /// The best bandwidth of memory, with either kind of stores.
    pub bytes_per_second: f64,
    /// FLOPs per byte from which on the peak holds.
    pub ridge: f64,
}

/// What ran on the machine while it was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Disturbance {
    /// Seconds of the whole measurement.
    pub seconds: f64,
    /// CPUs that are online.
    pub cpus: usize,
    /// CPUs' worth of time that other tasks and interrupts used; None where that is not told.
    pub others: Option<f64>,
    /// CPUs' worth of time that the hypervisor took.
    pub stolen: Option<f64>,
    /// The part of its threads' time in which they did not run.
    pub waited: f64,
}

impl Runs {
    /// Of an amount that each run did once: amount per second.
    pub(super) fn rates(amount: f64, runs: &[Run]) -> Option<Self> {
        Self::of(runs, |each| amount / each, f64::total_cmp)
    }

    /// Of a number of things that took each run's time: nanoseconds of one.
    pub(super) fn nanoseconds(things: f64, runs: &[Run]) -> Option<Self> {
        Self::of(runs, |each| each * 1e9 / things, |a, b| b.total_cmp(a))
    }

    /// `better`: Greater where the first one is better.
    fn of(
        runs: &[Run],
        value: impl Fn(f64) -> f64,
        better: impl Fn(&f64, &f64) -> std::cmp::Ordering,
    ) -> Option<Self> {
        let mut values: Vec<f64> = runs.iter().map(|run| value(run.each)).collect();
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

/// The part of the threads' time in which they did not run.
pub(super) fn waited(runs: &[Run]) -> f64 {
    let wall: f64 = runs.iter().map(|run| run.wall).sum();
    let waited: f64 = runs.iter().map(|run| run.waited).sum();
    if wall > 0.0 { waited / wall } else { 0.0 }
}

/// Little's law, as John `McCalpin` puts it ("Memory Bandwidth on Xeon Phi (Knights Corner)"): so
/// many bytes are on their way at any moment where a bandwidth is reached at a latency.
#[must_use]
pub fn bytes_in_flight(bytes_per_second: f64, latency_ns: f64) -> f64 {
    bytes_per_second * latency_ns / 1e9
}

/// The same in lines, for each core.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
pub fn lines_per_core(bytes_in_flight: f64, line: u64, cores: usize) -> f64 {
    bytes_in_flight / line as f64 / cores as f64
}

/// The roofs of what was measured: of each place and number of threads with both.
pub(super) fn roofs(peaks: &[Peak], bandwidths: &[Bandwidth], memory: &str) -> Vec<Roof> {
    let best = |on: &On| {
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

    fn run(each: f64) -> Run {
        Run {
            each,
            wall: 2.0,
            waited: 0.5,
        }
    }

    /// 175 GB/s at 275 ns are 48,125 bytes, 752 lines (he rounds to 768), of the Xeon Phi's 61
    /// cores.
    #[test]
    fn bytes_in_flight_are_those_of_mccalpin() {
        let bytes = bytes_in_flight(175e9, 275.0);
        assert!((bytes - 48_125.0).abs() < 1e-6, "{bytes}");
        assert!((lines_per_core(bytes, 64, 1) - 751.953_125).abs() < 1e-9);
        assert!((lines_per_core(bytes, 64, 61) * 61.0 - 751.953_125).abs() < 1e-9);
    }

    /// STREAM's table there: Triad moved 3 x 8 x 64e6 bytes in 0.0088 s at best: 174,663 MB/s.
    #[test]
    fn the_best_run_of_a_rate_is_the_fastest_and_of_a_latency_the_least() {
        let runs: Vec<Run> = [0.0091, 0.0088, 0.0089, 0.0090].map(run).into();
        let rates = Runs::rates(24.0 * 64e6, &runs).unwrap();
        assert!((rates.best - 174_545.5e6).abs() < 1e5, "{rates:?}");
        let middle = f64::midpoint(24.0 * 64e6 / 0.0089, 24.0 * 64e6 / 0.0090);
        assert!((rates.median - middle).abs() < 1.0);
        assert_eq!(rates.runs, 4);
        assert!((rates.waited - 0.25).abs() < 1e-12);
        let latency = Runs::nanoseconds(1e6, &[run(0.3), run(0.1), run(0.2)]).unwrap();
        assert!((latency.best - 100.0).abs() < 1e-9, "{latency:?}");
        assert!((latency.median - 200.0).abs() < 1e-9);
        assert_eq!(Runs::rates(1.0, &[]), None);
    }

    #[test]
    fn a_roof_takes_the_better_stores_of_the_same_cpus() {
        let on = |threads| On {
            socket: Some(0),
            threads,
            cores: threads,
            cpus: "0".into(),
        };
        let runs = |best| Runs {
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
            let runs: Vec<Run> = times.iter().copied().map(run).collect();
            let rates = Runs::rates(1.0, &runs).unwrap();
            let nanoseconds = Runs::nanoseconds(1.0, &runs).unwrap();
            prop_assert!(times.iter().all(|time| 1.0 / time <= rates.best));
            prop_assert!(times.iter().all(|time| time * 1e9 >= nanoseconds.best));
            prop_assert!(rates.median <= rates.best && nanoseconds.median >= nanoseconds.best);
            prop_assert!((0.0..=1.0).contains(&rates.waited));
        }
    }
}
