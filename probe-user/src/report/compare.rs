//! Compares two runs: each value of both, and whether the difference is larger than chance
//! allows.
//!
//! A difference has a star if it is outside the 99% interval of Welch's test (Biometrika 34, 1947,
//! 28-35) on the values of windows. Three things widen that interval. First, the values' own
//! intervals. Second, the correlation r of neighbouring windows: n of them count as
//! n (1 - r) / (1 + r) independent ones (Bayley and Hammersley, JRSS Supplement 8, 1946, 184-197).
//! Third, few windows: by Student's t, and by the other side's scatter if that is larger and of
//! more windows.

use std::collections::{HashMap, HashSet};

use super::{LineMetric, LineSubject, Run, RunLine};
use crate::derive::statistics::student_quantile;

/// The 99.5% quantile of the normal distribution.
const Z99: f64 = 2.575_829;
/// The 97.5% quantile, of intervals.
const Z95: f64 = 1.959_964;

/// Minimum number of independent windows for a star. Scatter of fewer windows says nothing; skewed
/// values need more, and so do windows whose correlation is not known well.
const MIN_WINDOWS: f64 = 8.0;

/// One side of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// Windows from this second to that one; None: to the end.
    pub range: (f64, Option<f64>),
    /// Only rows of this pod, container or name; None: all.
    pub of: Option<String>,
}

/// Statistics of a line's windows on one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SideStatistics {
    /// Number of windows with a value.
    pub windows: usize,
    /// Mean, weighted by window length; per second for counters.
    pub mean: f64,
    /// Standard error of the mean by the scatter of windows; None for fewer than two.
    pub scatter: Option<f64>,
    /// Standard error of the mean by the values' own intervals.
    pub own_error: f64,
    /// Number of independent windows with the same scatter.
    pub effective: f64,
}

/// A value of both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedValue {
    /// The subject on the first side.
    pub subject: LineSubject,
    /// The metric.
    pub metric: LineMetric,
    /// Distinguishes series of one subject and metric.
    pub of: String,
    /// The first side.
    pub a: SideStatistics,
    /// The second.
    pub b: SideStatistics,
    /// Second divided by first; None if the first is 0.
    pub ratio: Option<f64>,
    /// Largest difference of the means by chance; None for too few independent windows.
    pub allowed: Option<f64>,
}

impl ComparedValue {
    /// Whether the difference exceeds what chance allows.
    #[must_use]
    pub fn star(&self) -> bool {
        self.allowed
            .is_some_and(|allowed| (self.b.mean - self.a.mean).abs() > allowed)
    }
}

/// Comparison of two runs, or of two parts of them.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Name of each side.
    pub names: [String; 2],
    /// Values that both sides have.
    pub both: Vec<ComparedValue>,
    /// Names of rows that only one side has.
    pub alone: [Vec<String>; 2],
}

/// Compares what both sides have.
#[must_use]
pub fn compare(runs: [&Run; 2], sides: &[Side; 2]) -> Comparison {
    let found = [0, 1].map(|at| lines(runs[at], &sides[at]));
    let pairs = pairs(
        [0, 1].map(|at| &runs[at].subjects[..]),
        &[0, 1].map(|at| {
            let subjects = found[at].keys().map(|(subject, ..)| *subject);
            subjects.collect::<HashSet<_>>()
        }),
        sides.iter().any(|side| side.of.is_some()),
    );
    let mut comparison = Comparison {
        names: [0, 1].map(|at| named(runs[at], &sides[at])),
        ..Comparison::default()
    };
    // In the order of the first run's lines.
    for line in &runs[0].lines {
        let metric = &runs[0].metrics[line.metric];
        let key = (line.subject, metric.name.clone(), line.of.clone());
        let Some((_, a)) = found[0].get(&key) else {
            continue;
        };
        let Some(other) = pairs.get(&line.subject) else {
            continue;
        };
        let Some((_, b)) = found[1].get(&(*other, key.1, key.2)) else {
            continue;
        };
        comparison.both.push(ComparedValue {
            subject: runs[0].subjects[line.subject].clone(),
            metric: metric.clone(),
            of: line.of.clone(),
            ratio: (a.mean != 0.0).then(|| b.mean / a.mean),
            allowed: allowed(a, b),
            a: *a,
            b: *b,
        });
    }
    let others: HashSet<usize> = pairs.values().copied().collect();
    for at in [0, 1] {
        let has = |subject: &usize| match at {
            0 => pairs.contains_key(subject),
            _ => others.contains(subject),
        };
        let subjects = found[at].keys().map(|(subject, ..)| *subject);
        let mut alone: Vec<String> = subjects
            .filter(|subject| !has(subject))
            .map(|subject| runs[at].subjects[subject].label.clone())
            .collect();
        alone.sort();
        alone.dedup();
        comparison.alone[at] = alone;
    }
    comparison
}

fn named(run: &Run, side: &Side) -> String {
    let mut name = run.file.clone();
    if side.range != (0.0, None) {
        let end = side.range.1.map_or(String::new(), |end| end.to_string());
        name += &format!(" {}-{end} s", side.range.0);
    }
    if let Some(of) = &side.of {
        name += &format!(" {of}");
    }
    name
}

type LineKey = (usize, String, String);

/// Lines of a side with values, by subject, metric and distinguishing text.
fn lines<'a>(run: &'a Run, side: &Side) -> HashMap<LineKey, (&'a RunLine, SideStatistics)> {
    let wanted = |subject: &LineSubject| {
        side.of.as_deref().is_none_or(|of| {
            let names = ["name", "pod", "container"].map(|label| subject.get(label));
            names.contains(&Some(of)) || subject.label == of
        })
    };
    let lines = run
        .lines
        .iter()
        .filter(|line| wanted(&run.subjects[line.subject]));
    let found = lines.filter_map(|line| {
        let metric = &run.metrics[line.metric];
        let sample = SideStatistics::for_line(line, metric, &run.windows, side.range)?;
        let key = (line.subject, metric.name.clone(), line.of.clone());
        Some((key, (line, sample)))
    });
    found.collect()
}

/// Pairs subjects of the first side with subjects of the second: by name; else by the runtime's
/// names; else by these names without the hashes of a deployment's pods. If the user named pods
/// (`chosen`), by container name.
fn pairs(
    subjects: [&[LineSubject]; 2],
    there: &[HashSet<usize>; 2],
    chosen: bool,
) -> HashMap<usize, usize> {
    type Name = fn(&LineSubject) -> Option<(&'static str, String)>;
    let plain: [Name; 3] = [
        |subject| {
            let kind = subject.get("kind").unwrap_or_default();
            Some((subject.part, format!("{kind} {}", subject.name())))
        },
        |subject| {
            subject
                .get("pod")
                .map(|_| (subject.part, subject.label.clone()))
        },
        |subject| Some((subject.part, without_hash(subject)?)),
    ];
    let by_container: [Name; 1] = [|subject| {
        Some((
            subject.part,
            subject.get("container").unwrap_or_default().to_owned(),
        ))
    }];
    let names: &[Name] = if chosen { &by_container } else { &plain };
    let mut pairs = HashMap::new();
    let mut taken = HashSet::new();
    for name in names {
        let unique = |at: usize, free: &dyn Fn(usize) -> bool| {
            let mut by_name: HashMap<_, Vec<usize>> = HashMap::new();
            for subject in there[at].iter().copied().filter(|subject| free(*subject)) {
                if let Some(name) = name(&subjects[at][subject]) {
                    by_name.entry(name).or_default().push(subject);
                }
            }
            by_name
        };
        let first = unique(0, &|subject| !pairs.contains_key(&subject));
        let second = unique(1, &|subject| !taken.contains(&subject));
        for (name, ours) in first {
            if let ([ours], Some([theirs])) = (&ours[..], second.get(&name).map(Vec::as_slice)) {
                pairs.insert(*ours, *theirs);
                taken.insert(*theirs);
            }
        }
    }
    pairs
}

/// Namespace, workload and container: workload `web` for the pods `web-7d4b9c6f5-x2k4q` and
/// `web-58c9f7d6b4-9zv7h`.
fn without_hash(subject: &LineSubject) -> Option<String> {
    let pod = subject.get("pod")?;
    let is_hash = |part: &str, lengths: std::ops::RangeInclusive<usize>| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        lengths.contains(&part.len()) && part.chars().all(plain)
    };
    let (rest, last) = pod.rsplit_once('-')?;
    if !is_hash(last, 5..=5) {
        return None;
    }
    let workload = match rest.rsplit_once('-') {
        Some((workload, hash)) if is_hash(hash, 8..=10) => workload,
        _ => rest,
    };
    let container = subject.get("container").unwrap_or_default();
    let namespace = subject.get("namespace").unwrap_or_default();
    Some(format!("{namespace}/{workload}/{container}"))
}

impl SideStatistics {
    /// Statistics of a line's windows in this range; None if none has a value.
    fn for_line(
        line: &RunLine,
        metric: &LineMetric,
        windows: &[(f64, f64)],
        (from, to): (f64, Option<f64>),
    ) -> Option<Self> {
        let known = line.shown(metric, windows).filter_map(|(at, value)| {
            let (start, end) = windows[at];
            let inside = start >= from && to.is_none_or(|to| end <= to);
            let length = end - start;
            let (low, high) = line.interval(at);
            let standard_error = (high - low) / (2.0 * Z95);
            let own = if standard_error.is_finite() {
                standard_error
            } else {
                0.0
            };
            let error = own * metric.shown_factor(length);
            (inside && value.is_finite() && length > 0.0).then_some((value, length, error))
        });
        Self::of_values(&known.collect::<Vec<_>>())
    }

    /// Statistics of values, each with its weight and its own standard error.
    pub(super) fn of_values(all: &[(f64, f64, f64)]) -> Option<Self> {
        let weights: f64 = all.iter().map(|(_, weight, _)| weight).sum();
        if all.is_empty() || weights <= 0.0 {
            return None;
        }
        // Relative to the first value, so that the mean of equal values is exactly that value.
        let (first, ..) = all[0];
        let beyond = all
            .iter()
            .map(|(value, weight, _)| (value - first) * weight);
        let mean = first + beyond.sum::<f64>() / weights;
        let part = |weight: f64| (weight / weights).powi(2);
        let own: f64 = all
            .iter()
            .map(|(_, weight, error)| part(*weight) * error.powi(2))
            .sum();
        let squares: f64 = all
            .iter()
            .map(|(value, weight, _)| part(*weight) * (value - mean).powi(2))
            .sum();
        #[expect(clippy::cast_precision_loss, reason = "a number of windows")]
        let n = all.len() as f64;
        let correlation = correlation(all, mean);
        let stretch = (1.0 + correlation) / (1.0 - correlation);
        Some(Self {
            windows: all.len(),
            mean,
            scatter: (all.len() > 1).then(|| (squares * n / (n - 1.0) * stretch).sqrt()),
            own_error: own.sqrt(),
            effective: (n / stretch).max(2.0),
        })
    }

    /// Variance of the mean by scatter. Few windows may be alike by chance, above all for rare
    /// events, so their scatter is at least that of the other side if it has more windows.
    fn scatter_with(&self, other: &Self) -> f64 {
        let own = self.scatter.unwrap_or(0.0).powi(2);
        if self.windows >= other.windows {
            return own;
        }
        let of_a_window = other.scatter.unwrap_or(0.0).powi(2) * other.effective;
        own.max(of_a_window / self.effective)
    }
}

/// Correlation of neighbouring values, at least 0. The estimate is too low by about (1 + 4 r) / n
/// (Marriott and Pope, Biometrika 41, 1954, 390-402), which is added.
fn correlation(all: &[(f64, f64, f64)], mean: f64) -> f64 {
    let squares: f64 = all.iter().map(|(value, ..)| (value - mean).powi(2)).sum();
    let products: f64 = all
        .windows(2)
        .map(|pair| (pair[0].0 - mean) * (pair[1].0 - mean))
        .sum();
    if squares <= 0.0 {
        return 0.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "a number of windows")]
    let n = all.len() as f64;
    let found = products / squares;
    (found + (1.0 + 4.0 * found) / n).clamp(0.0, 0.95)
}

/// Largest difference of the means by chance; None if a side has too few independent windows.
fn allowed(a: &SideStatistics, b: &SideStatistics) -> Option<f64> {
    (a.effective >= MIN_WINDOWS && b.effective >= MIN_WINDOWS).then(|| interval(a, b))
}

/// Largest difference of the means by chance.
fn interval(a: &SideStatistics, b: &SideStatistics) -> f64 {
    let scatter = [a.scatter_with(b), b.scatter_with(a)];
    let variance = scatter[0] + scatter[1] + a.own_error.powi(2) + b.own_error.powi(2);
    if variance <= 0.0 {
        return 0.0;
    }
    let of = |scatter: f64, sample: &SideStatistics| scatter.powi(2) / (sample.effective - 1.0);
    let squares = of(scatter[0], a) + of(scatter[1], b);
    let degrees = if squares > 0.0 {
        (variance.powi(2) / squares).max(4.0)
    } else {
        f64::INFINITY
    };
    student_quantile(Z99, degrees) * variance.sqrt()
}

#[cfg(test)]
mod tests;
