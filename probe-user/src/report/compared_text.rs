//! A comparison as a table, JSON, or a page.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{
    ComparedValue, Comparison, DifferenceTest, Evidence, LineMetric, SideStatistics,
    compare::{FALSE_RATE, MIN_WINDOWS},
    text::number,
};
use crate::{
    emit::{fitted, number_texts, printable::printable, table_lines, width, wrapped},
    plot::escaped,
};

/// Tables of this width or more also have columns for the difference and the largest difference by
/// chance. Narrower ones have only both means and their ratio.
const WIDE: usize = 100;

/// Headings.
const METRIC: &str = "metric";
const UNIT: &str = "unit";

/// The least width of a name, and the least width that wide metrics leave to the column of rows.
const MIN_NAME: usize = 8;
const LEAST_ROW: usize = 16;

/// Spaces between two columns, and before the first.
const GAP: usize = 2;

/// Most rows, metrics or series that are listed as only on one side.
const MAX_ALONE: usize = 5;

/// How much of a comparison is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShownDifferences {
    /// Columns of the screen; None for lines of any length.
    pub width: Option<usize>,
    /// Also values that do not differ, and counts that rates replace.
    pub all: bool,
}

impl ShownDifferences {
    fn values<'a>(&self, comparison: &'a Comparison) -> Vec<&'a ComparedValue> {
        let values = comparison.both.iter();
        let is_shown = |it: &&ComparedValue| it.differs && !it.metric.replaced_by_rates;
        values.filter(|it| self.all || is_shown(it)).collect()
    }
}

/// The unit of a metric over time, for people: a plain ratio has none.
fn unit(metric: &LineMetric) -> String {
    let unit = metric.shown_unit();
    if unit == "1" { String::new() } else { unit }
}

/// What distinguishes series of one metric, without the last word of the metric's name at its
/// beginning: `behind NAME` of `cpu_wait_behind` is `NAME`.
fn series_name<'a>(metric: &str, qualifier: &'a str) -> &'a str {
    let last = metric.rsplit('_').next().unwrap_or_default();
    let rest = qualifier.strip_prefix(last).unwrap_or(qualifier);
    rest.trim_start()
}

/// A column of numbers.
struct NumberColumn {
    head: &'static str,
    texts: Vec<String>,
}

/// The columns of numbers, all formatted alike.
fn number_columns(values: &[&ComparedValue], is_wide: bool) -> Vec<NumberColumn> {
    let texts = |value: &dyn Fn(&ComparedValue) -> Option<f64>| {
        number_texts(values.iter().map(|it| value(it)))
    };
    let known = |value: &dyn Fn(&ComparedValue) -> f64| texts(&|it| Some(value(it)));
    let mut ratios = texts(&|it| it.ratio().filter(|ratio| *ratio != 0.0));
    for (text, it) in ratios.iter_mut().zip(values) {
        match (it.a.mean == 0.0, it.b.mean == 0.0) {
            (true, false) => "from 0".clone_into(text),
            (false, true) => "to 0".clone_into(text),
            _ => {}
        }
    }
    let allowed = is_wide.then(|| {
        let mut texts = texts(&ComparedValue::allowed);
        for (text, it) in texts.iter_mut().zip(values) {
            if it.test().is_some() {
                text.insert(0, '\u{b1}');
            }
        }
        texts
    });
    let differences = is_wide.then(|| known(&ComparedValue::difference));
    let columns = [
        ("A", Some(known(&|it| it.a.mean))),
        ("B", Some(known(&|it| it.b.mean))),
        ("B/A", Some(ratios)),
        ("B-A", differences),
        ("by chance", allowed),
    ];
    let columns = columns.into_iter();
    columns
        .filter_map(|(head, texts)| Some((head, texts?)))
        .map(|(head, texts)| NumberColumn { head, texts })
        .collect()
}

/// The comparison as a text table.
#[must_use]
pub fn table(comparison: &Comparison, shown: ShownDifferences) -> String {
    let values = shown.values(comparison);
    let wrapped = |note: String| wrapped(&format!(" {}", printable(&note)), shown.width, 3);
    let mut lines: Vec<String> = sides(comparison).flat_map(wrapped).collect();
    if !values.is_empty() {
        lines.extend(value_lines(&values, shown));
    }
    lines.extend(notes(comparison, shown).into_iter().flat_map(wrapped));
    lines.join("\n") + "\n"
}

fn value_lines(values: &[&ComparedValue], shown: ShownDifferences) -> Vec<String> {
    let numbers = number_columns(values, shown.width.is_none_or(|width| width >= WIDE));
    let units = texts_of(values, |it| unit(&it.metric));
    let mut rows = texts_of(values, |it| it.subject.label.clone());
    let mut metrics = texts_of(values, |it| it.metric.name.clone());
    let mut series = texts_of(values, |it| {
        series_name(&it.metric.name, &it.qualifier).to_owned()
    });
    if let Some(max) = shown.width {
        let star = if shown.all { GAP + 1 } else { 0 };
        let taken: usize = { numbers.iter() }
            .map(|column| GAP + widest(&column.texts).max(column.head.len()))
            .chain([GAP + widest(&units).max(UNIT.len()), star, 1 + GAP])
            .sum();
        let available = max.saturating_sub(taken);
        let metric_width = widest(&joined(&metrics, &series)).max(METRIC.len());
        // Names of rows are cut first: cut names of rows stay different, while a cut name of a
        // metric is hard to understand.
        let metric_width = metric_width.min(available.saturating_sub(widest(&rows).min(LEAST_ROW)));
        rows = cut(&rows, available.saturating_sub(metric_width));
        // The metric matters more than its series, which gets the remaining width.
        metrics = cut(&metrics, metric_width);
        let with_series = metrics.iter().zip(&series);
        let with_series = with_series.filter(|(_, series)| !series.is_empty());
        let longest = with_series.map(|(metric, _)| width(metric)).max();
        series = cut(
            &series,
            metric_width.saturating_sub(longest.unwrap_or(0) + 1),
        );
    }
    let metrics = joined(&metrics, &series);
    let mut heads = vec!["", METRIC, UNIT];
    heads.extend(numbers.iter().map(|it| it.head));
    let last = heads.len();
    heads.extend(shown.all.then_some(""));
    let lines = values.iter().enumerate().map(|(at, it)| {
        let names = [&rows, &metrics, &units].map(|texts| texts[at].clone());
        let numbers = numbers.iter().map(|column| column.texts[at].clone());
        let star = if it.differs { "*" } else { "" };
        let star = shown.all.then(|| star.to_owned());
        names.into_iter().chain(numbers).chain(star).collect()
    });
    table_lines(&heads, lines, |at| (3..last).contains(&at))
}

fn texts_of(values: &[&ComparedValue], text: impl Fn(&ComparedValue) -> String) -> Vec<String> {
    let texts = values.iter().map(|it| printable(&text(it)).into_owned());
    texts.collect()
}

fn widest(texts: &[String]) -> usize {
    texts.iter().map(|text| width(text)).max().unwrap_or(0)
}

fn cut(texts: &[String], max: usize) -> Vec<String> {
    let all: Vec<&str> = texts.iter().map(String::as_str).collect();
    fitted(&all, max.max(MIN_NAME))
}

/// Metrics, each with its series.
fn joined(metrics: &[String], series: &[String]) -> Vec<String> {
    let both = metrics.iter().zip(series);
    both.map(|(metric, series)| format!("{metric} {series}").trim_end().to_owned())
        .collect()
}

/// What A and B are.
fn sides(comparison: &Comparison) -> impl Iterator<Item = String> {
    let sides = ["A", "B"].into_iter().zip(&comparison.sides);
    sides.map(|(letter, side)| {
        let (name, windows, seconds) = (&side.name, side.windows, side.seconds);
        format!("{letter}: {name}, {windows} windows in {seconds:.1} s")
    })
}

/// Footnotes: how many values differ and how sure that is, and what is not shown.
fn notes(comparison: &Comparison, shown: ShownDifferences) -> Vec<String> {
    let count = |matches: &dyn Fn(&ComparedValue) -> bool| {
        comparison.both.iter().filter(|it| matches(it)).count()
    };
    let differing = count(&|it| it.differs);
    let tested = count(&|it| it.test().is_some());
    let constant = count(&|it| it.evidence == Evidence::Constant);
    let few = count(&|it| it.evidence == Evidence::TooFewWindows);
    let replaced_by_rates = count(&|it| it.differs && it.metric.replaced_by_rates && !shown.all);
    let certain = count(&|it| it.test().is_some_and(DifferenceTest::is_certain));
    let mut notes = vec![verdict(differing, certain, tested)];
    notes.extend(comparison.both.first().and_then(closest));
    let too_few = format!("with fewer than the {MIN_WINDOWS} windows a side that a verdict needs");
    let others = [
        (tested - differing, "that do not differ"),
        (replaced_by_rates, "that differ but are counts behind rates"),
        (constant, "constant and equal"),
        (few, &too_few),
    ];
    let others: Vec<String> = { others.iter() }
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !others.is_empty() {
        let heading = if shown.all {
            "shown without a star"
        } else {
            "not shown (--all)"
        };
        notes.push(format!("{heading}: {}", others.join(", ")));
    }
    if tested + constant == 0 && few > 0 {
        notes.push("record longer, or with a shorter -I".to_owned());
    }
    for (letter, side) in ["A", "B"].iter().zip(&comparison.sides) {
        notes.extend(alone(letter, "rows", &side.rows_alone, shown.all));
        notes.extend(alone(letter, "metrics", &side.metrics_alone, shown.all));
        let series: Vec<String> = { side.series_alone.iter() }
            .map(|it| {
                let series = series_name(&it.metric, &it.qualifier);
                format!("{} {} {series}", it.label, it.metric)
                    .trim_end()
                    .to_owned()
            })
            .collect();
        notes.extend(alone(letter, "series", &series, shown.all));
    }
    notes
}

/// How many values differ, and how many of these are expected to be chance: none of the `certain`
/// ones.
fn verdict(differing: usize, certain: usize, tested: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a number of values")]
    let chance = (differing - certain) as f64 * FALSE_RATE;
    match (differing, tested) {
        (_, 0) => "no value could be tested".to_owned(),
        (0, _) => format!("none of {tested} values differs by more than chance allows"),
        _ => format!(
            "{differing} of {tested} values differ: those that chance explains least are first, \
             the machine's own last. At most {chance:.2} of the {differing} are \
             expected to be chance (Benjamini-Hochberg, 1%)"
        ),
    }
}

/// The most surprising value of a program, if it does not differ.
fn closest(it: &ComparedValue) -> Option<String> {
    let test = it.test().filter(|test| test.p < 1.0)?;
    let unit = unit(&it.metric);
    let means = number_texts([it.a.mean, it.b.mean].map(Some).into_iter());
    let name = format!("{} {}", it.subject.label, it.metric.name);
    let (a, b, p) = (means[0].trim(), means[1].trim(), test.p);
    (it.is_of_program() && !it.differs).then(|| {
        format!(
            "closest to a difference: {name}, {a} and {b} {unit} (p {p:.1e}); longer recordings \
             tell more"
        )
    })
}

fn alone(letter: &str, what: &str, names: &[String], all: bool) -> Option<String> {
    let most = if all { names.len() } else { MAX_ALONE };
    let first = names
        .iter()
        .take(most)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    let rest = match names.len().saturating_sub(most) {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    (!names.is_empty()).then(|| format!("{what} only in {letter}: {first}{rest}"))
}

/// The comparison as JSON, with all values.
#[must_use]
pub fn json(comparison: &Comparison) -> Value {
    let statistics = |it: &SideStatistics| {
        json!({
            "mean": number(it.mean),
            "windows": it.windows,
            "error_of_values": number(it.own_error),
        })
    };
    let both = comparison.both.iter().map(|it| {
        json!({
            "part": it.subject.part,
            "kind": it.subject.get("kind"),
            "name": it.subject.name(),
            "label": it.subject.label,
            "metric": it.metric.name,
            "unit": it.metric.shown_unit(),
            "of": it.qualifier,
            "a": statistics(&it.a),
            "b": statistics(&it.b),
            "ratio": it.ratio().map(number),
            "difference": number(it.difference()),
            "standard_error": it.test().map(|test| number(test.standard_error())),
            "p": it.test().map(|test| number(test.p)),
            "allowed": it.allowed().map(number),
            "differs": it.differs,
        })
    });
    let side = |at: usize| {
        let side = &comparison.sides[at];
        json!({
            "name": side.name,
            "windows": side.windows,
            "seconds": number(side.seconds),
            "rows_alone": side.rows_alone,
            "metrics_alone": side.metrics_alone,
            "series_alone": side.series_alone.iter().map(|it| {
                json!({ "label": it.label, "metric": it.metric, "of": it.qualifier })
            }).collect::<Vec<_>>(),
        })
    };
    json!({
        "a": side(0),
        "b": side(1),
        "false_discovery_rate": FALSE_RATE,
        "values": both.collect::<Vec<_>>(),
    })
}

/// The comparison as a self-contained HTML page.
#[must_use]
pub fn html(comparison: &Comparison, shown: ShownDifferences) -> String {
    let style = include_str!("page/page.css");
    let names = [0, 1].map(|at| escaped(&comparison.sides[at].name));
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{} and {} - pmuscope</title>\n<style>\n{style}</style>\n</head>\n<body>\n\
         <h1>A and B</h1>\n",
        names[0], names[1]
    );
    for note in notes(comparison, shown) {
        let _ = writeln!(text, "<p class=\"quiet\">{}</p>", escaped(&note));
    }
    let values = shown.values(comparison);
    let numbers = number_columns(&values, true);
    text.push_str(
        "<section class=\"scroll\"><table>\n<thead><tr><th></th><th>metric</th><th>unit</th>",
    );
    for column in &numbers {
        let _ = write!(text, "<th>{}</th>", column.head);
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for (at, it) in values.iter().enumerate() {
        let class = if it.differs { " class=\"differs\"" } else { "" };
        let _ = write!(text, "<tr{class}>");
        let metric = format!(
            "{} {}",
            it.metric.name,
            series_name(&it.metric.name, &it.qualifier)
        );
        let names = [it.subject.label.clone(), metric, unit(&it.metric)];
        let numbers = numbers.iter().map(|column| column.texts[at].clone());
        for cell in names.into_iter().chain(numbers) {
            let _ = write!(text, "<td>{}</td>", escaped(&cell));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></section>\n</body>\n</html>\n");
    text
}

#[cfg(test)]
mod tests;
