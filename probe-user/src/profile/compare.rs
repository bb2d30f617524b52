//! Comparison of two profiles: each value with that of the other, and whether they differ by more
//! than chance allows.
//!
//! A difference has a star where it is beyond the 99% interval of Welch's test (Biometrika 34,
//! 1947, 28-35) on the values of windows. Three things widen that interval: the values' own
//! intervals; the likeness of windows that follow each other, by which n windows are as many as
//! n (1 - r) / (1 + r) independent ones, with r the correlation of neighbours (Bayley and
//! Hammersley, JRSS Supplement 8, 1946, 184-197); and few windows, by Student's t, and by the
//! other side's scatter where that is larger and of more windows.

use std::collections::{HashMap, HashSet};

use super::{Holder, Line, LineMetric, Profile};
use crate::derive::statistics::student_of;

/// The 99.5% quantile of the normal distribution.
const Z99: f64 = 2.575_829;
/// The 97.5% quantile, of intervals.
const Z95: f64 = 1.959_964;

/// Independent windows that a side needs to have a star: scatter of fewer says nothing, skewed
/// values need more than that, and so do windows whose likeness is not known well.
const FEWEST: f64 = 8.0;

/// One side of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// Windows from this second on, to that one; None: to the end.
    pub range: (f64, Option<f64>),
    /// Only rows of this pod, container or name.
    pub of: Option<String>,
}

/// The windows of a line on one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Windows with a value.
    pub windows: usize,
    /// Their mean by their lengths; of a counter by the second.
    pub mean: f64,
    /// Standard error of the mean by the scatter of windows; None of fewer than two.
    pub scatter: Option<f64>,
    /// Standard error of the mean by the values' own intervals.
    pub own: f64,
    /// As many independent windows would have that scatter.
    pub effective: f64,
}

/// A value on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Whose it is, on the first side.
    pub holder: Holder,
    /// The metric.
    pub metric: LineMetric,
    /// What tells it from others of both.
    pub of: String,
    /// The first side.
    pub a: Sample,
    /// The second.
    pub b: Sample,
    /// Second by first; None where the first is 0.
    pub ratio: Option<f64>,
    /// By how much the means may differ by chance; None of too few windows that are independent.
    pub allowed: Option<f64>,
}

impl Compared {
    /// Whether the difference exceeds what chance allows.
    #[must_use]
    pub fn star(&self) -> bool {
        self.allowed
            .is_some_and(|allowed| (self.b.mean - self.a.mean).abs() > allowed)
    }
}

/// Two profiles, or two parts of them.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// What each side is called.
    pub names: [String; 2],
    /// Values that both have.
    pub both: Vec<Compared>,
    /// Rows that only one side has, by name.
    pub alone: [Vec<String>; 2],
}

/// Compares what both sides have.
#[must_use]
pub fn compare(profiles: [&Profile; 2], sides: &[Side; 2]) -> Comparison {
    let found = [0, 1].map(|at| lines(profiles[at], &sides[at]));
    let pairs = pairs(
        [0, 1].map(|at| &profiles[at].holders[..]),
        &[0, 1].map(|at| {
            let holders = found[at].keys().map(|(holder, ..)| *holder);
            holders.collect::<HashSet<_>>()
        }),
        sides.iter().any(|side| side.of.is_some()),
    );
    let mut comparison = Comparison {
        names: [0, 1].map(|at| named(profiles[at], &sides[at])),
        ..Comparison::default()
    };
    // In the order of the first profile's lines.
    for line in &profiles[0].lines {
        let metric = &profiles[0].metrics[line.metric];
        let key = (line.holder, metric.name.clone(), line.of.clone());
        let Some((_, a)) = found[0].get(&key) else {
            continue;
        };
        let Some(other) = pairs.get(&line.holder) else {
            continue;
        };
        let Some((_, b)) = found[1].get(&(*other, key.1, key.2)) else {
            continue;
        };
        comparison.both.push(Compared {
            holder: profiles[0].holders[line.holder].clone(),
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
        let has = |holder: &usize| match at {
            0 => pairs.contains_key(holder),
            _ => others.contains(holder),
        };
        let holders = found[at].keys().map(|(holder, ..)| *holder);
        let alone = holders.filter(|holder| !has(holder));
        let mut alone: Vec<String> = alone
            .map(|holder| profiles[at].holders[holder].label.clone())
            .collect();
        alone.sort();
        alone.dedup();
        comparison.alone[at] = alone;
    }
    comparison
}

fn named(profile: &Profile, side: &Side) -> String {
    let mut name = profile.file.clone();
    if side.range != (0.0, None) {
        let end = side.range.1.map_or(String::new(), |end| end.to_string());
        name += &format!(" {}-{end} s", side.range.0);
    }
    if let Some(of) = &side.of {
        name += &format!(" {of}");
    }
    name
}

type Key = (usize, String, String);

/// The lines of a side that have values, by holder, metric and what tells them apart.
fn lines<'a>(profile: &'a Profile, side: &Side) -> HashMap<Key, (&'a Line, Sample)> {
    let wanted = |holder: &Holder| {
        side.of.as_deref().is_none_or(|of| {
            let names = [holder.pod.as_deref(), holder.container.as_deref()];
            let own = [holder.name.as_str(), holder.label.as_str()];
            names.contains(&Some(of)) || own.contains(&of)
        })
    };
    let lines = profile.lines.iter();
    let lines = lines.filter(|line| wanted(&profile.holders[line.holder]));
    let found = lines.filter_map(|line| {
        let metric = &profile.metrics[line.metric];
        let sample = Sample::of(line, metric, &profile.windows, side.range)?;
        let key = (line.holder, metric.name.clone(), line.of.clone());
        Some((key, (line, sample)))
    });
    found.collect()
}

/// The holder of the second side for each of the first: of the same name; else of the same names of
/// the runtime; else of the same without what a deployment puts behind a pod's name. With pods that
/// the user named (`chosen`) the container's name decides.
fn pairs(
    holders: [&[Holder]; 2],
    there: &[HashSet<usize>; 2],
    chosen: bool,
) -> HashMap<usize, usize> {
    type Name = fn(&Holder) -> Option<(&'static str, String)>;
    let plain: [Name; 3] = [
        |holder| Some((holder.part, format!("{} {}", holder.kind, holder.name))),
        |holder| {
            Some((
                holder.part,
                holder.pod.as_ref().map(|_| holder.label.clone())?,
            ))
        },
        |holder| Some((holder.part, without_hash(holder)?)),
    ];
    let by_container: [Name; 1] =
        [|holder| Some((holder.part, holder.container.clone().unwrap_or_default()))];
    let names: &[Name] = if chosen { &by_container } else { &plain };
    let mut pairs = HashMap::new();
    let mut taken = HashSet::new();
    for name in names {
        let unique = |at: usize, free: &dyn Fn(usize) -> bool| {
            let mut by_name: HashMap<_, Vec<usize>> = HashMap::new();
            for holder in there[at].iter().copied().filter(|holder| free(*holder)) {
                if let Some(name) = name(&holders[at][holder]) {
                    by_name.entry(name).or_default().push(holder);
                }
            }
            by_name
        };
        let first = unique(0, &|holder| !pairs.contains_key(&holder));
        let second = unique(1, &|holder| !taken.contains(&holder));
        for (name, ours) in first {
            if let ([ours], Some([theirs])) = (&ours[..], second.get(&name).map(Vec::as_slice)) {
                pairs.insert(*ours, *theirs);
                taken.insert(*theirs);
            }
        }
    }
    pairs
}

/// Namespace, workload and container: `web` of the pods `web-7d4b9c6f5-x2k4q` and
/// `web-58c9f7d6b4-9zv7h`.
fn without_hash(holder: &Holder) -> Option<String> {
    let pod = holder.pod.as_deref()?;
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
    let container = holder.container.as_deref().unwrap_or_default();
    let namespace = holder.namespace.as_deref().unwrap_or_default();
    Some(format!("{namespace}/{workload}/{container}"))
}

impl Sample {
    /// The windows of a line in this range; None where none has a value.
    fn of(
        line: &Line,
        metric: &LineMetric,
        windows: &[(f64, f64)],
        (from, to): (f64, Option<f64>),
    ) -> Option<Self> {
        let known = line.shown(metric, windows).filter_map(|(at, value)| {
            let (start, end) = windows[at];
            let inside = start >= from && to.is_none_or(|to| end <= to);
            let length = end - start;
            let (low, high) = line.interval(at);
            let wide = (high - low) / (2.0 * Z95);
            let wide = if wide.is_finite() { wide } else { 0.0 };
            let error = wide / if metric.is_counter { length } else { 1.0 };
            (inside && value.is_finite() && length > 0.0).then_some((value, length, error))
        });
        Self::of_values(&known.collect::<Vec<_>>())
    }

    /// Of values, each with its weight and the standard error of its own.
    pub(super) fn of_values(all: &[(f64, f64, f64)]) -> Option<Self> {
        let weights: f64 = all.iter().map(|(_, weight, _)| weight).sum();
        if all.is_empty() || weights <= 0.0 {
            return None;
        }
        // From the first value on: a mean of equal values is that value to the digit.
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
        let likeness = likeness(all, mean);
        let stretch = (1.0 + likeness) / (1.0 - likeness);
        Some(Self {
            windows: all.len(),
            mean,
            scatter: (all.len() > 1).then(|| (squares * n / (n - 1.0) * stretch).sqrt()),
            own: own.sqrt(),
            effective: (n / stretch).max(2.0),
        })
    }

    /// The variance of the mean by scatter. Few windows may be alike by chance, above all where the
    /// event is rare: their scatter is at least that of the other side, where that has more.
    fn scatter_beside(&self, other: &Self) -> f64 {
        let own = self.scatter.unwrap_or(0.0).powi(2);
        if self.windows >= other.windows {
            return own;
        }
        let of_a_window = other.scatter.unwrap_or(0.0).powi(2) * other.effective;
        own.max(of_a_window / self.effective)
    }
}

/// The correlation of values that follow each other, from 0 on. It is estimated too low by about
/// (1 + 4 r) / n (Marriott and Pope, Biometrika 41, 1954, 390-402), which is added.
fn likeness(all: &[(f64, f64, f64)], mean: f64) -> f64 {
    let squares: f64 = all.iter().map(|(value, ..)| (value - mean).powi(2)).sum();
    let products = all.windows(2);
    let products: f64 = products
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

/// By how much means may differ by chance; None where a side has too few windows, or windows that
/// are too much alike.
fn allowed(a: &Sample, b: &Sample) -> Option<f64> {
    (a.effective >= FEWEST && b.effective >= FEWEST).then(|| interval(a, b))
}

/// By how much means may differ by chance.
fn interval(a: &Sample, b: &Sample) -> f64 {
    let scatter = [a.scatter_beside(b), b.scatter_beside(a)];
    let variance = scatter[0] + scatter[1] + a.own.powi(2) + b.own.powi(2);
    if variance <= 0.0 {
        return 0.0;
    }
    let of = |scatter: f64, sample: &Sample| scatter.powi(2) / (sample.effective - 1.0);
    let free = of(scatter[0], a) + of(scatter[1], b);
    let free = if free > 0.0 {
        (variance.powi(2) / free).max(4.0)
    } else {
        f64::INFINITY
    };
    student_of(Z99, free) * variance.sqrt()
}

#[cfg(test)]
mod tests;
