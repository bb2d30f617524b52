//! A comparison as a table, JSON, or a page.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{ComparedValue, Comparison, compare::SideStatistics, text::number};
use crate::{
    emit::{printable::printable, table_lines},
    plot::{escaped, short},
};

const HEADS: [&str; 7] = ["", "metric", "A", "B", "B/A", "B-A", "by chance"];

const LEGEND: &str = "* the difference exceeds what chance allows: Welch's test on the windows, \
                      99%, with the values' intervals (docs/reference/recordings.md)";

/// Rows sorted for output: those that differ first, by the size of their ratio; then the rest in
/// the order of the report.
fn sorted(comparison: &Comparison) -> Vec<&ComparedValue> {
    let mut all: Vec<&ComparedValue> = comparison.both.iter().collect();
    let size = |it: &ComparedValue| match it.ratio {
        Some(ratio) if ratio > 0.0 && it.star() => ratio.ln().abs(),
        _ if it.star() => f64::MAX,
        _ => -1.0,
    };
    all.sort_by(|a, b| size(b).total_cmp(&size(a)));
    all
}

fn name(it: &ComparedValue) -> String {
    match it.of.as_str() {
        "" => it.subject.label.clone(),
        of => format!("{}, {of}", it.subject.label),
    }
}

fn cells(it: &ComparedValue) -> [String; 7] {
    let unit = it.metric.shown_unit();
    let metric = match unit.as_str() {
        "" => it.metric.name.clone(),
        unit => format!("{} ({unit})", it.metric.name),
    };
    let star = if it.star() { " *" } else { "" };
    [
        name(it),
        metric,
        short(it.a.mean),
        short(it.b.mean),
        it.ratio
            .map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
        format!("{}{star}", short(it.b.mean - it.a.mean)),
        it.allowed
            .map_or("-".to_owned(), |it| format!("\u{b1}{}", short(it))),
    ]
}

/// Footnotes: what A and B are, and rows that only one side has.
fn notes(comparison: &Comparison) -> Vec<String> {
    let [a, b] = &comparison.names;
    let mut notes = vec![format!("A: {a}"), format!("B: {b}"), LEGEND.to_owned()];
    for (side, alone) in ["A", "B"].iter().zip(&comparison.alone) {
        if !alone.is_empty() {
            notes.push(format!("only in {side}: {}", alone.join(", ")));
        }
    }
    if comparison.both.iter().any(|it| it.allowed.is_none()) {
        notes.push(
            "- too few windows to say: 8 of each side are needed, more where they are alike"
                .to_owned(),
        );
    }
    notes
}

/// The comparison as a text table.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let row = |it| Vec::from(cells(it).map(|cell| printable(&cell).into_owned()));
    let mut lines = table_lines(&HEADS, sorted(comparison).into_iter().map(row), |at| at > 1);
    let notes = notes(comparison).into_iter();
    lines.extend(notes.map(|note| format!(" {}", printable(&note))));
    lines.join("\n") + "\n"
}

/// The comparison as JSON.
#[must_use]
pub fn json(comparison: &Comparison) -> Value {
    let side = |sample: &SideStatistics| {
        json!({
            "mean": number(sample.mean),
            "windows": sample.windows,
            "standard_error": sample.scatter.map(number),
            "error_of_values": number(sample.own_error),
        })
    };
    let both = sorted(comparison).into_iter().map(|it| {
        json!({
            "part": it.subject.part,
            "kind": it.subject.get("kind"),
            "name": it.subject.name(),
            "label": it.subject.label,
            "metric": it.metric.name,
            "unit": it.metric.shown_unit(),
            "of": it.of,
            "a": side(&it.a),
            "b": side(&it.b),
            "ratio": it.ratio.map(number),
            "difference": number(it.b.mean - it.a.mean),
            "allowed": it.allowed.map(number),
            "differs": it.star(),
        })
    });
    json!({
        "a": comparison.names[0],
        "b": comparison.names[1],
        "values": both.collect::<Vec<_>>(),
        "only_in_a": comparison.alone[0],
        "only_in_b": comparison.alone[1],
    })
}

/// The comparison as a self-contained HTML page.
#[must_use]
pub fn html(comparison: &Comparison) -> String {
    let style = include_str!("page/page.css");
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{} and {} - pmuscope</title>\n<style>\n{style}</style>\n</head>\n<body>\n\
         <h1>A and B</h1>\n",
        escaped(&comparison.names[0]),
        escaped(&comparison.names[1])
    );
    for note in notes(comparison) {
        let _ = writeln!(text, "<p class=\"quiet\">{}</p>", escaped(&note));
    }
    text.push_str("<section class=\"scroll\"><table>\n<thead><tr>");
    for head in HEADS {
        let _ = write!(text, "<th>{head}</th>");
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for it in sorted(comparison) {
        let class = if it.star() { " class=\"differs\"" } else { "" };
        let _ = write!(text, "<tr{class}>");
        for cell in cells(it) {
            let _ = write!(text, "<td>{}</td>", escaped(&cell));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></section>\n</body>\n</html>\n");
    text
}
