//! Compares two runs: each value of both, and which differences are larger than chance allows.
//!
//! A test of the windows gives each difference its probability by chance ([`chance`]). Differences
//! are then chosen over all values, so that at most 1% of the chosen ones are expected to be chance
//! ([`discoveries`]).

mod chance;
mod discoveries;
mod rows;

use std::collections::{BTreeSet, HashMap, HashSet};

use self::chance::{WindowSeries, WindowValue};
pub(super) use self::{chance::MIN_WINDOWS, discoveries::FALSE_RATE};
pub use self::{
    chance::{DifferenceTest, Evidence},
    rows::RowError,
};
use super::{LineMetric, LineSubject, Run, RunLine, counted_twice::counted_twice};

/// The 97.5% quantile of the normal distribution.
const Z95: f64 = 1.959_964;

/// One side of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// Begin and end of the compared windows, in seconds; None: to the end of the run.
    pub range: (f64, Option<f64>),
    /// Only rows of this pod, container or name, or with this part of an id; None: all.
    pub rows: Option<String>,
}

/// Summary of a side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideSummary {
    /// The file, range and rows of the side, for people.
    pub name: String,
    /// Number of windows.
    pub windows: usize,
    /// Total length of these windows.
    pub seconds: f64,
    /// Names of rows that the other side does not have.
    pub rows_alone: Vec<String>,
    /// Metrics that the other side does not have.
    pub metrics_alone: Vec<String>,
    /// Series that the other side does not have, though it has their rows and metrics.
    pub series_alone: Vec<SeriesName>,
}

/// Name of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesName {
    /// The row, for people.
    pub label: String,
    /// The metric.
    pub metric: String,
    /// Distinguishes series of one row and metric.
    pub qualifier: String,
}

/// Statistics of a line's windows on one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SideStatistics {
    /// Number of windows with a value.
    pub windows: usize,
    /// Mean, weighted by window length; per second for counters.
    pub mean: f64,
    /// Standard error of the mean by the values' own intervals.
    pub own_error: f64,
}

/// A value of both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedValue {
    /// The subject on the first side.
    pub subject: LineSubject,
    /// The metric.
    pub metric: LineMetric,
    /// Distinguishes series of one subject and metric.
    pub qualifier: String,
    /// The first side.
    pub a: SideStatistics,
    /// The second side.
    pub b: SideStatistics,
    /// What the windows say about the difference.
    pub evidence: Evidence,
    /// A difference is chosen if its `p` is at most this level, given all values that are compared.
    level: f64,
    /// Whether the difference exceeds what chance allows.
    pub differs: bool,
}

impl ComparedValue {
    /// Second divided by first; None if the first is 0.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        (self.a.mean != 0.0).then(|| self.b.mean / self.a.mean)
    }

    /// Second minus first.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.b.mean - self.a.mean
    }

    /// Largest difference of the means by chance, given all values that are compared; None without
    /// a test.
    #[must_use]
    pub fn allowed(&self) -> Option<f64> {
        Some(self.test()?.allowed(self.level))
    }

    /// The test of the difference, if there is one.
    #[must_use]
    pub fn test(&self) -> Option<&DifferenceTest> {
        match &self.evidence {
            Evidence::Tested(test) => Some(test),
            Evidence::TooFewWindows | Evidence::Constant => None,
        }
    }

    /// Whether the subject is a program on the machine, such as a container, and not the machine
    /// itself or the rest of it.
    pub(super) fn is_of_program(&self) -> bool {
        const PROGRAMS: [&str; 5] = ["command", "pod", "container", "cgroup", "process"];
        let kind = self.subject.get("kind");
        kind.is_some_and(|kind| PROGRAMS.contains(&kind))
    }

    /// Order of values: programs first, then by how likely the difference is by chance, then by its
    /// size in standard errors: `p` of the most certain differences is 0. Values without a test
    /// come last.
    fn order(&self) -> (bool, f64, f64) {
        let (p, size) = self.test().map_or((2.0, 0.0), |test| {
            (test.p, self.difference().abs() / test.standard_error())
        });
        (!self.is_of_program(), p, -size)
    }
}

/// Comparison of two runs, or of two parts of them.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// The sides.
    pub sides: [SideSummary; 2],
    /// Values that both sides have: those of programs, then those of the machine, with the most
    /// surprising difference first.
    pub both: Vec<ComparedValue>,
}

/// Compares what both sides have.
///
/// # Errors
///
/// If a side names a row that is missing or ambiguous.
pub fn compare(runs: [&Run; 2], sides: &[Side; 2]) -> Result<Comparison, RowError> {
    let lines = [lines(runs[0], &sides[0])?, lines(runs[1], &sides[1])?];
    let series = [&lines[0].series, &lines[1].series];
    let pairs = rows::pairs(
        [0, 1].map(|at| &runs[at].subjects[..]),
        &[0, 1].map(|at| {
            let subjects = series[at].keys().map(|(subject, ..)| *subject);
            subjects.collect::<HashSet<_>>()
        }),
        sides.iter().any(|side| side.rows.is_some()),
    );
    let mut both = Vec::new();
    // In the order of the first run's lines.
    for line in &runs[0].lines {
        let metric = &runs[0].metrics[line.metric];
        let key = (line.subject, metric.name.as_str(), line.qualifier.as_str());
        let other = pairs.get(&line.subject);
        let b = other.and_then(|other| series[1].get(&(*other, key.1, key.2)));
        let (Some(a), Some(b)) = (series[0].get(&key), b) else {
            continue;
        };
        let statistics = |series: &WindowSeries| SideStatistics {
            windows: series.len(),
            mean: series.mean,
            own_error: series.own_variance.sqrt(),
        };
        both.push(ComparedValue {
            subject: runs[0].subjects[line.subject].clone(),
            metric: metric.clone(),
            qualifier: line.qualifier.clone(),
            a: statistics(a),
            b: statistics(b),
            evidence: chance::test(a, b),
            level: 0.0,
            differs: false,
        });
    }
    choose(&mut both);
    let others: [HashMap<usize, usize>; 2] = [
        pairs.clone(),
        pairs
            .iter()
            .map(|(first, second)| (*second, *first))
            .collect(),
    ];
    let sides = [0, 1].map(|at| SideSummary {
        rows_alone: { series[at].keys() }
            .filter(|(subject, ..)| !others[at].contains_key(subject))
            .map(|(subject, ..)| runs[at].subjects[*subject].label.clone())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        metrics_alone: {
            let own: BTreeSet<&str> = series[at].keys().map(|(_, metric, _)| *metric).collect();
            let theirs = lines[1 - at].metrics();
            let alone = own.into_iter().filter(|name| !theirs.contains(name));
            alone.map(str::to_owned).collect()
        },
        series_alone: series_alone(runs[at], &lines[at], &lines[1 - at], &others[at]),
        ..summary(runs[at], &sides[at])
    });
    Ok(Comparison { sides, both })
}

/// Chooses the differences that are larger than chance allows, and puts the most surprising first.
/// A difference of constants is certain, so it does not take part in the choice of others.
/// Differences of programs are chosen separately and come first: the machine often differs in
/// everything, which must not make it easier to choose a difference of a container.
fn choose(both: &mut [ComparedValue]) {
    for of_program in [true, false] {
        let is_in_group = |value: &&mut ComparedValue| value.is_of_program() == of_program;
        let tests = both.iter_mut().filter(is_in_group);
        let p = tests.filter_map(|value| value.test().filter(|test| !test.is_certain()));
        let p = p.map(|test| test.p);
        let level = discoveries::level(p.collect());
        for value in both.iter_mut().filter(is_in_group) {
            value.level = level;
            value.differs = value.test().is_some_and(|test| test.p <= level);
        }
    }
    both.sort_by(|a, b| {
        let ((machine, p, size), other) = (a.order(), b.order());
        let order = machine.cmp(&other.0).then(p.total_cmp(&other.1));
        order.then(size.total_cmp(&other.2))
    });
}

fn summary(run: &Run, side: &Side) -> SideSummary {
    let (from, to) = side.range;
    let mut name = run.file.clone();
    if side.range != (0.0, None) {
        let end = to.map_or(String::new(), |end| end.to_string());
        name += &format!(" {from}-{end} s");
    }
    if let Some(rows) = &side.rows {
        name += &format!(" {rows}");
    }
    let windows = run.windows.iter().filter(|window| side.covers(**window));
    SideSummary {
        name,
        windows: windows.clone().count(),
        seconds: windows.map(|(start, end)| end - start).sum(),
        ..SideSummary::default()
    }
}

impl Side {
    /// Whether the range contains the whole window.
    #[must_use]
    pub fn covers(&self, (start, end): (f64, f64)) -> bool {
        let (from, to) = self.range;
        start >= from && to.is_none_or(|to| end <= to)
    }
}

/// Subject, metric, and qualifier.
type LineKey<'a> = (usize, &'a str, &'a str);

/// The lines of a side that have values in the range.
#[derive(Default)]
struct SideLines<'a> {
    series: HashMap<LineKey<'a>, WindowSeries>,
    /// Counters without a series here: another line is their rate.
    twice: HashSet<LineKey<'a>>,
}

impl<'a> SideLines<'a> {
    fn metrics(&self) -> HashSet<&'a str> {
        let all = self.series.keys().chain(&self.twice);
        all.map(|(_, metric, _)| *metric).collect()
    }

    fn contains(&self, key: &LineKey<'_>) -> bool {
        self.series.contains_key(key) || self.twice.contains(key)
    }
}

/// The series of `own` that `theirs` does not have, in the order of the run's lines. `others` are
/// the other side's rows. Leaves out rows and metrics that the other side does not have at all.
fn series_alone(
    run: &Run,
    own: &SideLines<'_>,
    theirs: &SideLines<'_>,
    others: &HashMap<usize, usize>,
) -> Vec<SeriesName> {
    let their_metrics = theirs.metrics();
    let is_alone = |line: &&RunLine| {
        let name = run.metrics[line.metric].name.as_str();
        let qualifier = line.qualifier.as_str();
        let other = others.get(&line.subject);
        own.series.contains_key(&(line.subject, name, qualifier))
            && their_metrics.contains(name)
            && other.is_some_and(|other| !theirs.contains(&(*other, name, qualifier)))
    };
    let alone = run.lines.iter().filter(is_alone);
    alone
        .map(|line| SeriesName {
            label: run.subjects[line.subject].label.clone(),
            metric: run.metrics[line.metric].name.clone(),
            qualifier: line.qualifier.clone(),
        })
        .collect()
}

/// The lines of the rows that the side names.
fn lines<'a>(run: &'a Run, side: &Side) -> Result<SideLines<'a>, RowError> {
    let named = side.rows.as_deref().map(|name| rows::named(run, name));
    let named = named.transpose()?;
    let mut by_subject: HashMap<usize, Vec<&RunLine>> = HashMap::new();
    for line in &run.lines {
        let is_named = |named: &HashSet<usize>| named.contains(&line.subject);
        if named.as_ref().is_none_or(is_named) {
            by_subject.entry(line.subject).or_default().push(line);
        }
    }
    let mut side_lines = SideLines::default();
    for lines in by_subject.values() {
        for (line, twice) in lines.iter().zip(counted_twice(run, lines)) {
            let name = run.metrics[line.metric].name.as_str();
            let key = (line.subject, name, line.qualifier.as_str());
            match series(run, line, side) {
                Some(_) if twice => {
                    side_lines.twice.insert(key);
                }
                Some(series) => {
                    side_lines.series.insert(key, series);
                }
                None => {}
            }
        }
    }
    Ok(side_lines)
}

/// The windows of a line in the range that have a value; None if there are none.
fn series(run: &Run, line: &RunLine, side: &Side) -> Option<WindowSeries> {
    let metric = &run.metrics[line.metric];
    let values = line.shown(metric, &run.windows).filter_map(|(at, value)| {
        let window = run.windows[at];
        let seconds = window.1 - window.0;
        let (low, high) = line.interval(at);
        let error = (high - low) / (2.0 * Z95);
        let error = if error.is_finite() { error } else { 0.0 };
        let is_known = side.covers(window) && value.is_finite() && seconds > 0.0;
        is_known.then_some(WindowValue {
            value,
            seconds,
            error: error * metric.shown_factor(seconds),
        })
    });
    WindowSeries::new(values.collect())
}

#[cfg(test)]
mod tests;
