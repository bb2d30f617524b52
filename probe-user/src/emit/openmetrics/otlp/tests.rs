//! A collector receives the same series as a scrape.

use std::{mem::discriminant, sync::Arc};

use super::*;
use crate::{
    emit::{
        Dialect, Exposition,
        openmetrics::tests::{
            Samples, histogram_samples, read, with_histograms, with_milliseconds,
        },
        tests::{hostile, report},
    },
    join::Entity,
    names::{RuntimeNames, runtime_names::Container},
};

fn string(attribute: &KeyValue) -> (String, String) {
    match attribute.value.as_ref().and_then(|it| it.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => (attribute.key.clone(), text.clone()),
        other => panic!("{}: {other:?}", attribute.key),
    }
}

fn metrics(request: &OtlpRequest) -> &[Metric] {
    let [resource] = request.resource_metrics.as_slice() else {
        panic!("{} resources", request.resource_metrics.len())
    };
    &resource.scope_metrics[0].metrics
}

fn points(metric: &Metric) -> &[NumberDataPoint] {
    match metric.data.as_ref().expect("data") {
        Data::Sum(sum) => {
            assert!(sum.is_monotonic, "{}", metric.name);
            assert_eq!(
                sum.aggregation_temporality,
                i32::from(AggregationTemporality::Cumulative)
            );
            &sum.data_points
        }
        Data::Gauge(gauge) => &gauge.data_points,
        Data::Histogram(_) => &[],
        other => panic!("{other:?}"),
    }
}

fn histograms(metric: &Metric) -> &[HistogramDataPoint] {
    match metric.data.as_ref().expect("data") {
        Data::Histogram(histogram) => {
            let cumulative = i32::from(AggregationTemporality::Cumulative);
            assert_eq!(histogram.aggregation_temporality, cumulative);
            &histogram.data_points
        }
        _ => &[],
    }
}

#[expect(clippy::cast_precision_loss, reason = "it is below 2^53")]
fn value(point: &NumberDataPoint) -> f64 {
    match point.value.expect("a value") {
        number_data_point::Value::AsInt(whole) => whole as f64,
        number_data_point::Value::AsDouble(number) => number,
    }
}

/// The samples of requests, named as by the Prometheus exporter of a collector.
fn received(requests: &[OtlpRequest]) -> Samples {
    let mut all = Samples::new();
    for metric in requests.iter().flat_map(metrics) {
        let suffix = match metric.data {
            Some(Data::Sum(_)) => "_total",
            _ => "",
        };
        for point in points(metric) {
            let labels = point.attributes.iter().map(string).collect();
            let name = format!("{}{suffix}", metric.name);
            let twice = all.insert((name, labels), value(point));
            assert_eq!(
                twice, None,
                "{metric:?} has two points with the same labels"
            );
        }
        for point in histograms(metric) {
            let labels = point.attributes.iter().map(string).collect();
            let up_to = point.bucket_counts.iter().scan(0, |sum, count| {
                *sum += count;
                Some(*sum)
            });
            all.extend(histogram_samples(
                (&metric.name, &labels),
                point.explicit_bounds.iter().copied().zip(up_to),
                (point.sum.unwrap(), point.count),
            ));
        }
    }
    all
}

fn scraped(report: &Report) -> Samples {
    let text = Exposition::default().write(report, Dialect::OpenMetrics);
    read(&String::from_utf8(text).unwrap())
}

#[test]
fn a_collector_gets_what_a_scrape_shows() {
    for report in [
        report(),
        hostile(),
        with_histograms(report()),
        with_milliseconds(),
    ] {
        let requests = OtlpEncoder::default().requests(&report);
        assert_eq!(received(&requests), scraped(&report));
        assert!(!requests.is_empty());
    }
}

#[test]
fn counters_have_start_times_and_all_points_the_time_of_the_window() {
    let mut report = with_histograms(report());
    // The wall clock was set since counting began.
    report.boot_time = Duration::from_secs(1_600_000_000);
    let requests = OtlpEncoder::default().requests(&report);
    let all: Vec<_> = requests.iter().flat_map(metrics).collect();
    let end = u64::try_from(report.time.as_nanos()).unwrap();
    let start_nanos =
        |start: Duration| u64::try_from((report.boot_time + start).as_nanos()).unwrap();
    let starts: Vec<u64> = report
        .totals
        .iter()
        .map(|it| start_nanos(it.start))
        .collect();
    let mut counters = 0;
    for metric in all {
        for point in histograms(metric) {
            assert_eq!(point.time_unix_nano, end, "{}", metric.name);
            assert!(point.start_time_unix_nano < end);
        }
        for point in points(metric) {
            assert_eq!(point.time_unix_nano, end, "{}", metric.name);
            if matches!(metric.data, Some(Data::Sum(_))) {
                counters += 1;
                let began = point.start_time_unix_nano;
                assert!(starts.contains(&began), "{}: {began}", metric.name);
            }
        }
    }
    assert!(counters > 0);
}

/// Some receivers reject a series that changes its point type.
#[test]
fn points_of_a_metric_are_of_one_type_whatever_their_values() {
    let mut types = BTreeMap::new();
    let mut whole = report();
    for series in &mut whole.series {
        match &mut series.value {
            Ok(Value::Gauge(estimate)) => estimate.value = 2.0,
            Ok(Value::Counter(counter)) => counter.estimate.value = 2.0,
            _ => {}
        }
    }
    for total in &mut whole.totals {
        total.estimate.value = 2.0;
    }
    for report in [report(), whole, hostile()] {
        for metric in OtlpEncoder::default()
            .requests(&report)
            .iter()
            .flat_map(metrics)
        {
            for point in points(metric) {
                let type_ = discriminant(&point.value.unwrap());
                let first = *types.entry(metric.name.clone()).or_insert(type_);
                assert_eq!(type_, first, "{}", metric.name);
            }
        }
    }
}

/// The scale of an event may have a fraction, as that of `power/energy-pkg/` has.
#[test]
fn scaled_counts_keep_their_fraction() {
    let mut report = report();
    let is_plain = |metric: &derive::MetricInfo| metric.is_event() && metric.unit.is_empty();
    let plain = report.metrics.iter().position(is_plain).unwrap();
    // Another event of the same unit, and so of the same metric.
    let scaled = report.add_metric(derive::MetricInfo {
        name: "scaled".to_owned(),
        counting: derive::CounterSource::Event(2.0_f64.powi(-20)),
        ..report.metrics[plain].clone()
    });
    let is_of_plain = |series: &Series| series.metric as usize == plain;
    let at = report.series.iter().position(is_of_plain).unwrap();
    let series = Series {
        metric: scaled,
        ..report.series[at].clone()
    };
    report.series.insert(at, series);
    let requests = OtlpEncoder::default().requests(&report);
    assert_eq!(received(&requests), scraped(&report));
    let all = requests.iter().flat_map(metrics);
    let counts = all.filter(|metric| metric.name == "pmuscope_events");
    let values: Vec<_> = counts.flat_map(points).map(|point| point.value).collect();
    let is_fraction = |value: &f64| value.fract() != 0.0;
    let doubles = values.iter().map(|value| match value.unwrap() {
        number_data_point::Value::AsDouble(value) => value,
        other => panic!("{other:?} among {values:?}"),
    });
    let (fractions, whole): (Vec<_>, Vec<_>) = doubles.partition(is_fraction);
    assert!(!fractions.is_empty() && !whole.is_empty(), "{values:?}");
}

#[test]
fn labels_of_the_configuration_are_attributes_of_the_resource() {
    let labels = [("cluster".to_owned(), "a \"b\"\n".to_owned())];
    let requests = OtlpEncoder::new(&labels.into_iter().collect()).requests(&report());
    let resource = requests[0].resource_metrics[0].resource.as_ref().unwrap();
    let attributes: BTreeMap<_, _> = resource.attributes.iter().map(string).collect();
    assert_eq!(attributes["service.name"], "pmuscope");
    assert_eq!(attributes["cluster"], "a \"b\"\\n");
    assert!(!attributes["host.name"].is_empty());
}

/// Receivers reject messages above 4 MiB, and users choose how long names are.
#[test]
fn no_request_is_too_large() {
    let mut report = with_histograms(report());
    let histogram = |series: &&Series| matches!(series.value, Ok(Value::Histogram(_)));
    let first = report.series.iter().find(histogram).unwrap().clone();
    let first = [first, report.series[0].clone()];
    for copy in 0..6_000_u32 {
        let path = format!("/{copy}{}", "\u{1b}".repeat(500));
        let entity = Entity::Cgroup(path.into());
        let subject = report.subject(derive::Subject::Entity(entity));
        let copies = first.iter().cloned();
        report
            .series
            .extend(copies.map(|series| Series { subject, ..series }));
    }
    // Labels of containers are long too.
    let mut described = RuntimeNames::default();
    for number in 0..4_000 {
        let id: Arc<str> = format!("{number:064x}").into();
        let container = Container {
            name: "n".repeat(1_000),
            ..Container::default()
        };
        described.containers.insert(id.clone(), container.into());
        report.subject(derive::Subject::Entity(Entity::Container { id, pod: None }));
    }
    report.described = Arc::new(described);
    let requests = OtlpEncoder::default().requests(&report);
    assert!(requests.len() > 1);
    for request in &requests {
        let size = request.encoded_len();
        assert!(size < 4 << 20, "{size} bytes");
    }
    assert_eq!(received(&requests), scraped(&report));
}
