//! The lines below the tables: a line for each cause of missing or impossible values, one for
//! values over their threshold, and findings.

use std::collections::HashSet;

use super::{TablePage, shares::socket_or_device};
use crate::{
    derive::{
        Estimate, FindingSubject, Reason, Report, ReportFinding, ReportSection, Series, Subject,
        SubjectSeries,
    },
    emit::printable::printable,
    formula::NoValue,
};

/// The most names of metrics, rows or events in a line. Of more metrics or rows, the line has only
/// the number; of more events, the first names and the number of the others.
const MAX_NAMES: usize = 3;

/// The most reasons kept for look-up.
const MAX_KNOWN_REASONS: usize = 64;

/// Placeholder for the events in the text of a cause.
const EVENTS: &str = "\u{fffc}";

/// A note on values that are missing, impossible or over their threshold.
#[derive(Default)]
struct Cause<'a> {
    /// The text, with [`EVENTS`] instead of the events.
    text: String,
    events: Vec<String>,
    /// Metrics with values of this cause.
    metrics: Vec<&'a str>,
    rows: Vec<String>,
}

/// The coverage of the lists, and warnings about samples.
pub(super) fn lists(report: &Report) -> Vec<String> {
    let lists = report.tables.iter();
    let lines = lists.filter_map(|list| {
        let count = |name| {
            list.counts
                .iter()
                .find(|(key, _)| *key == name)
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
        let count = |name| list.counts.iter().find(|(key, _)| *key == name);
        let (all, kept) = (count("hot_samples")?.1, count("hot_samples_kept")?.1);
        (kept < all).then(|| {
            format!(
                " - {}: {kept} of {all} samples have their address in the table; the upper ends \
                 of shares hold the others",
                list.name
            )
        })
    });
    let warnings = report
        .warnings
        .iter()
        .map(|text| format!(" ! {}", printable(text)));
    lines.chain(hot).chain(warnings).collect()
}

/// A line for each cause of missing or impossible values, and one for values over their threshold.
pub(super) fn reasons(page: &TablePage<'_>) -> Vec<String> {
    let report = page.report;
    let mut causes: Vec<Cause<'_>> = Vec::new();
    // Indices of causes by reason: most reasons are common to many values.
    let mut known: Vec<(&Reason, usize)> = Vec::new();
    let mut mentioned = HashSet::new();
    for (number, group) in page.groups.iter().enumerate() {
        // Too few samples of accesses need no line: the table shows their number.
        let is_noted = |series: &&Series| {
            group.section != ReportSection::SelfCounters
                && report.attributes(series).operation.is_none()
                && page.is_shown(series)
        };
        for series in group.series.iter().filter(is_noted) {
            let at = match &series.value {
                Ok(_) => match series.estimate() {
                    Some(Estimate {
                        exceeded_bound: Some(bound),
                        ..
                    }) => cause_index(&mut causes, exceeded_bound(*bound), None),
                    Some(it) if it.over_threshold => {
                        cause_index(&mut causes, OVER_THRESHOLD.to_owned(), None)
                    }
                    _ => continue,
                },
                Err(reason) => {
                    let same = known.iter().find(|(same, _)| *same == reason);
                    same.map(|(_, at)| *at).unwrap_or_else(|| {
                        let (text, events) = text_and_events(reason);
                        let at = cause_index(&mut causes, text, events);
                        known.push((reason, at));
                        known.truncate(MAX_KNOWN_REASONS);
                        at
                    })
                }
            };
            let cause = &mut causes[at];
            if mentioned.insert((at, Mention::Metric(series.metric))) {
                cause.metrics.push(&report.metric(series).name);
            }
            // What cannot be counted is missing in every row.
            if !matches!(series.value, Err(Reason::NotPlanned(_)))
                && mentioned.insert((at, Mention::Group(number)))
            {
                let row = row_name(page, group, series);
                if mentioned.insert((at, Mention::Row(row.clone()))) {
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

/// A name already mentioned for a cause.
#[derive(PartialEq, Eq, Hash)]
enum Mention {
    Metric(u32),
    Group(usize),
    Row(String),
}

/// The note on values over their threshold.
const OVER_THRESHOLD: &str = "over its threshold, which `pmuscope list metrics NAME` has";

/// The note on a value above its bound, which is shown unchanged.
fn exceeded_bound(bound: f64) -> String {
    format!("above {bound}, the largest possible value: its events do not count the same things")
}

/// The index of the cause with this text, added if new.
fn cause_index(causes: &mut Vec<Cause<'_>>, text: String, events: Option<String>) -> usize {
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

/// The text of a reason with [`EVENTS`] in place of its events, and these events.
fn text_and_events(reason: &Reason) -> (String, Option<String>) {
    let Reason::NoValue(why) = reason else {
        return (reason.to_string(), None);
    };
    let events = match why {
        NoValue::Missing(events) => events.join(", "),
        NoValue::NeverRan(events) | NoValue::DenominatorZero(events) => events.clone(),
        // The numbers differ for each row.
        NoValue::DenominatorTooSmall { .. } => {
            let text = "denominator too small: too few counts for a share";
            return (text.to_owned(), None);
        }
        NoValue::DidNotRun
        | NoValue::MostlyUnknown
        | NoValue::Divided
        | NoValue::TooFewSamples
        | NoValue::TooFewWaits
        | NoValue::ChosenByCore
        | NoValue::NotKnown(_)
        | NoValue::NotOnChip { .. }
        | NoValue::NotConfigured(_)
        | NoValue::NotFinite => return (why.to_string(), None),
    };
    (why.to_string().replacen(&events, EVENTS, 1), Some(events))
}

/// The name of a row in a note.
fn row_name(page: &TablePage<'_>, group: &SubjectSeries<'_>, series: &Series) -> String {
    match (group.section, group.subject) {
        (ReportSection::Shares, Subject::Entity(_)) => {
            format!(
                "{} on {}",
                page.name(group),
                socket_or_device(page.report, series)
            )
        }
        (ReportSection::Shares, _) => socket_or_device(page.report, series),
        _ => page.name(group),
    }
}

impl Cause<'_> {
    /// `13 metrics spe_* (4 rows): the cause`.
    fn line(&self) -> String {
        let metrics = match self.metrics.len() {
            0..=MAX_NAMES => self.metrics.join(", "),
            many => format!("{many} metrics{}", common_prefix(&self.metrics)),
        };
        let rows = match self.rows.len() {
            0 => String::new(),
            1..=MAX_NAMES => format!(" ({})", self.rows.join(", ")),
            many => format!(" ({many} rows)"),
        };
        let events = match self.events.len() {
            0..=MAX_NAMES => self.events.join(", "),
            many => format!(
                "{} and {} more",
                self.events[..MAX_NAMES].join(", "),
                many - MAX_NAMES
            ),
        };
        format!(
            "{metrics}{rows}: {}",
            self.text.replacen(EVENTS, &events, 1)
        )
    }
}

/// The common prefix of all names, as ` spe_*`.
fn common_prefix(names: &[&str]) -> String {
    let first = names.first().copied().unwrap_or_default();
    let words = first.match_indices('_').map(|(at, _)| &first[..=at]);
    let mut common = words.filter(|words| names.iter().all(|name| name.starts_with(words)));
    common
        .next_back()
        .map_or_else(String::new, |words| format!(" {words}*"))
}

/// The findings. Advice is the same in every window, so it is optional.
pub(super) fn findings(page: &TablePage<'_>, with_advice: bool) -> Vec<String> {
    let report = page.report;
    let line = |finding: &ReportFinding| {
        let text = finding.sentence(|subject| page.name_of(subject));
        let text = printable(&text);
        match finding.about {
            FindingSubject::Socket(_) => format!(" ! {text}"),
            FindingSubject::Subject(subject) => {
                format!(" ! {}: {text}", page.names[subject as usize])
            }
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
