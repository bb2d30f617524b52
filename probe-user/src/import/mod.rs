//! Counts from other tools, and the metrics that they give.
//!
//! Three forms are read, told apart by their first line: what `perf stat -x,` and `perf stat -j`
//! print, and lines `event=value`. perf's counts are scaled to the whole time already; a line of
//! `event=value` is taken as it is. Time comes from `duration_time` (ns) or `seconds`, from the
//! time stamps of `-I`, or for PMUs with one reader from the running time of their counter.
//!
//! perf does not print which events were a group: `order` tells it from their order and running
//! times. tests/fixtures/derive/perf has what perf prints in each of its forms.

mod counted;
mod csv;
mod derived;
mod events;
mod json;
mod order;
mod pairs;
mod print;
mod recognise;
#[cfg(test)]
mod tests;
mod time;

pub use self::{
    derived::{Derived, Row, derive},
    print::{json, table},
};

/// One count.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Which part of the input it is of: sockets or CPUs counted apart, intervals.
    pub set: Set,
    /// As printed, with PMU, terms and modifiers.
    pub event: String,
    /// The count.
    pub count: Counted,
    /// perf's unit: `msec`, `MiB`, `ns`; empty where counts are plain.
    pub unit: String,
    /// Time for which the counter was enabled, ns.
    pub enabled: Option<f64>,
    /// Share of that time for which it was on the PMU.
    pub live: f64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counted {
    /// A number; 0 is one.
    Value(f64),
    /// The counter never ran.
    NotCounted,
    /// The event could not be opened.
    NotSupported,
}

/// A part of the input whose counts belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Set {
    /// End of the interval (`-I`) as perf prints it, seconds.
    pub interval: Option<Interval>,
    /// Socket, die, core, CPU or cgroup, as perf prints it.
    pub scope: Option<String>,
}

/// The end of an interval, in ns since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval(pub u64);

impl std::fmt::Display for Interval {
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
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A line that is in none of the forms.
    #[error("line {line} is not {form}: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The form of the lines before, in words.
        form: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// No count at all.
    #[error(
        "there are no counts in the input: give the output of `perf stat -x,` or `perf stat -j`, \
         or lines event=value"
    )]
    Empty,
    /// Counts, but none of this platform's.
    #[error("none of the {count} events can be used on {platform}, the first is {first}: {why}")]
    NothingKnown {
        /// How many there are.
        count: usize,
        /// The first of them.
        first: String,
        /// Why it cannot be used.
        why: String,
        /// The platform.
        platform: crate::catalogue::Platform,
    },
}

/// Reads counts in any of the three forms.
///
/// # Errors
/// The first line that is not in the form of the first one.
pub fn read(text: &str) -> Result<Vec<Reading>, ImportError> {
    let mut lines = text.lines().enumerate();
    let first = lines.find(|(_, line)| !is_nothing(line));
    let (at, first) = first.ok_or(ImportError::Empty)?;
    let refused = |why: &str| ImportError::Line {
        line: at + 1,
        form: "a line of `perf stat -x,` or `perf stat -j`, nor event=value",
        why: why.to_owned(),
    };
    if is_for_people(first) {
        return Err(refused(
            "it is of perf's output for people: run `perf stat -x,` or `perf stat -j`",
        ));
    }
    type Parse = Box<dyn Fn(&str) -> Result<Option<Reading>, String>>;
    let separator = csv::separator(first);
    let (form, parse): (_, Parse) = if first.trim_start().starts_with('{') {
        ("a line of `perf stat -j`", Box::new(json::line))
    } else if pairs::looks_like(first) {
        ("event=value", Box::new(|line| pairs::line(line).map(Some)))
    } else if !first.contains(separator) {
        return Err(refused("it has neither a comma nor `=`"));
    } else {
        (
            "a line of `perf stat -x,`",
            Box::new(move |line| csv::line(line, separator)),
        )
    };
    let mut readings: Vec<Reading> = Vec::new();
    // Where a run of several begins: perf appends to a file (`-o FILE --append`).
    let mut runs = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.starts_with(STARTED) {
            runs.push(readings.len());
        }
        if is_nothing(line) {
            continue;
        }
        let reading = parse(line.trim_matches(' ')).map_err(|why| ImportError::Line {
            line: at + 1,
            form,
            why,
        })?;
        readings.extend(reading);
    }
    if let [_, more @ ..] = &runs[..]
        && !more.is_empty()
    {
        for (at, reading) in readings.iter_mut().enumerate() {
            let run = runs.partition_point(|start| *start <= at);
            let scope = reading.set.scope.take();
            let scope = scope.map_or_else(String::new, |scope| format!(" {scope}"));
            reading.set.scope = Some(format!("run {run}{scope}"));
        }
    }
    if readings.is_empty() {
        return Err(ImportError::Empty);
    }
    Ok(readings)
}

/// The line with which perf begins a file, and what it appends to one.
const STARTED: &str = "# started on ";

fn is_nothing(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

/// perf's columns are aligned by spaces, and before them it says what was counted.
fn is_for_people(line: &str) -> bool {
    let line = line.trim();
    let number = line.starts_with(|c: char| c.is_ascii_digit() || c == '<');
    line.starts_with("Performance counter stats for")
        || number && line.contains("  ") && !line.contains('\t')
}

/// perf's word for a count, or a number.
fn counted(text: &str) -> Option<Counted> {
    match text {
        "<not counted>" => Some(Counted::NotCounted),
        "<not supported>" => Some(Counted::NotSupported),
        number => {
            let number: f64 = number.parse().ok()?;
            (number.is_finite() && number >= 0.0).then_some(Counted::Value(number))
        }
    }
}

/// perf's running time (ns) and its share of the enabled time (percent).
fn times(running: Option<f64>, percent: Option<f64>) -> (Option<f64>, f64) {
    let live = percent.map_or(1.0, |percent| (percent / 100.0).clamp(0.0, 1.0));
    let enabled = running.filter(|_| live > 0.0).map(|running| running / live);
    (enabled, live)
}

/// A time stamp of `-I`.
fn interval(seconds: f64) -> Option<Interval> {
    let nanos = std::time::Duration::try_from_secs_f64(seconds)
        .ok()?
        .as_nanos();
    u64::try_from(nanos).ok().map(Interval)
}
