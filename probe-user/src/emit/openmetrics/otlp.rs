//! A report as OTLP metrics: the series of a scrape, with the same names, labels and values.
//!
//! Counters are cumulative, monotonic sums without the suffix `_total`, which a collector adds for
//! Prometheus. Labels are attributes of the data points. The types are those of opentelemetry-proto
//! 1.x, `metrics/v1/metrics.proto`; units are UCUM, as the OpenTelemetry conventions require.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, mem, time::Duration};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
        metric::Data, number_data_point,
    },
    resource::v1::Resource,
};

use super::{
    Aspect, FamilySamples, Label, MetricFamily, MetricKind, attributes, event,
    exposition::scrape_samples, group, info, subject,
};
use crate::{
    derive::{Report, Series, Value},
    emit::printable::distinct,
};

/// One export request to a collector.
pub type OtlpRequest = ExportMetricsServiceRequest;

/// The most points of a request. Receivers reject messages above 4 MiB by default; a point takes
/// some 300 bytes.
const MAX_POINTS: usize = 4_000;

/// Converts reports to requests of one resource.
#[derive(Clone, Debug, Default)]
pub struct OtlpEncoder {
    resource: Resource,
}

/// OTLP attributes of subjects, attributes, groups and events, converted once.
struct CachedAttributes {
    subjects: Vec<Vec<KeyValue>>,
    attributes: Vec<Vec<KeyValue>>,
    groups: Vec<Option<KeyValue>>,
    events: Vec<Option<KeyValue>>,
}

impl OtlpEncoder {
    /// Creates a resource with these labels as attributes, in addition to the service name and
    /// version and the host name.
    #[must_use]
    pub fn new(labels: &BTreeMap<String, String>) -> Self {
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let service = [
            ("service.name", "pmuscope"),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("host.name", host.as_str()),
        ]
        .into_iter();
        let labels = labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        Self {
            resource: Resource {
                attributes: service
                    .chain(labels)
                    .map(|(name, value)| string_attribute(name, value))
                    .collect(),
                ..Resource::default()
            },
        }
    }

    /// A report as requests, each within the size limit of receivers.
    #[must_use]
    pub fn requests(&self, report: &Report) -> Vec<OtlpRequest> {
        let samples = scrape_samples(report);
        let cached = CachedAttributes::new(report);
        let mut requests = Vec::new();
        let mut metrics: Vec<Metric> = info_metrics(report).collect();
        let mut left = MAX_POINTS;
        for (family, of_family) in samples.families.list().iter().zip(&samples.by_family) {
            let mut points: Vec<NumberDataPoint> = of_family
                .iter()
                .flat_map(|(series, number)| points(report, &cached, family, series, *number))
                .collect();
            while !points.is_empty() {
                let rest = points.split_off(points.len().min(left));
                left -= points.len();
                metrics.push(metric(family, points));
                points = rest;
                if left == 0 {
                    requests.push(self.request(mem::take(&mut metrics)));
                    left = MAX_POINTS;
                }
            }
        }
        metrics.extend(absent_values(report, &samples));
        if !metrics.is_empty() {
            requests.push(self.request(metrics));
        }
        requests
    }

    fn request(&self, metrics: Vec<Metric>) -> OtlpRequest {
        let scope = InstrumentationScope {
            name: "pmuscope".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        OtlpRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope),
                    metrics,
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        }
    }
}

impl CachedAttributes {
    fn new(report: &Report) -> Self {
        let all = |labels: Vec<Label>| labels.iter().map(key_value).collect();
        let of = report.attributes.iter();
        Self {
            subjects: report
                .subjects
                .iter()
                .map(|it| subject(report, it))
                .map(all)
                .collect(),
            attributes: of
                .clone()
                .map(|it| attributes(report, it))
                .map(all)
                .collect(),
            groups: of.map(|it| group(it).as_ref().map(key_value)).collect(),
            events: report
                .metrics
                .iter()
                .map(|it| event(it).as_ref().map(key_value))
                .collect(),
        }
    }

    /// The attributes of a series, in the order of the labels of a scrape.
    fn series_attributes(&self, family: &MetricFamily, series: &Series) -> Vec<KeyValue> {
        let at = series.attributes as usize;
        let of_subject = self.subjects[series.subject as usize].iter();
        let mut all: Vec<KeyValue> = of_subject.chain(&self.attributes[at]).cloned().collect();
        if !matches!(family.aspect, Aspect::Enabled | Aspect::Running) {
            all.extend(self.events[series.metric as usize].clone());
        }
        if matches!(
            family.aspect,
            Aspect::Raw | Aspect::Enabled | Aspect::Running
        ) {
            all.extend(self.groups[at].clone());
        }
        all
    }
}

/// The data points of a series: one, or one for each state.
fn points(
    report: &Report,
    cached: &CachedAttributes,
    family: &MetricFamily,
    series: &Series,
    number: f64,
) -> Vec<NumberDataPoint> {
    let attributes = cached.series_attributes(family, series);
    let start = report.total(series).map(|total| total.start);
    let at = |attributes, value| NumberDataPoint {
        attributes,
        start_time_unix_nano: match family.kind {
            MetricKind::Counter => start.map_or(0, |start| unix_nanos(report, start)),
            _ => 0,
        },
        time_unix_nano: nanos(report.time),
        value: Some(match is_integer(family) {
            true => whole(value),
            false => number_data_point::Value::AsDouble(value),
        }),
        ..NumberDataPoint::default()
    };
    match &series.value {
        _ if family.kind == MetricKind::Counter => vec![at(attributes, number * family.factor)],
        Ok(Value::Info(texts)) => {
            let texts = texts
                .iter()
                .map(|(name, value)| string_attribute(name, value));
            vec![at(attributes.into_iter().chain(texts).collect(), 1.0)]
        }
        Ok(Value::State(now, all)) => {
            let of = |state: &&'static str| {
                let mut attributes = attributes.clone();
                attributes.push(string_attribute(&family.name, state));
                at(attributes, f64::from(u8::from(state == now)))
            };
            all.iter().map(of).collect()
        }
        _ => vec![at(attributes, number * family.factor)],
    }
}

fn metric(family: &MetricFamily, data_points: Vec<NumberDataPoint>) -> Metric {
    let data = match family.kind {
        MetricKind::Counter => Data::Sum(Sum {
            data_points,
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        }),
        MetricKind::Gauge | MetricKind::Histogram | MetricKind::Info | MetricKind::State => {
            Data::Gauge(Gauge { data_points })
        }
    };
    Metric {
        name: match family.kind {
            MetricKind::Info => format!("{}_info", family.name),
            _ => family.name.clone(),
        },
        description: family.help.clone(),
        unit: ucum(&family.unit).to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

/// Info metrics of containers and pods.
fn info_metrics(report: &Report) -> impl Iterator<Item = Metric> {
    let families = info::families(report).filter(|(.., all)| !all.is_empty());
    families.map(|(family, help, all)| Metric {
        name: format!("{family}_info"),
        description: help.to_owned(),
        data: Some(Data::Gauge(Gauge {
            data_points: all
                .iter()
                .map(|labels| NumberDataPoint {
                    attributes: labels
                        .iter()
                        .map(|(name, value)| string_attribute(name, value))
                        .collect(),
                    time_unix_nano: nanos(report.time),
                    value: Some(whole(1.0)),
                    ..NumberDataPoint::default()
                })
                .collect(),
        })),
        ..Metric::default()
    })
}

/// The number of series without a value, by reason; None if there are none.
fn absent_values(report: &Report, samples: &FamilySamples<'_>) -> Option<Metric> {
    #[expect(clippy::cast_precision_loss, reason = "a number of series")]
    let point = |(reason, count): (&&'static str, &u64)| NumberDataPoint {
        attributes: vec![string_attribute("reason", reason)],
        time_unix_nano: nanos(report.time),
        value: Some(whole(*count as f64)),
        ..NumberDataPoint::default()
    };
    (!samples.absent.is_empty()).then(|| Metric {
        name: "pmuscope_absent_values".to_owned(),
        description: "Series without a value, by the reason".to_owned(),
        data: Some(Data::Gauge(Gauge {
            data_points: samples.absent.iter().map(point).collect(),
        })),
        ..Metric::default()
    })
}

/// Whether all points of a family are integers. Receivers reject a series that changes its point
/// type.
fn is_integer(family: &MetricFamily) -> bool {
    let counts = matches!(family.aspect, Aspect::Raw | Aspect::Samples) && family.factor == 1.0;
    counts || matches!(family.kind, MetricKind::Info | MetricKind::State)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "it is whole, and as a float it cannot be beyond what is shown"
)]
fn whole(value: f64) -> number_data_point::Value {
    number_data_point::Value::AsInt(value as i64)
}

/// Start of a counter as Unix time in nanoseconds.
fn unix_nanos(report: &Report, start: Duration) -> u64 {
    nanos(report.boot_time + start)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A base unit in UCUM.
fn ucum(unit: &str) -> &str {
    match unit {
        "ratio" => "1",
        "seconds" => "s",
        "bytes" => "By",
        "bytes_per_second" => "By/s",
        "hertz" => "Hz",
        "per_second" => "1/s",
        "per_cycle" => "1/{cycle}",
        "per_instruction" => "1/{instruction}",
        "cpus" => "{cpu}",
        _ => "",
    }
}

fn key_value((name, value): &Label) -> KeyValue {
    string_attribute(name, value)
}

/// An attribute, escaped as in a scrape so that labels are equal.
fn string_attribute(name: &str, value: &str) -> KeyValue {
    KeyValue {
        key: name.to_owned(),
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(distinct(value).into_owned())),
        }),
        ..KeyValue::default()
    }
}
