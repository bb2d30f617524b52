//! The protocol buffers of Prometheus, which scrapers request to get native histograms. Each family
//! is a message `io.prometheus.client.MetricFamily`, preceded by its length. The messages have the
//! fields and numbers of `metrics.proto` (`prometheus/client_model`).
//!
//! Names and types are those of the text format 0.0.4. A histogram has classic and native buckets,
//! since scrapers also request this format for other reasons.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use prost::Message as _;

use super::{
    CachedLabels, Label, MetricFamily, exposition::scrape_samples, info, text::plain_type,
};
use crate::{
    derive::{self, MetricKind, PowerBuckets, Report, Series, Value},
    emit::printable::{distinct, printable},
};

#[derive(Clone, PartialEq, prost::Message)]
struct Family {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(enumeration = "Type", optional, tag = "3")]
    of_type: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    metrics: Vec<Metric>,
    #[prost(string, tag = "5")]
    unit: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
enum Type {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Gauge>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Counter>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Gauge {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Counter {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
    #[prost(message, optional, tag = "3")]
    created: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    buckets: Vec<Bucket>,
    /// Each power of two has 2^schema native buckets.
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    spans: Vec<BucketSpan>,
    /// The count of each native bucket minus the count of the bucket before it.
    #[prost(sint64, repeated, tag = "13")]
    deltas: Vec<i64>,
    #[prost(message, optional, tag = "15")]
    created: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Bucket {
    /// The number of values up to the bound.
    #[prost(uint64, optional, tag = "1")]
    cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    bound: Option<f64>,
}

/// Adjacent native buckets.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct BucketSpan {
    /// In the first span, the index of its first bucket; in others, the gap to the span before.
    /// Bucket i ends at 2^i.
    #[prost(sint32, optional, tag = "1")]
    offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    length: Option<u32>,
}

/// The series of a scrape. Each also has the labels `common`.
pub(super) fn write(report: &Report, common: &BTreeMap<String, String>) -> Vec<u8> {
    let common: Vec<LabelPair> = common
        .iter()
        .map(|(name, value)| pair(name, value))
        .collect();
    let samples = scrape_samples(report);
    let labels = CachedLabels::new(report, |labels| labels.iter().map(label_pair).collect());
    let mut out = Vec::new();
    let mut add = |family: Family| {
        let written = family.encode_length_delimited(&mut out);
        written.expect("it goes into memory");
    };
    for (name, help, all) in info::families(report).filter(|(.., all)| !all.is_empty()) {
        let with_labels = |labels: Vec<(String, String)>| {
            let labels = labels.iter().map(|(name, value)| pair(name, value));
            gauge(common.iter().cloned().chain(labels).collect(), 1.0)
        };
        let metrics = all.into_iter().map(with_labels).collect();
        add(family_message(name, "info", "", help, metrics));
    }
    for (family, of_family) in samples.families.list().iter().zip(&samples.by_family) {
        let metrics = of_family.iter().flat_map(|(series, number)| {
            let parts: [&Vec<LabelPair>; 4] = labels.for_series(family, series);
            let labels = common.iter().chain(parts.into_iter().flatten()).cloned();
            metrics(report, labels.collect(), family, series, *number)
        });
        let (name, unit) = (&family.name, &family.unit);
        add(family_message(
            name,
            family.type_name(),
            unit,
            &family.help,
            metrics.collect(),
        ));
    }
    if let Some((name, help, all)) = samples.absent_values() {
        let absent = |(reason, count): (&str, f64)| {
            let reason = pair("reason", reason);
            gauge(common.iter().cloned().chain([reason]).collect(), count)
        };
        add(family_message(
            name,
            "gauge",
            "",
            help,
            all.map(absent).collect(),
        ));
    }
    out
}

fn family_message(
    name: &str,
    type_name: &str,
    unit: &str,
    help: &str,
    metrics: Vec<Metric>,
) -> Family {
    let (suffix, type_name) = plain_type(type_name);
    let of_type = match type_name {
        "counter" => Type::Counter,
        "histogram" => Type::Histogram,
        _ => Type::Gauge,
    };
    Family {
        name: format!("{name}{suffix}"),
        help: printable(help).into_owned(),
        of_type: Some(of_type.into()),
        metrics,
        unit: unit.to_owned(),
    }
}

/// The metrics of a series: one, or one for each state.
fn metrics(
    report: &Report,
    labels: Vec<LabelPair>,
    family: &MetricFamily,
    series: &Series,
    number: f64,
) -> Vec<Metric> {
    match &series.value {
        _ if family.kind == MetricKind::Counter => {
            let created = report
                .total(series)
                .map(|total| created(report, total.start));
            let value = Some(number);
            vec![Metric {
                labels,
                counter: Some(Counter { value, created }),
                ..Metric::default()
            }]
        }
        Ok(Value::Histogram(value)) => vec![Metric {
            labels,
            histogram: Some(Histogram {
                created: Some(created(report, value.start)),
                ..histogram(value, family.factor)
            }),
            ..Metric::default()
        }],
        Ok(Value::Info(texts)) => {
            let texts = texts.iter().map(|(name, value)| pair(name, value));
            vec![gauge(labels.into_iter().chain(texts).collect(), 1.0)]
        }
        Ok(Value::State(now, all)) => {
            let metric = |state: &&'static str| {
                let state_label = pair(&family.name, state);
                let labels = labels.iter().cloned().chain([state_label]);
                gauge(labels.collect(), f64::from(u8::from(state == now)))
            };
            all.iter().map(metric).collect()
        }
        Ok(Value::Gauge(_) | Value::Counter(_)) | Err(_) => vec![gauge(labels, number)],
    }
}

fn gauge(labels: Vec<LabelPair>, value: f64) -> Metric {
    let gauge = Some(Gauge { value: Some(value) });
    Metric {
        labels,
        gauge,
        ..Metric::default()
    }
}

fn histogram(value: &derive::Histogram, factor: f64) -> Histogram {
    let up_to = value.counts.iter().scan(0, |sum, count| {
        *sum += count;
        Some(*sum)
    });
    // Scrapers add the last bucket, which counts all values.
    let buckets = up_to.zip(&value.bounds).map(|(count, bound)| Bucket {
        cumulative_count: Some(count),
        bound: Some(bound * factor),
    });
    let classic = Histogram {
        count: Some(value.counts.iter().sum()),
        sum: Some(value.sum * factor),
        buckets: buckets.collect(),
        ..Histogram::default()
    };
    // With another unit a bucket would not end at a power of two.
    match &value.powers {
        Some(powers) if factor.to_bits() == 1_f64.to_bits() => with_native(classic, powers),
        _ => classic,
    }
}

/// Adds native buckets. The first of `powers` becomes the zero bucket. The last of them, which has
/// no end, becomes a bucket that ends at twice its beginning.
fn with_native(classic: Histogram, powers: &PowerBuckets) -> Histogram {
    let (mut spans, mut deltas) = (Vec::<BucketSpan>::new(), Vec::new());
    let (mut before, mut gap) = (0, 0);
    let indices = powers.first + 1..;
    for (index, count) in indices.zip(powers.counts.iter().skip(1)) {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        if count == 0 {
            gap += 1;
            continue;
        }
        match spans.last_mut() {
            Some(BucketSpan {
                length: Some(length),
                ..
            }) if gap == 0 => *length += 1,
            last => {
                let offset = Some(if last.is_some() { gap } else { index });
                let length = Some(1);
                spans.push(BucketSpan { offset, length });
            }
        }
        gap = 0;
        deltas.push(count - before);
        before = count;
    }
    Histogram {
        schema: Some(0),
        zero_threshold: Some(2_f64.powi(powers.first)),
        zero_count: powers.counts.first().copied(),
        spans,
        deltas,
        ..classic
    }
}

fn created(report: &Report, start: Duration) -> Timestamp {
    let time = report.boot_time + start;
    Timestamp {
        seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        nanos: time.subsec_nanos().cast_signed(),
    }
}

fn label_pair((name, value): &Label) -> LabelPair {
    pair(name, value)
}

/// A label, escaped as in the text formats so that labels are equal.
fn pair(name: &str, value: &str) -> LabelPair {
    LabelPair {
        name: name.to_owned(),
        value: distinct(value).into_owned(),
    }
}
