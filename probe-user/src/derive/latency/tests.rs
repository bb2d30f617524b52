//! How often the interval of a mean holds the truth, of draws from known distributions.

use probe_common::spe::{Source, SpeRow};

use super::*;

/// Knuth's generator (MMIX), so that every run draws the same.
struct Draw(u64);

impl Draw {
    fn word(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        f64::from(u32::try_from(self.word()).unwrap()) / f64::from(1_u32 << 31)
    }

    /// From one number to another, both included.
    fn between(&mut self, low: u16, high: u16) -> u16 {
        low + u16::try_from(self.word() % u64::from(high - low + 1)).unwrap()
    }

    /// Lognormal (Box and Muller), as a counter of 12 bits has it.
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

/// Of a load: where it was served, and its latency.
type Load = fn(&mut Draw) -> (Source, u16);

/// Nearly all from the first level, one of a hundred from memory.
fn l1_bound(draw: &mut Draw) -> (Source, u16) {
    match draw.share() {
        ..0.95 => (Source::L1d, draw.between(4, 7)),
        ..0.985 => (Source::L2, draw.between(12, 20)),
        ..0.99 => (Source::SystemCache, draw.between(60, 100)),
        _ => (Source::Dram, draw.between(200, 500)),
    }
}

/// One place, of a latency with a long tail.
fn lognormal(draw: &mut Draw) -> (Source, u16) {
    (Source::L2, draw.lognormal(20.0, 1.0))
}

/// Most from memory, where it takes turns.
fn dram_bound(draw: &mut Draw) -> (Source, u16) {
    match draw.share() {
        ..0.3 => (Source::L1d, draw.between(4, 7)),
        _ => (Source::Dram, draw.lognormal(300.0, 0.4)),
    }
}

/// The same tail, and nothing that tells where it was served: stores.
fn without_source(draw: &mut Draw) -> (Source, u16) {
    (Source::L1d, l1_bound(draw).1)
}

const LOADS: [(&str, Load); 4] = [
    ("an L1-bound mix", l1_bound),
    ("a lognormal", lognormal),
    ("a DRAM-bound mix", dram_bound),
    ("a mix without sources", without_source),
];

/// So many samples by place, each of weight 1,000.
fn drawn(load: Load, n: u32, draw: &mut Draw) -> Vec<(Served, SpeCounts)> {
    let mut rows: Vec<(Source, SpeRow)> = Vec::new();
    for _ in 0..n {
        let (source, cycles) = load(draw);
        let at = rows.iter().position(|(of, _)| *of == source);
        let at = at.unwrap_or_else(|| {
            rows.push((source, SpeRow::ZERO));
            rows.len() - 1
        });
        let row = &mut rows[at].1;
        row.samples += 1;
        row.total.add(cycles);
        row.histogram[SpeRow::bucket(cycles)] += 1;
    }
    let counts = |(source, row): (Source, SpeRow)| {
        (
            Served::By(source),
            SpeCounts::between(&SpeRow::ZERO, &row, 1000.0),
        )
    };
    rows.into_iter().map(counts).collect()
}

fn borrowed(parts: &[(Served, SpeCounts)]) -> Vec<(Served, &SpeCounts)> {
    parts
        .iter()
        .map(|(served, counts)| (*served, counts))
        .collect()
}

/// As `docs/accuracy.md` states. Student's interval, which was used before, holds the truth of the
/// L1-bound mix in 35 of 100 cases at 30 samples, and in 65 at 100.
#[test]
fn intervals_hold_the_truth_in_93_of_100_cases() {
    for (name, load) in LOADS {
        let draw = &mut Draw(1);
        let truth: f64 = (0..400_000).map(|_| f64::from(load(draw).1)).sum::<f64>() / 4e5;
        for n in [30, 50, 100, 300, 1000, 3000] {
            let runs = if n > 500 { 160 } else { 400 };
            let mut others = Vec::new();
            let held = (0..runs).filter(|run| {
                let own = drawn(load, n, draw);
                // The others of the machine run the same, so that it has just enough samples.
                if run % 20 == 0 {
                    others = drawn(load, 1000_u32.saturating_sub(n), draw);
                }
                let machine: Vec<_> = own.iter().chain(&others).copied().collect();
                let interval = mean(&borrowed(&own), &borrowed(&machine)).unwrap();
                interval.low <= truth && truth <= interval.high
            });
            let held = 100.0 * f64::from(u32::try_from(held.count()).unwrap()) / f64::from(runs);
            println!("{name}, {n} samples: {held:.1}%");
            assert!(held >= 93.0, "{name}, {n} samples: {held}%");
        }
    }
}

/// What no interval can be stated of has none: few samples, or none to tell what is rare.
#[test]
fn without_enough_samples_there_is_no_mean() {
    let draw = &mut Draw(7);
    let own = drawn(l1_bound, 29, draw);
    let machine = drawn(l1_bound, 2000, draw);
    assert_eq!(mean(&borrowed(&own), &borrowed(&machine)), None);
    let own = drawn(l1_bound, 999, draw);
    assert_eq!(mean(&borrowed(&own), &borrowed(&own)), None);
    let own = drawn(l1_bound, 1000, draw);
    assert!(mean(&borrowed(&own), &borrowed(&own)).is_some());
}

/// A place that no sample came from enters with the machine's latency of it.
#[test]
fn a_place_that_was_not_seen_widens_the_interval() {
    let draw = &mut Draw(7);
    let own = drawn(|draw| (Source::L1d, draw.between(4, 7)), 50, draw);
    let machine = drawn(|draw| (Source::L1d, draw.between(4, 7)), 2000, draw);
    let narrow = mean(&borrowed(&own), &borrowed(&machine)).unwrap();
    let far = drawn(|_| (Source::Remote, 600), 100, draw);
    let machine = [machine, far].concat();
    let wide = mean(&borrowed(&own), &borrowed(&machine)).unwrap();
    assert!(narrow.high < 10.0, "{narrow:?}");
    // By the limit of none, 3.7 of 50 may be remote.
    assert!((40.0..80.0).contains(&wide.high), "{wide:?}");
    assert!((wide.low - narrow.low).abs() < 1e-9);
}

/// A container's samples on a CPU with a short period and on one with a long one: each counts as
/// many operations as it stands for.
#[test]
fn a_mean_is_weighted_as_counts_are() {
    let of = |n: u32, cycles: u16, weight| {
        let mut row = SpeRow {
            samples: n.into(),
            ..SpeRow::ZERO
        };
        (0..n).for_each(|_| row.total.add(cycles));
        row.histogram[SpeRow::bucket(cycles)] = n;
        SpeCounts::between(&SpeRow::ZERO, &row, weight)
    };
    let mut counts = of(1000, 10, 1000.0);
    counts.add(&of(1000, 100, 9000.0));
    let parts = [(Served::NotSaid, &counts)];
    let interval = mean(&parts, &parts).unwrap();
    assert!((interval.value - 91.0).abs() < 1e-9, "{interval:?}");
    let median = spe::quantile(&counts, 0.5).unwrap();
    assert!((96.0..=127.0).contains(&median.value), "{median:?}");
}
