//! The lines below the tables: why values are missing or not possible, a line for each cause, and
//! what values mean.

use std::collections::HashSet;

use super::{Page, shares::place};
use crate::{
    derive::{About, Finding, Group, Part, Reason, Report, Series, Subject},
    emit::printable::printable,
    formula::NoValue,
};

/// The most names that are listed; of more the number is given.
const NAMED: usize = 3;

/// The most reasons that are kept for look-up.
const KNOWN: usize = 64;

/// Placeholder in the text of a cause for what differs between values.
const OF: &str = "\u{fffc}";

/// Why values are missing.
#[derive(Default)]
struct Cause<'a> {
    /// In words, with [`OF`] in place of the events that it is about.
    text: String,
    events: Vec<String>,
    /// Whose values are missing.
    metrics: Vec<&'a str>,
    rows: Vec<String>,
}

/// How much of everything the lists show, and what has to be said of samples.
pub(super) fn lists(report: &Report) -> Vec<String> {
    let lists = report.tables.iter();
    let lines = lists.filter_map(|list| {
        let count = |name| {
            list.counts
                .iter()
                .find(|(of, _)| *of == name)
                .map(|(_, n)| n)
        };
        let (all, kept) = (count("spe_line_samples")?, count("spe_line_samples_kept")?);
        let shared = count("lines_shared")?;
        Some(format!(
            " - {}: {shared} are shared, of those that the kernel's table holds; they have \
                 {kept} of {all} samples with an address",
            list.name
        ))
    });
    let hot = report.tables.iter().filter_map(|list| {
        let count = |name| list.counts.iter().find(|(of, _)| *of == name);
        let (all, kept) = (count("hot_samples")?.1, count("hot_samples_kept")?.1);
        (kept < all).then(|| {
            format!(
                " - {}: {kept} of {all} samples have their address in the table; the upper ends \
                 of shares hold the others",
                list.name
            )
        })
    });
    let warnings = report.warnings.iter();
    let warnings = warnings.map(|text| format!(" ! {}", printable(text)));
    lines.chain(hot).chain(warnings).collect()
}

/// A line for each cause.
pub(super) fn reasons(page: &Page<'_>) -> Vec<String> {
    let report = page.report;
    let mut causes: Vec<Cause<'_>> = Vec::new();
    // Most reasons are common to many values.
    let mut known: Vec<(&Reason, usize)> = Vec::new();
    let mut seen = HashSet::new();
    for (number, group) in page.groups.iter().enumerate() {
        // Too few samples need no line: the table shows their number.
        let told = |series: &&Series| {
            group.part != Part::Own && report.attributes(series).operation.is_none()
        };
        for series in group.series.iter().filter(told) {
            let at = match &series.value {
                Ok(_) => match series.estimate().and_then(|it| it.above_bound) {
                    Some(bound) => find(&mut causes, above(bound), None),
                    None => continue,
                },
                Err(reason) => {
                    let same = known.iter().find(|(same, _)| *same == reason);
                    same.map(|(_, at)| *at).unwrap_or_else(|| {
                        let (text, events) = parts(reason);
                        let at = find(&mut causes, text, events);
                        known.push((reason, at));
                        known.truncate(KNOWN);
                        at
                    })
                }
            };
            let cause = &mut causes[at];
            if seen.insert((at, Named::Metric(series.metric))) {
                cause.metrics.push(&report.metric(series).name);
            }
            if group.part != Part::Missing && seen.insert((at, Named::Group(number))) {
                let row = row(page, group, series);
                if seen.insert((at, Named::Row(row.clone()))) {
                    cause.rows.push(row);
                }
            }
        }
    }
    let lines = causes
        .iter()
        .map(|cause| format!(" - {}", printable(&cause.line())));
    lines.collect()
}

/// What a cause has named.
#[derive(PartialEq, Eq, Hash)]
enum Named {
    Metric(u32),
    Group(usize),
    Row(String),
}

/// What is said of a value above its bound, which is shown as it is.
fn above(bound: f64) -> String {
    format!("above {bound}, the largest possible value: its events do not count the same things")
}

/// The cause with that text, which may be a new one.
fn find(causes: &mut Vec<Cause<'_>>, text: String, events: Option<String>) -> usize {
    let known = causes.iter().position(|cause| cause.text == text);
    let at = known.unwrap_or_else(|| {
        causes.push(Cause {
            text,
            ..Cause::default()
        });
        causes.len() - 1
    });
    let cause = &mut causes[at];
    cause
        .events
        .extend(events.filter(|events| !cause.events.contains(events)));
    at
}

/// The cause in words, and the events that it is about.
fn parts(reason: &Reason) -> (String, Option<String>) {
    let Reason::NoValue(why) = reason else {
        return (reason.to_string(), None);
    };
    let events = match why {
        NoValue::Missing(events) => events.join(", "),
        NoValue::NeverRan(events) | NoValue::DenominatorZero(events) => events.clone(),
        // Their numbers differ for each row.
        NoValue::DenominatorTooSmall { .. } => {
            let text = "denominator too small: so few counts cannot carry a share";
            return (text.to_owned(), None);
        }
        NoValue::DidNotRun
        | NoValue::MostlyUnknown
        | NoValue::Divided
        | NoValue::TooFewSamples
        | NoValue::ChosenByCore
        | NoValue::NotKnown(_)
        | NoValue::NotOnChip { .. }
        | NoValue::NotConfigured(_)
        | NoValue::NotFinite => return (why.to_string(), None),
    };
    (why.to_string().replacen(&events, OF, 1), Some(events))
}

/// The name of a row with a missing value.
fn row(page: &Page<'_>, group: &Group<'_>, series: &Series) -> String {
    match (group.part, group.subject) {
        (Part::Shares, Subject::Entity(_)) => {
            format!("{} on {}", page.name(group), place(page.report, series))
        }
        (Part::Shares, _) => place(page.report, series),
        _ => page.name(group),
    }
}

impl Cause<'_> {
    /// `13 metrics spe_* (4 rows): the cause`.
    fn line(&self) -> String {
        let metrics = match self.metrics.len() {
            0..=NAMED => self.metrics.join(", "),
            many => format!("{many} metrics{}", family(&self.metrics)),
        };
        let rows = match self.rows.len() {
            0 => String::new(),
            1..=NAMED => format!(" ({})", self.rows.join(", ")),
            many => format!(" ({many} rows)"),
        };
        let events = match self.events.len() {
            0..=NAMED => self.events.join(", "),
            many => format!(
                "{} and {} more",
                self.events[..NAMED].join(", "),
                many - NAMED
            ),
        };
        format!("{metrics}{rows}: {}", self.text.replacen(OF, &events, 1))
    }
}

/// The common prefix of all names, as ` spe_*`.
fn family(names: &[&str]) -> String {
    let first = names.first().copied().unwrap_or_default();
    let words = first.match_indices('_').map(|(at, _)| &first[..=at]);
    let mut common = words.filter(|words| names.iter().all(|name| name.starts_with(words)));
    common
        .next_back()
        .map_or_else(String::new, |words| format!(" {words}*"))
}

/// The findings in words. Advice is the same in every window, so it is given only `with_advice`.
pub(super) fn findings(page: &Page<'_>, with_advice: bool) -> Vec<String> {
    let report = page.report;
    let line = |finding: &Finding| {
        let text = printable(&finding.text);
        match finding.about {
            About::Socket(_) => format!(" ! {text}"),
            About::Subject(subject) => format!(" ! {}: {text}", page.names[subject as usize]),
        }
    };
    let mut lines: Vec<String> = report.findings.iter().map(line).collect();
    if with_advice && !report.advice.is_empty() {
        let head = " What lowers misses of devices (DDIO paper, section 4), and what should fall:";
        lines.push(head.to_owned());
        let advice = report.advice.iter();
        lines.extend(advice.map(|it| format!(" * {}: {}", it.what, it.lowers.join(", "))));
    }
    lines
}
