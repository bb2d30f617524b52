//! The table of `perf stat`, as printed, or as pasted from a terminal or a web page: with shell
//! prompts, the output of the command, and asterisks for emphasis.
//!
//! A row is `[time stamp] [scope [CPUs]] count [unit] event [cgroup] [# metric] [deviation]
//! [running percentage]`. The duration is below the rows. What is outside of a table is skipped;
//! inside, every line must be a row.

use super::{
    CountedValue, METRICS_ONLY, Reading, ReadingSet, csv, interval,
    number::{self, Notation},
    parse_count, times,
};

/// The units of perf's events. Any other word in their place is the event itself, and the word
/// after it a cgroup.
const UNITS: &[&str] = &[
    "msec", "ns", "us", "ms", "sec", "B", "Bytes", "KiB", "MiB", "GiB", "MB", "MB/s", "Joules",
    "mJ", "Watts", "W", "mW", "C", "%",
];

const WITHOUT_COUNT: &str = "it has no count, as a table of --metric-only or a cut line";

const SPACED: &str = "spaces separate the thousands of its count: run perf with LC_ALL=C";

/// Whether a table begins below the line.
pub(super) fn is_heading(line: &str) -> bool {
    line.contains("Performance counter stats for")
}

/// Where a line is.
#[derive(Clone, Copy, PartialEq)]
enum Position {
    Outside,
    Rows,
    /// Below the time elapsed.
    Times,
}

/// Reads the lines of tables.
pub(super) struct StatTable {
    position: Position,
    /// The decimal mark of the durations.
    decimal: Option<char>,
}

impl StatTable {
    /// None if the text has no table. `first_line` is its first line that is not blank.
    pub(super) fn find(text: &str, first_line: &str) -> Option<Self> {
        let begins_with_row = is_row(first_line);
        let is_table = begins_with_row
            || text
                .lines()
                .any(|line| is_heading(line) || is_stamped(line));
        let mut marks = text
            .lines()
            .filter_map(|line| number::decimal_mark(Time::parse(line)?.number));
        let decimal = marks.next();
        is_table.then(|| Self {
            position: if begins_with_row {
                Position::Rows
            } else {
                Position::Outside
            },
            // Unknown if the durations have different marks: the tables are of different locales.
            decimal: decimal.filter(|mark| marks.all(|other| other == *mark)),
        })
    }

    /// Reads a line. None if it has no count.
    pub(super) fn line(&mut self, line: &str) -> Result<Option<Reading>, String> {
        let line = bare(line);
        if is_heading(line) {
            self.position = Position::Rows;
            return Ok(None);
        }
        if self.position != Position::Outside
            && let Some(time) = Time::parse(line)
        {
            self.position = Position::Times;
            return time.reading();
        }
        if self.position != Position::Rows || is_prompt(line) {
            self.position = if is_stamped(line) {
                Position::Rows
            } else {
                Position::Outside
            };
        }
        match self.position {
            Position::Rows => row(line, self.decimal),
            Position::Outside | Position::Times => Ok(None),
        }
    }
}

/// The line without what surrounds it in documents (`**`) and in a terminal (`^C`).
fn bare(line: &str) -> &str {
    let line = line.trim().trim_matches('*');
    line.strip_prefix("^C").unwrap_or(line)
}

/// Whether the line is the shell's: its first word ends in `$`, or is `user@host:directory#`.
fn is_prompt(line: &str) -> bool {
    let word = line.split_ascii_whitespace().next().unwrap_or_default();
    word.ends_with('$') || word.ends_with('#') && word.contains('@')
}

/// Whether the line is a row. A line with as many tabs as one of `perf stat -x\t` is none.
fn is_row(line: &str) -> bool {
    csv::separator(line) == ',' && matches!(row(bare(line), None), Ok(Some(_)))
}

/// Whether the line is a row of `-I`.
fn is_stamped(line: &str) -> bool {
    let first = bare(line).split_ascii_whitespace().next();
    first.is_some_and(|word| stamp(word).is_some()) && is_row(line)
}

/// The seconds of a time stamp: in every locale a number with a point and nine decimals.
fn stamp(word: &str) -> Option<f64> {
    let (_, decimals) = word.split_once('.')?;
    let is_stamp = decimals.len() == 9 && number::is_number(word);
    word.parse().ok().filter(|_| is_stamp)
}

/// A line with a duration: `0.127496157 seconds time elapsed`; `-r` adds the deviation.
struct Time<'a> {
    number: &'a str,
    is_elapsed: bool,
}

impl<'a> Time<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, what) = line.split_once(" seconds ")?;
        let what = what.trim_start();
        let is_elapsed = what.starts_with("time elapsed");
        let number = bare(before).split_ascii_whitespace().next()?;
        let is_time = is_elapsed || what.starts_with("user") || what.starts_with("sys");
        (is_time && number::is_number(number)).then_some(Self { number, is_elapsed })
    }

    /// A reading of the time elapsed. perf does not group the digits of durations.
    fn reading(&self) -> Result<Option<Reading>, String> {
        if !self.is_elapsed {
            return Ok(None);
        }
        let decimal = number::decimal_mark(self.number);
        let plain = match decimal {
            Some(mark) => self.number.replace(mark, "."),
            None => self.number.to_owned(),
        };
        let seconds = parse_count(&plain).ok_or_else(|| format!("{} is no time", self.number))?;
        Ok(Some(Reading {
            set: ReadingSet::default(),
            event: "seconds".to_owned(),
            count: seconds,
            unit: String::new(),
            enabled: None,
            running_ratio: 1.0,
        }))
    }
}

/// Parses a row. None if it has only a further metric of the event above, or the time of one run.
fn row(line: &str, decimal: Option<char>) -> Result<Option<Reading>, String> {
    let (line, percent) = without_percent(line);
    let line = without_deviation(line);
    let metric = line
        .match_indices('#')
        .find(|(at, _)| line[..*at].ends_with([' ', '\t']));
    let columns = metric.map_or(line, |(at, _)| &line[..at]);
    let mut words: Vec<&str> = columns.split_ascii_whitespace().collect();
    let mut set = ReadingSet::default();
    if let [first, _, ..] = words[..]
        && let Some(seconds) = stamp(first)
    {
        set.interval = interval(seconds);
        words.remove(0);
    }
    let Some(at) = count_at(&words) else {
        return if metric.is_some() {
            Ok(None)
        } else {
            Err(WITHOUT_COUNT.to_owned())
        };
    };
    let (before, rest) = words.split_at(at);
    set.scope = scope(before)?;
    let (value, rest) = match rest {
        ["<not", value @ ("counted>" | "supported>"), rest @ ..] | [value, rest @ ..] => {
            (*value, rest)
        }
        [] => return Err(WITHOUT_COUNT.to_owned()),
    };
    let (unit, rest) = match rest {
        [unit, rest @ ..] if !rest.is_empty() && UNITS.contains(unit) => (*unit, rest),
        _ => ("", rest),
    };
    let [event, rest @ ..] = rest else {
        return Err("it has no event".to_owned());
    };
    if event.starts_with('(') {
        return Ok(None);
    }
    if is_number_or_percent(event) {
        let only = rest.iter().all(|word| is_number_or_percent(word));
        return Err(if only { METRICS_ONLY } else { SPACED }.to_owned());
    }
    if event.matches('/').count() % 2 == 1 && !event.ends_with('/') {
        return Err("the event's slash is not closed".to_owned());
    }
    let mut event = (*event).to_owned();
    let (mut unit, mut cgroup) = (unit, rest);
    if let [word, rest @ ..] = rest {
        match *word {
            // Older versions print the unit behind the event.
            "(msec)" => (unit, cgroup) = ("msec", rest),
            pmu if pmu.starts_with('[') => {
                event = format!("{event} {pmu}");
                cgroup = rest;
            }
            _ => {}
        }
    }
    // perf's table has clocks in ms, in old versions without a unit.
    let is_clock = event.starts_with("task-clock") || event.starts_with("cpu-clock");
    if unit.is_empty() && is_clock {
        unit = "msec";
    }
    let names = set
        .scope
        .as_deref()
        .into_iter()
        .chain(cgroup.iter().copied());
    let names: Vec<&str> = names.collect();
    set.scope = (!names.is_empty()).then(|| names.join(" "));
    let whole = matches!(unit, "" | "ns");
    let count = match value {
        "counted>" => CountedValue::NotCounted,
        "supported>" => CountedValue::NotSupported,
        value => CountedValue::Value(number::parse(value, Notation { decimal, whole })?),
    };
    let (enabled, running_ratio) = times(None, percent);
    Ok(Some(Reading {
        set,
        event,
        count,
        unit: unit.to_owned(),
        enabled,
        running_ratio,
    }))
}

/// The index of the count: the first word, or the last number before an event.
fn count_at(words: &[&str]) -> Option<usize> {
    let is_count = |word: &&str| *word == "<not" || number::is_number(word);
    if words.first().is_some_and(is_count) {
        return Some(0);
    }
    let (_, before_last) = words.split_last()?;
    before_last.iter().rposition(is_count)
}

/// The socket, CPU or thread before a count, without the number of its CPUs.
fn scope(words: &[&str]) -> Result<Option<String>, String> {
    let numbers = words
        .iter()
        .rev()
        .take_while(|word| number::is_number(word));
    let (name, cpus) = words.split_at(words.len() - numbers.count());
    let most_numbers = usize::from(!name.first().is_some_and(|word| word.starts_with("CPU")));
    if cpus.len() > most_numbers {
        return Err(SPACED.to_owned());
    }
    Ok((!name.is_empty()).then(|| name.join(" ")))
}

fn is_number_or_percent(word: &str) -> bool {
    number::is_number(word.trim_end_matches('%'))
}

/// The line without its running percentage.
fn without_percent(line: &str) -> (&str, Option<f64>) {
    let line = line.trim_end();
    let percent = line.strip_suffix("%)").and_then(|it| it.rsplit_once('('));
    let Some((before, number)) = percent.filter(|(_, number)| number::is_number(number)) else {
        return (line, None);
    };
    let mark = number::decimal_mark(number).unwrap_or('.');
    (before.trim_end(), number.replace(mark, ".").parse().ok())
}

/// The line without the deviation that `-r` prints.
fn without_deviation(line: &str) -> &str {
    match line.rsplit_once("( +-") {
        Some((before, deviation)) if deviation.ends_with("% )") => before,
        _ => line,
    }
}
