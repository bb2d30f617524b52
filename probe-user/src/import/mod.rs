//! Reads counts of other tools ([`read()`]), and computes metrics from them ([`derive()`]).
//!
//! Three forms are read, recognised by their first line: the output of `perf stat -x,` and `perf
//! stat -j`, and lines `event=value`. perf's counts are already scaled to the whole time; those of
//! `event=value` are taken as they are. Time comes from `duration_time` (ns) or `seconds`, from the
//! time stamps of `-I`, or for PMUs with one reader from the running time of their counter.
//!
//! perf does not print which events were a group: `order` infers it from their order and running
//! times. tests/fixtures/derive/perf has perf's output in each form.

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
    derived::{Derived, DerivedRow, derive},
    print::{json, table},
};

/// One count.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The part of the input: an interval, or sockets or CPUs that are counted separately.
    pub set: ReadingSet,
    /// As printed, with PMU, terms and modifiers.
    pub event: String,
    /// The count.
    pub count: CountedValue,
    /// perf's unit: `msec`, `MiB`, `ns`; empty for plain counts.
    pub unit: String,
    /// Time for which the counter was enabled, ns.
    pub enabled: Option<f64>,
    /// The running ratio: the part of that time for which it was on the PMU.
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
    /// End of the interval (`-I`) as perf prints it, seconds.
    pub interval: Option<IntervalEnd>,
    /// Socket, die, core, CPU or cgroup, as perf prints it.
    pub scope: Option<String>,
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
    /// Counts, but of no event of this platform.
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

/// Reads counts in any of the three forms.
///
/// # Errors
/// The first line that is not in the form of the first one.
pub fn read(text: &str) -> Result<Vec<Reading>, ImportError> {
    let mut lines = text.lines().enumerate();
    let first = lines.find(|(_, line)| !is_blank(line));
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
    // The index of each run's first reading: perf appends runs to a file (`-o FILE --append`).
    let mut runs = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.starts_with(STARTED) {
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
    if let [_, more @ ..] = &runs[..]
        && !more.is_empty()
    {
        for (at, reading) in readings.iter_mut().enumerate() {
            let run = runs.partition_point(|start| *start <= at);
            let scope = reading
                .set
                .scope
                .take()
                .map_or_else(String::new, |scope| format!(" {scope}"));
            reading.set.scope = Some(format!("run {run}{scope}"));
        }
    }
    if readings.is_empty() {
        return Err(ImportError::Empty);
    }
    Ok(readings)
}

/// Begins the line that perf writes before the counts of each run in a file.
const STARTED: &str = "# started on ";

fn is_blank(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

/// Whether it is of perf's output for people: a heading, or columns that spaces align.
fn is_for_people(line: &str) -> bool {
    let line = line.trim();
    let number = line.starts_with(|c: char| c.is_ascii_digit() || c == '<');
    line.starts_with("Performance counter stats for")
        || number && line.contains("  ") && !line.contains('\t')
}

/// A number, or perf's word in place of one.
fn counted(text: &str) -> Option<CountedValue> {
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

/// A time stamp of `-I`.
fn interval(seconds: f64) -> Option<IntervalEnd> {
    let nanos = std::time::Duration::try_from_secs_f64(seconds)
        .ok()?
        .as_nanos();
    u64::try_from(nanos).ok().map(IntervalEnd)
}
