//! The lines below a table: why a metric shows a dash, and what values mean.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use super::{share_place, short};
use crate::{
    derive::{Group, Part, Report, Subject},
    emit::printable::printable,
};

/// Rows that are named; of more, their number.
const NAMED: usize = 3;

pub(super) fn write(out: &mut impl Write, report: &Report, groups: &[Group<'_>]) -> io::Result<()> {
    // By event or metric, and reason, the rows; then those with the same rows and reason share a
    // line.
    let mut notes: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
    for group in groups.iter().filter(|group| group.part != Part::Own) {
        // Too few samples are seen as such.
        let plain = |series: &&crate::derive::Series| report.attributes(series).operation.is_none();
        for series in group.series.iter().filter(plain) {
            let Err(reason) = &series.value else {
                continue;
            };
            let key = (report.metric(series).name.as_str(), reason.to_string());
            let rows = notes.entry(key).or_default();
            rows.extend(match (group.part, group.subject) {
                (Part::Missing, _) => None,
                (Part::Shares, Subject::Entity(_)) => Some(format!(
                    "{} on {}",
                    short(group.subject),
                    share_place(report, series)
                )),
                (Part::Shares, _) => Some(share_place(report, series)),
                _ => Some(short(group.subject)),
            });
        }
    }
    let mut lines: BTreeMap<(String, Vec<String>), Vec<&str>> = BTreeMap::new();
    for ((metric, reason), rows) in notes {
        lines.entry((reason, rows)).or_default().push(metric);
    }
    for ((reason, rows), metrics) in lines {
        let of = match rows.len() {
            0 => String::new(),
            1..=NAMED => format!(" ({})", rows.join(", ")),
            many => format!(" ({many} rows)"),
        };
        let note = format!("{}{of}: {reason}", metrics.join(", "));
        writeln!(out, " - {}", printable(&note))?;
    }
    Ok(())
}

/// What the values say in words. Advice does not change, so it is given once.
pub(super) fn findings(out: &mut impl Write, report: &Report, first: bool) -> io::Result<()> {
    for finding in &report.findings {
        writeln!(out, " ! {}", printable(&finding.text))?;
    }
    if first && !report.advice.is_empty() {
        writeln!(
            out,
            " What lowers misses of devices (DDIO paper, section 4), and what should fall:"
        )?;
        for advice in report.advice {
            writeln!(out, " * {}: {}", advice.what, advice.lowers.join(", "))?;
        }
    }
    Ok(())
}
