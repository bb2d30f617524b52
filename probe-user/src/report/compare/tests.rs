//! How often a difference is starred wrongly or missed, and how rows are named and paired.

use test_support::Random;

use super::*;
use crate::report::tests::metric;

/// A normally distributed number, by Box and Muller.
fn normal(random: &mut Random) -> f64 {
    let (u, v) = (1.0 - random.uniform(), random.uniform());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

type Draw = fn(&mut Random) -> f64;

/// A series of windows of one second, with these values.
fn windows(values: impl Iterator<Item = f64>) -> WindowSeries {
    let windows = values.map(|value| WindowValue {
        value,
        seconds: 1.0,
        error: 0.0,
    });
    WindowSeries::new(windows.collect()).unwrap()
}

/// Windows whose neighbours have this correlation.
fn correlated(random: &mut Random, count: usize, draw: Draw, correlation: f64) -> WindowSeries {
    let mut last = draw(random);
    windows((0..count).map(|_| {
        last = correlation * last + (1.0 - correlation * correlation).sqrt() * draw(random);
        last
    }))
}

/// Windows of a program with two phases, of `length` windows each on average. In the second phase
/// it does five times as much.
fn phases(random: &mut Random, count: usize, length: f64) -> WindowSeries {
    let mut is_high = random.uniform() < 0.5;
    windows((0..count).map(|_| {
        is_high ^= random.uniform() < 1.0 / length;
        let size = if is_high { 5.0 } else { 1.0 };
        size * exponential(random)
    }))
}

fn exponential(random: &mut Random) -> f64 {
    -(1.0 - random.uniform()).ln()
}

fn lognormal(random: &mut Random) -> f64 {
    normal(random).exp()
}

fn rare(random: &mut Random) -> f64 {
    f64::from(u8::from(random.uniform() < 0.2))
}

fn p(a: &WindowSeries, b: &WindowSeries) -> f64 {
    match chance::test(a, b) {
        Evidence::Tested(test) => test.p,
        Evidence::TooFewWindows | Evidence::Constant => 1.0,
    }
}

/// Share of pairs with p <= `level`, relative to `level`.
fn excess(level: f64, trials: u32, mut pair: impl FnMut() -> [WindowSeries; 2]) -> f64 {
    let hits = (0..trials).filter(|_| {
        let [a, b] = pair();
        p(&a, &b) <= level
    });
    f64::from(u32::try_from(hits.count()).unwrap()) / f64::from(trials) / level
}

/// Between equal sides, `p` is 0.01 or less in at most 1% of trials, also with skewed values,
/// different numbers of windows, and rare events.
#[test]
fn p_of_equal_sides_is_rarely_small() {
    for (name, draw) in [
        ("normal", normal as Draw),
        ("exponential", exponential),
        ("lognormal", lognormal),
        ("an event in one of five windows", rare),
    ] {
        for (a, b) in [(8, 8), (16, 16), (30, 30), (120, 120), (8, 120), (30, 120)] {
            let mut random = Random(7);
            let mut side = |count| correlated(&mut random, count, draw, 0.0);
            let ratio = excess(0.01, 3000, || [side(a), side(b)]);
            println!("{name}, {a} and {b} windows: {ratio:.2}");
            assert!(ratio <= 1.0, "{name}, {a} and {b}: {ratio:.2}");
        }
    }
}

/// Neighbouring windows of most programs are correlated. Where the correlation lasts for a fifth of
/// a recording or less, small values of `p` are at most five times too frequent.
#[test]
fn correlated_windows_do_not_make_p_too_small() {
    for (count, correlation, limit) in [
        (16, 0.5, 5.0),
        (30, 0.5, 3.0),
        (60, 0.5, 2.0),
        (60, 0.8, 2.0),
        (200, 0.5, 1.0),
        (200, 0.8, 1.0),
        (200, 0.9, 1.0),
    ] {
        let mut random = Random(7);
        let mut side = || correlated(&mut random, count, normal, correlation);
        let ratio = excess(0.01, 3000, || [side(), side()]);
        println!("correlation {correlation}, {count} windows: {ratio:.2}");
        assert!(ratio <= limit, "{correlation}, {count}: {ratio:.2}");
    }
    for (count, length, limit) in [(60, 5.0, 2.0), (200, 5.0, 1.0), (200, 10.0, 2.0)] {
        let mut random = Random(7);
        let mut side = || phases(&mut random, count, length);
        let ratio = excess(0.01, 3000, || [side(), side()]);
        println!("phases of {length} windows, {count} windows: {ratio:.2}");
        assert!(ratio <= limit, "phases of {length}, {count}: {ratio:.2}");
    }
}

/// A slow drift within both recordings is scatter of their means.
#[test]
fn drift_is_not_a_difference() {
    let mut random = Random(7);
    let mut side = || {
        let drift = (0..200).map(|at| f64::from(at) / 70.0 + normal(&mut random));
        windows(drift.collect::<Vec<_>>().into_iter())
    };
    assert_eq!(excess(0.01, 1000, || [side(), side()]), 0.0);
}

/// A compared value of a container with this name.
fn value(name: usize, a: &WindowSeries, b: &WindowSeries) -> ComparedValue {
    let statistics = |series: &WindowSeries| SideStatistics {
        windows: series.len(),
        mean: series.mean,
        own_error: 0.0,
    };
    ComparedValue {
        subject: subject("container", &name.to_string(), None),
        metric: metric("cpus_used", "CPU", false),
        qualifier: String::new(),
        a: statistics(a),
        b: statistics(b),
        evidence: chance::test(a, b),
        level: 0.0,
        differs: false,
    }
}

/// 100 compared values of two recordings of all kinds of programs. Program 0 does `factor` times as
/// much in the second recording.
fn recordings(random: &mut Random, factor: f64) -> Vec<ComparedValue> {
    const WINDOWS: usize = 120;
    let mut all: Vec<ComparedValue> = (1..100)
        .map(|name| {
            let mut side = || match name % 6 {
                0 => correlated(random, WINDOWS, normal, 0.0),
                1 => correlated(random, WINDOWS, exponential, 0.0),
                2 => correlated(random, WINDOWS, lognormal, 0.5),
                3 => correlated(random, WINDOWS, rare, 0.0),
                4 => correlated(random, WINDOWS, normal, 0.8),
                _ => phases(random, WINDOWS, 5.0),
            };
            value(name, &side(), &side())
        })
        .collect();
    let mut side = |factor: f64| {
        let values: Vec<f64> = (0..WINDOWS)
            .map(|_| factor * (1.0 + 0.5 * normal(random)))
            .collect();
        windows(values.into_iter())
    };
    all.push(value(0, &side(1.0), &side(factor)));
    choose(&mut all);
    all
}

/// Of 300 comparisons of equal recordings, of 100 values each, at most 1% have a star.
#[test]
fn equal_recordings_rarely_have_stars() {
    let mut random = Random(7);
    let starred = (0..300).filter(|_| {
        let all = recordings(&mut random, 1.0);
        all.iter().any(|value| value.differs)
    });
    let starred = starred.count();
    println!("{starred} of 300 with a star");
    assert!(starred <= 3, "{starred} of 300");
}

/// A doubling is the first of 100 values, and has a star, in each of 20 trials.
#[test]
fn a_doubling_is_first_and_has_a_star() {
    let mut random = Random(7);
    for _ in 0..20 {
        let all = recordings(&mut random, 2.0);
        assert_eq!(all[0].subject.name(), "0");
        assert!(all[0].differs);
        assert!((all[0].ratio().unwrap() - 2.0).abs() < 0.5);
        // A star is a difference beyond what chance allows, at the same level.
        for value in &all {
            let exceeds = value.difference().abs() > value.allowed().unwrap();
            assert_eq!(value.differs, exceeds, "{value:?}");
        }
    }
}

/// A value of container `at` whose mean differs by `shift`.
fn shifted(at: usize, shift: f64) -> ComparedValue {
    let a = [1.0, 1.1, 0.9, 1.0, 1.1, 0.9, 1.0, 1.1];
    let b = a.map(|value| value + shift);
    value(at, &series(&a, 0.0), &series(&b, 0.0))
}

/// Twenty values, of which the first differs more than the others, and not enough for a star.
fn slight_differences() -> Vec<ComparedValue> {
    let slight = shifted(0, 0.15);
    assert!((0.0005..0.005).contains(&slight.test().unwrap().p));
    let others = (1..20).map(|at| shifted(at, 0.01));
    std::iter::once(slight).chain(others).collect()
}

/// Differences of the machine do not lower the bar for containers.
#[test]
fn differences_of_the_machine_do_not_change_the_level_of_containers() {
    let mut all = slight_differences();
    all.extend((20..40).map(|at| ComparedValue {
        subject: subject("system", "system", None),
        ..shifted(at, 1.0)
    }));
    choose(&mut all);
    assert_eq!(all[0].subject.name(), "0");
    let differing = |all: &[ComparedValue]| all.iter().filter(|value| value.differs).count();
    assert_eq!([&all[..20], &all[20..]].map(differing), [0, 20]);
}

/// A difference of constants needs no test, so it does not lower the bar for other values.
#[test]
fn constants_do_not_change_the_level() {
    let mut all = slight_differences();
    let limit = |bytes| series(&[bytes; 8], 0.0);
    all.extend((20..60).map(|at| value(at, &limit(1.0), &limit(2.0))));
    choose(&mut all);
    let differing = { all.iter() }.filter(|value| value.differs);
    let constant = { all.iter() }.filter(|value| value.a.mean == 1.0 && value.b.mean == 2.0);
    assert_eq!((differing.count(), constant.count()), (40, 40));
}

fn series(values: &[f64], error: f64) -> WindowSeries {
    let windows = values.iter().map(|value| WindowValue {
        value: *value,
        seconds: 1.0,
        error,
    });
    WindowSeries::new(windows.collect()).unwrap()
}

#[test]
fn wide_intervals_raise_p_and_few_windows_have_no_verdict() {
    let a = [1.0, 1.1, 0.9, 1.0, 1.1, 0.9, 1.0, 1.1];
    let b = a.map(|value| value + 0.5);
    assert!(p(&series(&a, 0.0), &series(&b, 0.0)) < 1e-4);
    // Each value has a standard error of 1, so their mean has one of 0.35.
    assert!(p(&series(&a, 1.0), &series(&b, 1.0)) > 0.2);
    let few = chance::test(&series(&a[..7], 0.0), &series(&b, 0.0));
    assert_eq!(few, Evidence::TooFewWindows);
    // If values never change, any difference is certain.
    let limit = |bytes| series(&[bytes; 8], 0.0);
    assert_eq!(p(&limit(1.0), &limit(2.0)), 0.0);
    assert_eq!(chance::test(&limit(1.0), &limit(1.0)), Evidence::Constant);
    // Nothing in A, and something in B.
    assert!(p(&limit(0.0), &series(&b, 0.0)) < 1e-4);
}

/// Welch's test by hand, of eight values a side without correlation: means 2 and 5, variances of
/// the means 1/7 and 4/7.
#[test]
fn without_correlation_the_test_is_welchs() {
    let a = [1.0, 3.0, 3.0, 1.0, 1.0, 3.0, 3.0, 1.0].map(|value| value + 0.0);
    let b = a.map(|value| 2.0 * value + 1.0);
    let Evidence::Tested(test) = chance::test(&series(&a, 0.0), &series(&b, 0.0)) else {
        panic!("eight windows are enough");
    };
    // Deviations follow each other as - + + - - + + -: correlation -1/8, without its bias -1/16, so
    // 0. The variances of the means are 8 / (8 x 7) = 1/7 and 4/7, so the standard error is
    // sqrt(5/7).
    assert!((test.standard_error() - (5.0_f64 / 7.0).sqrt()).abs() < 1e-12);
    // Degrees of freedom: 25/49 / (1/49/7 + 16/49/7) = 10.29. For 10 and 11, t at 1% is 3.169 and
    // 3.106.
    let t = test.allowed(0.01) / test.standard_error();
    assert!((3.106..3.169).contains(&t), "{t}");
}

/// `cpus_used` is `task-clock` per second.
#[test]
fn a_counter_and_its_rate_are_one_value() {
    let mut run = Run {
        windows: (0..9)
            .map(|at| (f64::from(at), f64::from(at) + 1.0))
            .collect(),
        subjects: vec![subject("container", "aa", None)],
        metrics: vec![
            metric("task-clock", "ns", true),
            metric("page-faults", "", true),
            metric("cpus_used", "CPU", false),
        ],
        ..Run::default()
    };
    for (at, factor) in [(0, 1e9), (1, 0.0), (2, 1.0)] {
        let mut line = RunLine::new(0, at, String::new(), 0);
        line.values = (1..10).map(|value| f64::from(value) * factor).collect();
        run.lines.push(line);
    }
    let comparison = compare([&run, &run], &Default::default()).unwrap();
    let names: Vec<&str> = { comparison.both.iter() }
        .map(|it| it.metric.name.as_str())
        .collect();
    assert_eq!(names, ["cpus_used", "page-faults"]);
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
fn rows_are_paired_by_name() {
    let first = [
        subject("system", "system", None),
        subject("container", "aa", Some("web-7d4b9c6f5-x2k4q")),
        subject("container", "bb", Some("db-0")),
        subject("container", "cc", Some("batch-7d4b9c6f5-vvvvv")),
        subject("container", "dd", Some("batch-7d4b9c6f5-wwwww")),
    ];
    let second = [
        subject("container", "ee", Some("web-58c9f7d6b4-9zv7h")),
        subject("container", "ff", Some("db-0")),
        subject("system", "system", None),
        subject("container", "gg", Some("batch-58c9f7d6b4-xxxxx")),
    ];
    let all = |subjects: &[LineSubject]| (0..subjects.len()).collect::<HashSet<_>>();
    let present = || [all(&first), all(&second)];
    let pairs = rows::pairs([&first, &second], &present(), false);
    let expected = HashMap::from([(0, 2), (1, 0), (2, 1)]);
    // Both pods of the batch have one name without their hashes, so they have no pair.
    assert_eq!(pairs, expected);
    // The user names two pods of one deployment.
    let chosen = [HashSet::from([3]), HashSet::from([4])];
    let pairs = rows::pairs([&first, &first], &chosen, true);
    assert_eq!(pairs, HashMap::from([(3, 4)]));
}

#[test]
fn rows_are_selected_by_the_names_that_are_printed() {
    let line = |subject| RunLine::new(subject, 0, String::new(), 0);
    let run = Run {
        file: "a.jsonl".to_owned(),
        lines: (0..3).map(line).collect(),
        subjects: vec![
            subject("container", "07247f6ab62365d0", Some("web-0")),
            subject("container", "07247f6c11111111", Some("db-0")),
            subject("container", "3aff8229faf01787", None),
        ],
        ..Run::default()
    };
    let named = |name: &str| rows::named(&run, name);
    let one = |at: usize| Ok(HashSet::from([at]));
    assert_eq!(named("web-0"), one(0));
    assert_eq!(named("shop/db-0/app"), one(1));
    assert_eq!(named("app"), Ok(HashSet::from([0, 1])));
    assert_eq!(named("db-0/app"), one(1));
    assert_eq!(named("07247f6ab623"), one(0));
    assert_eq!(named("3aff"), one(2));
    let refused = |name: &str| named(name).unwrap_err().to_string();
    assert_eq!(
        refused("07247f6"),
        "07247f6 stands for several rows of a.jsonl: shop/db-0/app, shop/web-0/app"
    );
    assert_eq!(
        refused("cache"),
        "a.jsonl has no row cache: give the name of a pod or container, or a part of its id"
    );
}
