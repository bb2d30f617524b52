//! What a server shows that is scraped.

use std::collections::BTreeMap;

use super::{Aspect, Samples, Text, text};
use crate::derive::{Counting, Kind, Report, Series};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Prometheus 0.0.4.
    Prometheus,
}

impl Dialect {
    /// The type of a document, as HTTP has it.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// A report for a scrape: the self-counters with it, and without the times at which counters began,
/// the ends of intervals, histograms, and what is seldom asked of samples. JSON has all of these.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    /// Labels of every series, as the format writes them.
    labels: String,
}

/// Gauges of samples that are left out, whatever the operation.
const LEFT_OUT: &[&str] = &[
    "spe_latency_p50_cycles",
    "spe_latency_p90_cycles",
    "spe_issue_latency_mean_cycles",
    "spe_translation_latency_mean_cycles",
];

impl Exposition {
    /// With these labels in every series.
    #[must_use]
    pub fn new(labels: &BTreeMap<String, String>) -> Self {
        let labels = labels.iter().map(|(name, value)| text::label(name, value));
        Self {
            labels: labels.collect::<Vec<_>>().join(","),
        }
    }

    /// A report as text.
    #[must_use]
    pub fn write(&self, report: &Report, dialect: Dialect) -> Vec<u8> {
        let mut out = Vec::new();
        samples(report).write(Text::new(&mut out, dialect, &self.labels), false);
        out
    }

    /// How many series there are of each subject.
    #[must_use]
    pub fn counts(report: &Report) -> Vec<usize> {
        let mut counts = vec![0; report.subjects.len()];
        for (series, _) in samples(report).by_family.iter().flatten() {
            counts[series.subject as usize] += 1;
        }
        counts
    }
}

/// All of them that a scrape shows.
pub(super) fn samples(report: &Report) -> Samples<'_> {
    let mut samples = Samples::new(report, true);
    for group in report.groups() {
        samples.add(&group);
    }
    samples
}

/// Whether an aspect of a series is left out.
pub(super) fn is_left_out(report: &Report, series: &Series, aspect: Aspect) -> bool {
    let metric = report.metric(series);
    let of_source = report.attributes(series).source.is_some();
    match aspect {
        Aspect::Lower | Aspect::Upper => true,
        // Where accesses were served is told by what they are estimated to be; where the core
        // chose them, by the samples themselves.
        _ if of_source => match metric.counting {
            Counting::All => aspect != Aspect::Raw,
            _ => aspect != Aspect::Estimated,
        },
        _ => metric.kind == Kind::Histogram || LEFT_OUT.contains(&metric.name.as_str()),
    }
}
