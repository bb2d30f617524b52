//! How often a star is wrong or missing, and how rows are paired.

use super::*;

/// Pseudo-random numbers between 0 and 1, the same in every run (Steele's `SplitMix64`).
struct Random(u64);

impl Random {
    #[expect(clippy::cast_precision_loss, reason = "53 bits of it")]
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A normal number, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

type Draw = fn(&mut Random) -> f64;

/// Share of comparisons with a star in percent, for sides of so many windows each. Neighbouring
/// windows are correlated by `correlation`.
fn stars(a: (usize, Draw), b: (usize, Draw), correlation: f64) -> f64 {
    const TRIALS: u32 = 20_000;
    let mut random = Random(7);
    let mut starred = 0_u32;
    let mut sample = |(windows, draw): (usize, Draw)| {
        let mut last = draw(&mut random);
        let values = (0..windows).map(|_| {
            let fresh = draw(&mut random);
            last = correlation * last + (1.0 - correlation * correlation).sqrt() * fresh;
            (last, 1.0, 0.0)
        });
        SideStatistics::of_values(&values.collect::<Vec<_>>()).unwrap()
    };
    for _ in 0..TRIALS {
        let (a, b) = (sample(a), sample(b));
        let star = |allowed| (b.mean - a.mean).abs() > allowed;
        starred += u32::from(allowed(&a, &b).is_some_and(star));
    }
    100.0 * f64::from(starred) / f64::from(TRIALS)
}

/// At most 1% of equal pairs have a star, also with skewed values and different numbers of windows.
#[test]
fn few_stars_are_wrong() {
    let normal: Draw = Random::normal;
    let exponential: Draw = |random| -(1.0 - random.uniform()).ln();
    let lognormal: Draw = |random| random.normal().exp();
    let counts: Draw = |random| f64::from(u8::from(random.uniform() < 0.2));
    for (name, draw) in [
        ("normal", normal),
        ("exponential", exponential),
        ("lognormal", lognormal),
        ("rare events", counts),
    ] {
        for (a, b) in [(8, 8), (30, 30), (120, 120), (8, 120), (30, 120)] {
            let wrong = stars((a, draw), (b, draw), 0.0);
            println!("{name}, {a} and {b} windows: {wrong:.2}% wrong stars");
            assert!(wrong <= 1.0, "{name}, {a} and {b}: {wrong:.2}%");
        }
    }
}

/// Neighbouring windows are correlated in most programs.
#[test]
fn windows_that_are_alike_do_not_make_stars() {
    for (correlation, windows, limit) in [
        (0.5, 8, 1.0),
        (0.8, 8, 1.0),
        (0.9, 8, 1.0),
        (0.5, 15, 2.0),
        (0.8, 15, 2.0),
        (0.9, 15, 2.0),
        (0.5, 30, 2.0),
        (0.8, 30, 2.0),
        (0.9, 30, 2.0),
        (0.5, 120, 2.0),
        (0.8, 120, 2.0),
    ] {
        let wrong = stars(
            (windows, Random::normal),
            (windows, Random::normal),
            correlation,
        );
        println!("{correlation} alike, {windows} windows: {wrong:.2}% wrong stars");
        assert!(wrong <= limit, "{correlation}, {windows}: {wrong:.2}%");
    }
}

/// A difference of one standard deviation is found with 60 windows.
#[test]
fn a_difference_is_seen() {
    let seen = stars(
        (60, Random::normal),
        (60, |random| random.normal() + 1.0),
        0.0,
    );
    println!("one standard deviation, 60 windows: {seen:.1}% found");
    assert!(seen > 95.0, "{seen}");
}

fn sample(values: &[f64], error: f64) -> SideStatistics {
    let values: Vec<_> = values.iter().map(|value| (*value, 1.0, error)).collect();
    SideStatistics::of_values(&values).unwrap()
}

#[test]
fn intervals_and_few_windows_take_a_star_away() {
    let a = [1.0, 1.1, 0.9, 1.0, 1.1, 0.9, 1.0, 1.1];
    let b = a.map(|value| value + 0.5);
    let exceeds = |a: &SideStatistics, b: &SideStatistics| {
        allowed(a, b).is_some_and(|it| b.mean - a.mean > it)
    };
    assert!(exceeds(&sample(&a, 0.0), &sample(&b, 0.0)));
    // Each value is known to +-1 only (one standard error): their mean to 0.35.
    assert!(!exceeds(&sample(&a, 1.0), &sample(&b, 1.0)));
    assert_eq!(allowed(&sample(&a[..7], 0.0), &sample(&b, 0.0)), None);
    // Values that never change differ by any difference.
    let limit = |bytes| sample(&[bytes; 8], 0.0);
    assert!(exceeds(&limit(1.0), &limit(2.0)));
    assert!(!exceeds(&limit(1.0), &limit(1.0)));
}

/// Welch by hand: means 2 and 5, variances of the means 1/3 and 4/3.
#[test]
fn it_is_welchs_interval() {
    let values = |all: [f64; 3]| sample(&all, 0.0);
    let (a, b) = (values([1.0, 3.0, 2.0]), values([3.0, 7.0, 5.0]));
    assert!((a.scatter.unwrap().powi(2) - 1.0 / 3.0).abs() < 1e-12);
    assert!((b.scatter.unwrap().powi(2) - 4.0 / 3.0).abs() < 1e-12);
    // 25/9 / (1/9/2 + 16/9/2) = 2.94 degrees, taken as 4: t is 4.604.
    let half = interval(&a, &b);
    assert!(
        (half / (4.604 * (5.0_f64 / 3.0).sqrt()) - 1.0).abs() < 0.02,
        "{half}"
    );
}

fn subject(kind: &'static str, name: &str, pod: Option<&str>) -> LineSubject {
    let own = [("kind", kind), ("name", name)];
    let named = pod.map(|pod| [("namespace", "shop"), ("pod", pod), ("container", "app")]);
    let labels = own.into_iter().chain(named.into_iter().flatten());
    LineSubject {
        part: "row",
        label: pod.map_or(name.to_owned(), |pod| format!("shop/{pod}/app")),
        labels: labels
            .map(|(label, value)| (label, value.to_owned()))
            .collect(),
    }
}

#[test]
fn rows_are_compared_with_their_like() {
    let first = [
        subject("system", "system", None),
        subject("container", "aa", Some("web-7d4b9c6f5-x2k4q")),
        subject("container", "bb", Some("db-0")),
        subject("container", "cc", Some("batch-7d4b9c6f5-aaaaa")),
        subject("container", "dd", Some("batch-7d4b9c6f5-bbbbb")),
    ];
    let second = [
        subject("container", "ee", Some("web-58c9f7d6b4-9zv7h")),
        subject("container", "ff", Some("db-0")),
        subject("system", "system", None),
        subject("container", "gg", Some("batch-58c9f7d6b4-ccccc")),
    ];
    let all = |subjects: &[LineSubject]| (0..subjects.len()).collect::<HashSet<_>>();
    let there = || [all(&first), all(&second)];
    let found = pairs([&first, &second], &there(), false);
    let expected = HashMap::from([(0, 2), (1, 0), (2, 1)]);
    // Two pods of a batch cannot be told apart.
    assert_eq!(found, expected);
    // Two pods of one deployment that the user names.
    let chosen = [HashSet::from([3]), HashSet::from([4])];
    let found = pairs([&first, &first], &chosen, true);
    assert_eq!(found, HashMap::from([(3, 4)]));
}
