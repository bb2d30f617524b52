//! Reads counts of other tools ([`read()`]), and computes metrics from them ([`derive()`]).
//!
//! Four forms are read: the table of `perf stat`, anywhere in a text; the output of `perf stat -x,`
//! and of `perf stat -j`; and lines `event=value`. The first line tells the last three forms apart.
//! perf's counts are already scaled to the whole time; counts of `event=value` are taken as they
//! are. Time comes from `duration_time` (ns) or `seconds`, from a table's time elapsed, from the
//! time stamps of `-I`, or, for PMUs that one CPU reads, from the enabled time of their counter.
//!
//! perf does not print which events were a group: `order` infers it from their order and running
//! times. tests/fixtures/derive/perf has perf's output in each form.

mod counted;
mod csv;
mod derived;
mod events;
mod json;
mod number;
mod order;
mod pairs;
mod print;
mod recognise;
mod stat_table;
#[cfg(test)]
mod tests;
mod time;

use self::stat_table::StatTable;
pub use self::{
    derived::{Derived, DerivedRow, derive},
    print::{json, table},
};

/// One count.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The part of the input: an interval, or sockets or CPUs that are counted separately.
    pub set: ReadingSet,
    /// The event as printed, with PMU, terms and modifiers.
    pub event: String,
    /// The count.
    pub count: CountedValue,
    /// perf's unit: `msec`, `MiB`, `ns`; empty for plain counts.
    pub unit: String,
    /// Time for which the counter was enabled, ns.
    pub enabled: Option<f64>,
    /// The running ratio: the fraction of the enabled time for which the counter was on the PMU.
    pub running_ratio: f64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CountedValue {
    /// A number, which may be 0.
    Value(f64),
    /// The counter never ran.
    NotCounted,
    /// The event could not be opened.
    NotSupported,
}

/// The interval and scope of readings that belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadingSet {
    /// The run, counted from 1, if the input has several.
    pub run: Option<usize>,
    /// End of the interval (`-I`).
    pub interval: Option<IntervalEnd>,
    /// Socket, die, core, CPU or cgroup, as perf prints it.
    pub scope: Option<String>,
}

impl ReadingSet {
    /// The set of the same run and interval that has every scope.
    pub(super) fn whole(&self) -> Self {
        Self {
            scope: None,
            ..self.clone()
        }
    }

    /// The run and the scope in words, such as `run 2 S0`.
    pub(super) fn name(&self) -> String {
        let run = self.run.map(|run| format!("run {run}"));
        let words: Vec<String> = run.into_iter().chain(self.scope.clone()).collect();
        words.join(" ")
    }
}

/// The end of an interval, in ns since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IntervalEnd(pub u64);

impl std::fmt::Display for IntervalEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}.{:09} s",
            self.0 / 1_000_000_000,
            self.0 % 1_000_000_000
        )
    }
}

const METRICS_ONLY: &str = "it has metrics and no counts: run `perf stat` without --metric-only";

/// Input that cannot be used.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ImportError {
    /// A line that is in none of the forms.
    #[error("line {line} is not {form}: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The form of the lines before, in words.
        form: &'static str,
        /// What is wrong with the line.
        why: String,
    },
    /// No count at all.
    #[error(
        "there are no counts in the input: give the output of `perf stat`, also with -x, or -j, \
         or lines event=value"
    )]
    Empty,
    /// There are counts, but none is of an event of this platform.
    #[error("none of the {count} events can be used on {platform}, the first is {first}: {why}")]
    NothingKnown {
        /// The number of events.
        count: usize,
        /// The first event.
        first: String,
        /// Why it cannot be used.
        why: String,
        /// The platform.
        platform: crate::catalogue::Platform,
    },
}

/// Reads counts in any of the four forms.
///
/// # Errors
/// The first line that is not in the form of the input; or the input has no count.
pub fn read(text: &str) -> Result<Vec<Reading>, ImportError> {
    let mut lines = text.lines().enumerate();
    let first = lines.find(|(_, line)| !is_blank(line));
    let (at, first) = first.ok_or(ImportError::Empty)?;
    type Parse = Box<dyn FnMut(&str) -> Result<Option<Reading>, String>>;
    let separator = csv::separator(first);
    let (form, mut parse): (_, Parse) = if first.trim_start().starts_with('{') {
        ("a line of `perf stat -j`", Box::new(json::line))
    } else if let Some(mut table) = StatTable::find(text, first) {
        (
            "a row of the table of `perf stat`",
            Box::new(move |line| table.line(line)),
        )
    } else if pairs::looks_like(first) {
        ("event=value", Box::new(|line| pairs::line(line).map(Some)))
    } else if !first.contains(separator) {
        return Err(ImportError::Line {
            line: at + 1,
            form: "a line of `perf stat -x,` or `perf stat -j`, nor event=value",
            why: "it has neither a comma nor `=`".to_owned(),
        });
    } else {
        (
            "a line of `perf stat -x,`",
            Box::new(move |line| csv::line(line, separator)),
        )
    };
    let mut readings: Vec<Reading> = Vec::new();
    let mut runs = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if begins_run(line, &readings) {
            runs.push(readings.len());
        }
        if is_blank(line) {
            continue;
        }
        let reading = parse(line.trim_matches(' ')).map_err(|why| ImportError::Line {
            line: at + 1,
            form,
            why,
        })?;
        readings.extend(reading);
    }
    // A file's first line and the heading below it begin the same run.
    runs.dedup();
    // Counts above the first heading are a run too.
    if runs.first().is_some_and(|first| *first > 0) {
        runs.insert(0, 0);
    }
    if runs.len() > 1 {
        for (at, reading) in readings.iter_mut().enumerate() {
            reading.set.run = Some(runs.partition_point(|start| *start <= at));
        }
    }
    if readings.is_empty() {
        return Err(ImportError::Empty);
    }
    Ok(readings)
}

/// Begins the line that perf writes before the counts of each run in a file.
const STARTED: &str = "# started on ";

/// Whether the line begins a run: perf appends runs to a file (`-o FILE --append`), and documents
/// have several tables. A table below intervals is their summary, and begins no run.
fn begins_run(line: &str, before: &[Reading]) -> bool {
    let is_summary = || before.last().is_some_and(|it| it.set.interval.is_some());
    line.starts_with(STARTED) || stat_table::is_heading(line) && !is_summary()
}

fn is_blank(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

/// A number, or perf's word in place of one.
fn parse_count(text: &str) -> Option<CountedValue> {
    match text {
        "<not counted>" => Some(CountedValue::NotCounted),
        "<not supported>" => Some(CountedValue::NotSupported),
        number => {
            let number: f64 = number.parse().ok()?;
            (number.is_finite() && number >= 0.0).then_some(CountedValue::Value(number))
        }
    }
}

/// The enabled time and the running ratio, from perf's running time (ns) and its percentage of the
/// enabled time.
fn times(running: Option<f64>, percent: Option<f64>) -> (Option<f64>, f64) {
    let running_ratio = percent.map_or(1.0, |percent| (percent / 100.0).clamp(0.0, 1.0));
    let enabled = running
        .filter(|_| running_ratio > 0.0)
        .map(|running| running / running_ratio);
    (enabled, running_ratio)
}

/// Parses a time stamp of `-I`, in seconds.
fn interval(seconds: f64) -> Option<IntervalEnd> {
    let nanos = std::time::Duration::try_from_secs_f64(seconds)
        .ok()?
        .as_nanos();
    u64::try_from(nanos).ok().map(IntervalEnd)
}
