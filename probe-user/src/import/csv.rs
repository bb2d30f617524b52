//! A line of `perf stat -x,`, or with another separator: `[time stamp,][scope,[CPUs,]]` and then
//! `count,unit,event,[cgroup,][variance,]running,percent[,metric,unit]`.
//!
//! perf does not quote: commas between an event's slashes, and in names of threads and cgroups,
//! separate fields too. The numbers behind such a text show where it ends. Further metrics of an
//! event are separate lines without count and event.

use super::{METRICS_ONLY, Reading, ReadingSet, interval, parse_count, times};

/// The separators that are recognised besides a comma; perf takes any text.
const SEPARATORS: [char; 3] = [';', '\t', '|'];

/// The fewest fields that a line with a count has.
const MIN_FIELDS: usize = 5;

const LOCALE: &str = "its numbers have the decimal comma of a locale, and commas separate its \
                      fields: run perf with LC_ALL=C, or with `-x ';'`";

const WITHOUT_COUNT: &str = "it has no count where one should be";

/// The separator of the input, found in one of its lines.
pub(super) fn separator(line: &str) -> char {
    let mut known = SEPARATORS.into_iter();
    let other = known.find(|separator| line.matches(*separator).count() >= MIN_FIELDS - 1);
    other.unwrap_or(',')
}

/// Parses a line. None if it has only a further metric of the event above.
pub(super) fn line(line: &str, separator: char) -> Result<Option<Reading>, String> {
    let fields: Vec<&str> = line.split(separator).map(str::trim).collect();
    let fields = Fields { fields, separator };
    let mut at = 0;
    let mut set = ReadingSet::default();
    if fields.is_stamped() {
        set.interval = fields.number(0).and_then(interval);
        at += 1;
    } else if fields.text(0) == "summary" {
        at += 1;
    }
    if fields.is_metric(at) {
        return Ok(None);
    }
    if fields.count(at).is_none() {
        let count = (at..fields.fields.len()).find(|at| fields.count(*at).is_some());
        let Some(end) = count.filter(|end| *end > at) else {
            return Err(fields.without_count(at));
        };
        // The first number is of a metric, and no count.
        if (at + 1..end).any(|at| fields.text(at).is_empty()) {
            return Ok(None);
        }
        set.scope = Some(fields.join(at, end));
        at = end;
        // Skips the number of CPUs of the scope.
        if fields.is_metric(at + 1) {
            return Ok(None);
        }
        if fields.count(at + 1).is_some() {
            at += 1;
        }
    }
    let Some(count) = fields.count(at) else {
        return Err(fields.without_count(at));
    };
    let unit = fields.get(at + 1).ok_or("it ends before the unit")?;
    let first = fields.get(at + 2).filter(|event| !event.is_empty());
    let mut event = first.ok_or_else(|| fields.without_event())?.to_owned();
    at += 3;
    while event.matches('/').count() % 2 == 1 {
        let part = fields.get(at).ok_or("the event's slash is not closed")?;
        event.push(separator);
        event.push_str(part);
        at += 1;
    }
    let (running, percent) = match fields.running_time(at)? {
        None => (None, None),
        Some(time_at) => {
            let has_variance = time_at > at && fields.text(time_at - 1).ends_with('%');
            let cgroup = fields.join(at, time_at - usize::from(has_variance));
            if !cgroup.is_empty() {
                set.scope = Some(match set.scope {
                    Some(scope) => format!("{scope} {cgroup}"),
                    None => cgroup,
                });
            }
            (fields.number(time_at), fields.number(time_at + 1))
        }
    };
    let (enabled, running_ratio) = times(running, percent);
    Ok(Some(Reading {
        set,
        event,
        count,
        unit: unit.to_owned(),
        enabled,
        running_ratio,
    }))
}

struct Fields<'a> {
    fields: Vec<&'a str>,
    separator: char,
}

impl<'a> Fields<'a> {
    fn get(&self, at: usize) -> Option<&'a str> {
        self.fields.get(at).copied()
    }

    fn text(&self, at: usize) -> &'a str {
        self.get(at).unwrap_or_default()
    }

    /// A number. If another character separates fields, a comma is the decimal comma of a locale.
    fn number(&self, at: usize) -> Option<f64> {
        let text = self.get(at)?;
        if text.contains(',') {
            return text.replace(',', ".").parse().ok();
        }
        text.parse().ok()
    }

    fn count(&self, at: usize) -> Option<super::CountedValue> {
        let text = self.get(at)?;
        if text.contains(',') {
            return parse_count(&text.replace(',', "."));
        }
        parse_count(text)
    }

    /// The text of the fields from `from` up to `to`.
    fn join(&self, from: usize, to: usize) -> String {
        let fields = self.fields.get(from..to).unwrap_or_default();
        fields.join(self.separator.encode_utf8(&mut [0; 4]))
    }

    /// Whether the first field is a time stamp: a number with nine decimals, or a number before a
    /// count or a scope. (A count is followed by its unit and its event, which are no numbers.)
    fn is_stamped(&self) -> bool {
        let decimals = self.text(0).split_once('.').map(|(_, decimals)| decimals);
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        decimals.is_some_and(|it| it.len() == 9 && digits(it))
            || self.count(0).is_some() && (self.count(1).is_some() || self.count(2).is_some())
    }

    /// Whether count, unit and event are empty, but not all fields after them.
    fn is_metric(&self, at: usize) -> bool {
        let without = (at..at + 3).all(|at| self.get(at) == Some(""));
        without && (at..self.fields.len()).any(|at| !self.text(at).is_empty())
    }

    /// The index of the running time, which is followed by its percentage with two decimals; None
    /// if no fields are left.
    fn running_time(&self, from: usize) -> Result<Option<usize>, String> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        let percent = |text: &str| {
            let parts = text.split_once('.').or_else(|| text.split_once(','));
            parts.is_some_and(|(whole, part)| digits(whole) && digits(part) && part.len() == 2)
        };
        let rest = self.fields.get(from..).unwrap_or_default();
        let pair = |pair: &[&str]| digits(pair[0]) && percent(pair[1]);
        if let Some(at) = rest.windows(2).position(pair) {
            return Ok(Some(from + at));
        }
        let split = |it: &[&str]| it.iter().all(|field| digits(field)) && it[2].len() == 2;
        if rest.windows(3).any(split) {
            return Err(LOCALE.to_owned());
        }
        if rest.iter().all(|field| field.is_empty()) {
            return Ok(None);
        }
        Err("it has no running time and percentage behind the event".to_owned())
    }

    /// The error for a line without a count at `at`.
    fn without_count(&self, at: usize) -> String {
        let numbers = self.fields.iter().filter(|field| !field.is_empty());
        let is_header = self.fields.last() == Some(&"");
        if is_header || numbers.clone().all(|field| field.parse::<f64>().is_ok()) {
            return METRICS_ONLY.to_owned();
        }
        if self.text(at).is_empty() {
            return "it has no count".to_owned();
        }
        WITHOUT_COUNT.to_owned()
    }

    /// The error for a line without an event.
    fn without_event(&self) -> String {
        let filled = self.fields.iter().filter(|field| !field.is_empty());
        let numbers = filled.clone().all(|field| field.parse::<f64>().is_ok());
        if numbers && filled.count() > 1 {
            return METRICS_ONLY.to_owned();
        }
        "it has no event".to_owned()
    }
}
