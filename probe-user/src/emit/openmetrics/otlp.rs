//! A report as OTLP metrics: the series of a scrape, with the same names, labels and values.
//!
//! Counters are cumulative, monotonic sums without the suffix `_total`, which a collector adds for
//! Prometheus. Histograms have the bounds of a scrape's text. Labels are attributes of the data
//! points. The types are those of opentelemetry-proto 1.x, `metrics/v1/metrics.proto`; units are
//! UCUM, as the OpenTelemetry conventions require.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, mem, time::Duration};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
        ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point,
    },
    resource::v1::Resource,
};
use prost::Message;

use super::{CachedLabels, Label, MetricFamily, MetricKind, exposition::scrape_samples, info};
use crate::{
    derive::{self, Report, Series, Value},
    emit::printable::distinct,
};

/// One export request to a collector.
pub type OtlpRequest = ExportMetricsServiceRequest;

/// The most bytes of points in a request. Receivers reject messages above 4 MiB by default; names,
/// units and help texts of metrics take some kilobytes.
const MAX_BYTES: usize = 3 << 20;

/// Converts reports to requests of one resource.
#[derive(Clone, Debug, Default)]
pub struct OtlpEncoder {
    resource: Resource,
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
        let labels = CachedLabels::new(report, |labels| labels.iter().map(key_value).collect());
        let mut requests = Requests {
            encoder: self,
            done: Vec::new(),
            metrics: Vec::new(),
            bytes_left: MAX_BYTES,
        };
        for (family, help, all) in info::families(report) {
            let point = |labels: &Vec<info::InfoLabel>| NumberDataPoint {
                attributes: (labels.iter())
                    .map(|(name, value)| string_attribute(name, value))
                    .collect(),
                time_unix_nano: nanos(report.time),
                value: Some(whole(1.0)),
                ..NumberDataPoint::default()
            };
            let name = format!("{family}_info");
            requests.add(all.iter().map(point), |points| gauge(&name, help, points));
        }
        for (family, of_family) in samples.families.list().iter().zip(&samples.by_family) {
            let attributes = |series: &Series| -> Vec<KeyValue> {
                let parts: [&Vec<KeyValue>; 4] = labels.for_series(family, series);
                parts.into_iter().flatten().cloned().collect()
            };
            let of_family = of_family.iter();
            if family.kind == MetricKind::Histogram {
                let point = |(series, _): &(&Series, f64)| match &series.value {
                    Ok(Value::Histogram(histogram)) => Some(histogram_point(
                        report,
                        family,
                        attributes(series),
                        histogram,
                    )),
                    _ => None,
                };
                requests.add(of_family.filter_map(point), |points| {
                    metric(family, histogram_data(points))
                });
            } else {
                let points = of_family.flat_map(|(series, number)| {
                    points(report, attributes(series), family, series, *number)
                });
                requests.add(points, |points| metric(family, number_data(family, points)));
            }
        }
        // The number of series without a value, by reason.
        if let Some((name, description, all)) = samples.absent_values() {
            let point = |(reason, count): (&str, f64)| NumberDataPoint {
                attributes: vec![string_attribute("reason", reason)],
                time_unix_nano: nanos(report.time),
                value: Some(whole(count)),
                ..NumberDataPoint::default()
            };
            requests.add(all.map(point), |points| gauge(name, description, points));
        }
        if !requests.metrics.is_empty() {
            requests.end();
        }
        requests.done
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

/// The requests of a report, the last of them in progress.
struct Requests<'a> {
    encoder: &'a OtlpEncoder,
    done: Vec<OtlpRequest>,
    metrics: Vec<Metric>,
    /// Bytes of points that the request in progress still takes.
    bytes_left: usize,
}

impl Requests<'_> {
    /// Adds the points of a family. `metric` makes a metric of the points that fit into one
    /// request.
    fn add<T: Message>(
        &mut self,
        points: impl Iterator<Item = T>,
        metric: impl Fn(Vec<T>) -> Metric,
    ) {
        let mut fitting = Vec::new();
        for point in points {
            let bytes = point.encoded_len();
            if bytes > self.bytes_left {
                if !fitting.is_empty() {
                    self.metrics.push(metric(mem::take(&mut fitting)));
                }
                self.end();
            }
            self.bytes_left = self.bytes_left.saturating_sub(bytes);
            fitting.push(point);
        }
        if !fitting.is_empty() {
            self.metrics.push(metric(fitting));
        }
    }

    /// Ends the request in progress.
    fn end(&mut self) {
        let metrics = mem::take(&mut self.metrics);
        self.done.push(self.encoder.request(metrics));
        self.bytes_left = MAX_BYTES;
    }
}

/// The data points of a series: one, or one for each state.
fn points(
    report: &Report,
    attributes: Vec<KeyValue>,
    family: &MetricFamily,
    series: &Series,
    number: f64,
) -> Vec<NumberDataPoint> {
    let start = report.total(series).map(|total| total.start);
    let at = |attributes, value| NumberDataPoint {
        attributes,
        start_time_unix_nano: match family.kind {
            MetricKind::Counter => start.map_or(0, |start| unix_nanos(report, start)),
            _ => 0,
        },
        time_unix_nano: nanos(report.time),
        // Receivers reject a series that changes its point type.
        value: Some(match family.is_whole {
            true => whole(value),
            false => number_data_point::Value::AsDouble(value),
        }),
        ..NumberDataPoint::default()
    };
    match &series.value {
        _ if family.kind == MetricKind::Counter => vec![at(attributes, number)],
        Ok(Value::Info(texts)) => {
            let texts = texts
                .iter()
                .map(|(name, value)| string_attribute(name, value));
            vec![at(attributes.into_iter().chain(texts).collect(), 1.0)]
        }
        Ok(Value::State(now, all)) => {
            let point = |state: &&'static str| {
                let mut attributes = attributes.clone();
                attributes.push(string_attribute(&family.name, state));
                at(attributes, f64::from(u8::from(state == now)))
            };
            all.iter().map(point).collect()
        }
        _ => vec![at(attributes, number)],
    }
}

/// The data point of a histogram.
fn histogram_point(
    report: &Report,
    family: &MetricFamily,
    attributes: Vec<KeyValue>,
    histogram: &derive::Histogram,
) -> HistogramDataPoint {
    let bounds = histogram.bounds.iter();
    HistogramDataPoint {
        attributes,
        start_time_unix_nano: unix_nanos(report, histogram.start),
        time_unix_nano: nanos(report.time),
        count: histogram.counts.iter().sum(),
        sum: Some(histogram.sum * family.factor),
        bucket_counts: histogram.counts.clone(),
        explicit_bounds: bounds.map(|bound| bound * family.factor).collect(),
        ..HistogramDataPoint::default()
    }
}

fn histogram_data(data_points: Vec<HistogramDataPoint>) -> Data {
    Data::Histogram(Histogram {
        data_points,
        aggregation_temporality: AggregationTemporality::Cumulative.into(),
    })
}

fn number_data(family: &MetricFamily, data_points: Vec<NumberDataPoint>) -> Data {
    match family.kind {
        MetricKind::Counter => Data::Sum(Sum {
            data_points,
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        }),
        _ => Data::Gauge(Gauge { data_points }),
    }
}

fn metric(family: &MetricFamily, data: Data) -> Metric {
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

fn gauge(name: &str, description: &str, data_points: Vec<NumberDataPoint>) -> Metric {
    Metric {
        name: name.to_owned(),
        description: description.to_owned(),
        data: Some(Data::Gauge(Gauge { data_points })),
        ..Metric::default()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "it is whole, and casts from floats saturate"
)]
fn whole(value: f64) -> number_data_point::Value {
    number_data_point::Value::AsInt(value as i64)
}

/// The start of a counter, as Unix time in nanoseconds.
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
