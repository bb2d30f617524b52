//! Writer of the text formats: headers, samples, escapes and numbers.

use std::io::Write as _;

use super::BEHIND;
use crate::{
    derive::{Histogram, LABELS},
    emit::printable::{distinct, printable},
};

/// An exposition in progress.
pub(super) struct ExpositionText<'a> {
    out: &'a mut Vec<u8>,
    /// Whether the format is `OpenMetrics`; if not, it is the older text format.
    is_open_metrics: bool,
    /// Labels of every sample, as text.
    labels: &'a str,
}

/// Label names of series in addition to those of their subjects.
const SERIES_LABELS: [&str; 13] = [
    "device",
    "event",
    "group",
    "le",
    "method",
    "operation",
    "pci_devices",
    "quantile",
    "reason",
    "sampler",
    "socket",
    "source",
    "version",
];

/// Label names that series use themselves, sorted. In addition there are labels of containers
/// (`label_KEY`), and labels of state sets, named after the metric.
#[must_use]
pub fn reserved_labels() -> Vec<&'static str> {
    let of_subjects = LABELS.iter().map(|label| label.name);
    let mut names: Vec<&str> = of_subjects.chain(SERIES_LABELS).collect();
    names.sort_unstable();
    names
}

/// Whether series use a label of this name themselves.
#[must_use]
pub fn is_reserved_label(name: &str) -> bool {
    let begins = |with| name.starts_with(with);
    reserved_labels().contains(&name) || begins("label_") || begins("pmuscope_") || begins(BEHIND)
}

/// The suffix of the name and the type of a family in Prometheus' own text and protobuf formats,
/// which have fewer types than `OpenMetrics`.
pub(super) fn plain_type(type_name: &str) -> (&'static str, &'static str) {
    match type_name {
        "counter" => ("_total", "counter"),
        "histogram" => ("", "histogram"),
        "info" => ("_info", "gauge"),
        _ => ("", "gauge"),
    }
}

/// `name="value"`. In addition to the escapes of the format, characters that a terminal acts on are
/// escaped as in Rust.
pub(super) fn label(name: &str, value: &str) -> String {
    let mut label = format!("{name}=\"");
    escape(&mut label, &distinct(value), true);
    label.push('"');
    label
}

/// The text of each label ([`label`]), separated by commas.
pub(super) fn labels(all: &[(impl AsRef<str>, impl AsRef<str>)]) -> String {
    let labels = all
        .iter()
        .map(|(name, value)| label(name.as_ref(), value.as_ref()));
    labels.collect::<Vec<_>>().join(",")
}

/// Applies the escapes of the format to printable text.
fn escape(into: &mut String, text: &str, quotes: bool) {
    for char in text.chars() {
        match char {
            '\\' => into.push_str("\\\\"),
            '"' if quotes => into.push_str("\\\""),
            char => into.push(char),
        }
    }
}

impl<'a> ExpositionText<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, is_open_metrics: bool, labels: &'a str) -> Self {
        Self {
            out,
            is_open_metrics,
            labels,
        }
    }

    /// Writes the header of a family.
    pub(super) fn head(&mut self, name: &str, type_name: &str, unit: &str, help: &str) {
        let is_open_metrics = self.is_open_metrics;
        let (suffix, type_name) = match is_open_metrics {
            true => ("", type_name),
            false => plain_type(type_name),
        };
        let name = &format!("{name}{suffix}");
        let mut escaped = String::new();
        escape(&mut escaped, &printable(help), is_open_metrics);
        let words: &[&str] = &[
            "# HELP ",
            name,
            " ",
            &escaped,
            "\n# TYPE ",
            name,
            " ",
            type_name,
            "\n",
        ];
        self.add(words);
        if is_open_metrics && !unit.is_empty() {
            self.add(&["# UNIT ", name, " ", unit, "\n"]);
        }
    }

    /// Writes a sample. Empty labels are omitted.
    pub(super) fn sample(&mut self, name: &str, suffix: &str, labels: &[&str], value: f64) {
        self.labelled(name, suffix, labels, "");
        self.number(value);
        self.out.push(b'\n');
    }

    /// Writes a histogram. A bucket counts all values up to and including its bound.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        labels: &[&str],
        histogram: &Histogram,
        factor: f64,
    ) {
        let mut sum = 0;
        for (at, count) in histogram.counts.iter().enumerate() {
            sum += count;
            let bound = histogram.bounds.get(at).map_or_else(
                || "+Inf".to_owned(),
                |bound| format!("{:?}", bound * factor),
            );
            self.labelled(name, "_bucket", labels, &bound);
            self.whole(sum);
        }
        self.labelled(name, "_count", labels, "");
        self.whole(sum);
        self.sample(name, "_sum", labels, histogram.sum * factor);
    }

    /// Ends the exposition.
    pub(super) fn end(&mut self) {
        if self.is_open_metrics {
            self.add(&["# EOF\n"]);
        }
    }

    /// Writes a name with its labels; `bound` is the label of a bucket, if not empty.
    fn labelled(&mut self, name: &str, suffix: &str, labels: &[&str], bound: &str) {
        self.add(&[name, suffix]);
        let mut separator = "{";
        let labels = [self.labels].into_iter().chain(labels.iter().copied());
        for label in labels.filter(|label| !label.is_empty()) {
            self.add(&[separator, label]);
            separator = ",";
        }
        if !bound.is_empty() {
            self.add(&[separator, "le=\"", bound, "\""]);
            separator = ",";
        }
        self.add(&[if separator == "{" { " " } else { "} " }]);
    }

    fn whole(&mut self, number: u64) {
        writeln!(self.out, "{number}").expect("it goes into memory");
    }

    /// Writes the shortest lossless text.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole and below 2^53"
    )]
    fn number(&mut self, number: f64) {
        if number.fract() == 0.0 && (0.0..9e15).contains(&number) {
            let written = serde_json::to_writer(&mut *self.out, &(number as u64));
            written.expect("it goes into memory");
        } else if number.is_finite() {
            let written = serde_json::to_writer(&mut *self.out, &number);
            written.expect("it goes into memory");
        } else if number.is_nan() {
            self.add(&["NaN"]);
        } else {
            self.add(&[if number > 0.0 { "+Inf" } else { "-Inf" }]);
        }
    }

    fn add(&mut self, words: &[&str]) {
        for word in words {
            self.out.extend_from_slice(word.as_bytes());
        }
    }
}
