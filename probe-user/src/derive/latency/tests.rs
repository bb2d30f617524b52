//! Coverage of the interval of a mean, over draws from known distributions.

use probe_common::spe::SpeRow;

use super::*;

/// Knuth's generator (MMIX), so that every run draws the same numbers.
struct Draw(u64);

impl Draw {
    fn word(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// Uniform from 0 to below 1.
    fn share(&mut self) -> f64 {
        f64::from(u32::try_from(self.word()).unwrap()) / f64::from(1_u32 << 31)
    }

    /// Uniform between two numbers, both included.
    fn between(&mut self, low: u16, high: u16) -> u16 {
        low + u16::try_from(self.word() % u64::from(high - low + 1)).unwrap()
    }

    /// Lognormal (Box and Muller), capped as by a counter of 12 bits.
    fn lognormal(&mut self, median: f64, sigma: f64) -> u16 {
        let (a, b) = (self.share().max(1e-9), self.share());
        let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
        let cycles = (median * (sigma * normal).exp()).round().min(4095.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most 4095"
        )]
        let cycles = cycles as u16;
        cycles
    }
}

/// Draws a latency from the distribution of an owner's loads.
type Load = fn(&mut Draw) -> u16;

/// Nearly all loads hit the first level, one in a hundred goes to memory.
fn l1_bound(draw: &mut Draw) -> u16 {
    match draw.share() {
        ..0.95 => draw.between(4, 7),
        ..0.985 => draw.between(12, 20),
        ..0.99 => draw.between(60, 100),
        _ => draw.between(200, 500),
    }
}

/// Most loads go to memory, with queueing.
fn dram_bound(draw: &mut Draw) -> u16 {
    match draw.share() {
        ..0.3 => draw.between(4, 7),
        _ => draw.lognormal(300.0, 0.4),
    }
}

/// 2,000 cycles with this probability, else five.
fn bimodal(draw: &mut Draw, probability: f64) -> u16 {
    if draw.share() < probability { 2000 } else { 5 }
}

/// At least four cycles; at least `x` times as many with the probability `x^-alpha`.
fn pareto(draw: &mut Draw, alpha: f64) -> u16 {
    let cycles = 4.0 * draw.share().max(1e-9).powf(-1.0 / alpha);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most 4095"
    )]
    let cycles = cycles.min(MAX_LATENCY) as u16;
    cycles
}

/// The range of a counter of 12 bits.
const MAX_LATENCY: f64 = 4095.0;

const LOADS: [(&str, Load); 10] = [
    ("L1-bound", l1_bound),
    ("DRAM-bound", dram_bound),
    ("5, 1 % of 2,000", |draw| bimodal(draw, 0.01)),
    ("5, 0.3 % of 2,000", |draw| bimodal(draw, 0.003)),
    ("5, 0.1 % of 2,000", |draw| bimodal(draw, 0.001)),
    ("2,000, 1 % of 5", |draw| bimodal(draw, 0.99)),
    ("Pareto, 1.5", |draw| pareto(draw, 1.5)),
    ("Pareto, 1.1", |draw| pareto(draw, 1.1)),
    ("lognormal, 20, 1", |draw| draw.lognormal(20.0, 1.0)),
    ("lognormal, 20, 2", |draw| draw.lognormal(20.0, 2.0)),
];

/// Samples of weight 1,000.
fn sampled(latencies: impl IntoIterator<Item = u16>) -> SampleCounts {
    let mut row = SpeRow::ZERO;
    for cycles in latencies {
        row.samples += 1;
        row.total.add(cycles);
        row.histogram[SpeRow::bucket(cycles)] += 1;
    }
    SampleCounts::between(&SpeRow::ZERO, &row, 1000.0)
}

fn drawn(load: Load, n: u32, draw: &mut Draw) -> SampleCounts {
    sampled((0..n).map(|_| load(draw)))
}

fn percent(part: usize, whole: u32) -> f64 {
    100.0 * f64::from(u32::try_from(part).unwrap()) / f64::from(whole)
}

/// Checks the coverage stated in `docs/how-it-works/accuracy.md`, which has a part of the printed
/// table.
#[test]
fn intervals_hold_the_truth_in_93_of_100_cases() {
    let runs = 300;
    for (name, load) in LOADS {
        let draw = &mut Draw(1);
        let true_mean: f64 = (0..200_000).map(|_| f64::from(load(draw))).sum::<f64>() / 2e5;
        let mut line = format!("| {name} | {true_mean:.1} |");
        for n in [30, 50, 100, 300, 1000, 3000] {
            let mut ends = Vec::new();
            let covered = (0..runs).filter(|_| {
                let interval = mean(&drawn(load, n, draw), MAX_LATENCY).unwrap();
                ends.push((interval.low, interval.high));
                interval.low <= true_mean && true_mean <= interval.high
            });
            let covered = percent(covered.count(), runs);
            let median = |end: fn(&(f64, f64)) -> f64| {
                let mut all: Vec<f64> = ends.iter().map(end).collect();
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            };
            let (low, high) = (median(|it| it.0), median(|it| it.1));
            line += &format!(" {covered:.0} % [{low:.0}, {high:.0}] |");
            assert!(covered >= 93.0, "{name}, {n} samples: {covered}%");
        }
        println!("{line}");
    }
}

/// Operations from one sample to the next.
const PERIOD: u32 = 32_768;

/// `n` samples of a loop of `length` operations, whose last quarter goes to memory. Jitter adds to
/// each period; with `ernd` (`caps/ernd` 1) it moves only the sample.
fn loop_samples(length: u32, ernd: bool, n: u32, draw: &mut Draw) -> SampleCounts {
    let mut at = u32::try_from(draw.word() % u64::from(length)).unwrap();
    sampled((0..n).map(|_| {
        let jitter = u32::from(draw.between(0, 255));
        at = (at + PERIOD) % length;
        let place = (at + jitter) % length;
        if !ernd {
            at = place;
        }
        if 4 * place < 3 * length { 4 } else { 300 }
    }))
}

/// Jitter makes the samples of a loop independent if it has at most 256 operations, but not if it
/// has one to three periods, as `docs/limits.md` states.
#[test]
fn a_loop_in_step_with_the_period_is_not_sampled_at_random() {
    let draw = &mut Draw(1);
    for ernd in [false, true] {
        // The mean jitter of 127 operations, if it adds to the period.
        let period = if ernd { PERIOD } else { PERIOD + 127 };
        for length in [200, 256, period, 2 * period, 3 * period] {
            for n in [100, 1000] {
                // 78 cycles are the true mean: three quarters take 4 cycles, one takes 300.
                let covered = (0..300).filter(|_| {
                    let interval = mean(&loop_samples(length, ernd, n, draw), MAX_LATENCY).unwrap();
                    interval.low <= 78.0 && 78.0 <= interval.high
                });
                let covered = percent(covered.count(), 300);
                println!("caps/ernd {ernd}, a loop of {length}, {n} samples: {covered:.0} %");
                let is_short = length <= 256;
                assert!(!is_short || covered >= 93.0, "{length}: {covered}%");
                assert!(
                    is_short || n == 100 || covered < 93.0,
                    "{length}: {covered}%"
                );
            }
        }
    }
}

#[test]
fn without_enough_samples_there_is_no_mean() {
    let draw = &mut Draw(7);
    assert_eq!(mean(&drawn(l1_bound, 29, draw), MAX_LATENCY), None);
    assert!(mean(&drawn(l1_bound, 30, draw), MAX_LATENCY).is_some());
}

/// Unsampled latencies may have any value that a record can hold.
#[test]
fn unsampled_time_widens_the_interval() {
    let samples = drawn(|draw| draw.between(4, 7), 1000, &mut Draw(7));
    let with_max = |max| mean(&samples, max).unwrap();
    let (narrow, wide) = (with_max(4095.0), with_max(65_535.0));
    // By the limit of a Poisson count of 0, 3.7 of 1,000 may be that long.
    assert!(
        (narrow.high - narrow.value - 15.0).abs() < 0.1,
        "{narrow:?}"
    );
    assert!((wide.high - wide.value - 240.4).abs() < 0.1, "{wide:?}");
    assert!(narrow.low > 5.3 && narrow.low < narrow.value, "{narrow:?}");
    assert_eq!((narrow.value, narrow.low), (wide.value, wide.low));
    // No mean exceeds the maximum.
    let long = sampled(vec![4095; 30]);
    assert_eq!(mean(&long, 4095.0).unwrap().high, 4095.0);
}

/// A container has samples of a CPU with a short period and of one with a long period. Each sample
/// is weighted by the operations that it represents.
#[test]
fn a_mean_is_weighted_by_operations() {
    let sampled_at = |n: u32, cycles: u16, weight| {
        let mut row = SpeRow {
            samples: n.into(),
            ..SpeRow::ZERO
        };
        (0..n).for_each(|_| row.total.add(cycles));
        row.histogram[SpeRow::bucket(cycles)] = n;
        SampleCounts::between(&SpeRow::ZERO, &row, weight)
    };
    let mut counts = sampled_at(1000, 10, 1000.0);
    counts.add(&sampled_at(1000, 100, 9000.0));
    let interval = mean(&counts, MAX_LATENCY).unwrap();
    assert!((interval.value - 91.0).abs() < 1e-9, "{interval:?}");
    let median = spe::quantile(&counts, 0.5).unwrap();
    assert!((96.0..=127.0).contains(&median.value), "{median:?}");
}
