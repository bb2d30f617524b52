//! Expositions for a server that is scraped.

use std::collections::BTreeMap;

use super::{Aspect, ExpositionText, FamilySamples, protobuf, text};
use crate::derive::{CounterSource, Report, Series, Value};

/// A format of Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The text of `OpenMetrics` 1.0.
    OpenMetrics,
    /// The text of Prometheus 0.0.4.
    Prometheus,
    /// Protocol buffers, with native histograms.
    Protobuf,
}

impl Dialect {
    /// All formats, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::OpenMetrics, Self::Prometheus, Self::Protobuf];

    /// The content type for HTTP.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                 encoding=delimited"
            }
        }
    }
}

/// A report for a scrape. It includes the self-counters and omits ends of intervals, histograms of
/// samples, seldom used gauges, and in text the start times of counters.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    /// Labels of every series.
    labels: BTreeMap<String, String>,
}

/// Metrics that a scrape omits.
const LEFT_OUT: &[&str] = &[
    "cpu_wait_p50",
    "cpu_wait_p90",
    "memory_access_latency_cycles",
    "memory_access_latency_p50_cycles",
    "memory_access_latency_p90_cycles",
    "memory_access_issue_latency_mean_cycles",
    "memory_access_translation_latency_mean_cycles",
];

impl Exposition {
    /// Adds these labels to every series.
    #[must_use]
    pub fn new(labels: &BTreeMap<String, String>) -> Self {
        let labels = labels.clone();
        Self { labels }
    }

    /// A report in a format.
    #[must_use]
    pub fn write(&self, report: &Report, dialect: Dialect) -> Vec<u8> {
        let is_open_metrics = match dialect {
            Dialect::OpenMetrics => true,
            Dialect::Prometheus => false,
            Dialect::Protobuf => return protobuf::write(report, &self.labels),
        };
        let labels = text::labels(&self.labels.iter().collect::<Vec<_>>());
        let mut out = Vec::new();
        scrape_samples(report).write(
            ExpositionText::new(&mut out, is_open_metrics, &labels),
            false,
        );
        out
    }

    /// The number of series of each subject.
    #[must_use]
    pub fn counts(report: &Report) -> Vec<usize> {
        let mut counts = vec![0; report.subjects.len()];
        for (series, _) in scrape_samples(report).by_family.iter().flatten() {
            counts[series.subject as usize] += match &series.value {
                // The sum and the count of a histogram are series too.
                Ok(Value::Histogram(histogram)) => histogram.counts.len() + 2,
                _ => 1,
            };
        }
        counts
    }
}

/// All samples of a scrape.
pub(super) fn scrape_samples(report: &Report) -> FamilySamples<'_> {
    let mut samples = FamilySamples::new(report, true);
    for group in report.groups() {
        samples.add(&group);
    }
    samples
}

/// Whether a scrape omits this aspect of a series.
pub(super) fn is_left_out(report: &Report, series: &Series, aspect: Aspect) -> bool {
    let metric = report.metric(series);
    let by_source = report.attributes(series).source.is_some();
    match aspect {
        Aspect::Lower | Aspect::Upper => true,
        // Accesses by data source have only their estimate. If the core chose the samples, there is
        // no estimate, and they have only the number of samples.
        _ if by_source => match metric.counting {
            CounterSource::All => aspect != Aspect::Raw,
            _ => aspect != Aspect::Estimated,
        },
        _ => LEFT_OUT.contains(&metric.name.as_str()),
    }
}
