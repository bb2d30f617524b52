//! A scrape of protocol buffers has the series of a scrape of text, and native histograms.

use super::*;
use crate::emit::{
    Dialect, Exposition,
    openmetrics::tests::{Samples, histogram_samples, read, with_histograms, with_milliseconds},
    tests::{hostile, report},
};

fn decoded(report: &Report) -> Vec<Family> {
    let bytes = Exposition::default().write(report, Dialect::Protobuf);
    let mut rest = bytes.as_slice();
    let mut families = Vec::new();
    while !rest.is_empty() {
        families.push(Family::decode_length_delimited(&mut rest).unwrap());
    }
    families
}

fn samples(families: &[Family]) -> Samples {
    let mut all = Samples::new();
    for family in families {
        for metric in &family.metrics {
            let labels = metric.labels.iter();
            let labels: BTreeMap<String, String> = labels
                .map(|it| (it.name.clone(), it.value.clone()))
                .collect();
            assert_eq!(labels.len(), metric.labels.len(), "{metric:?}");
            match (
                family.of_type(),
                &metric.gauge,
                &metric.counter,
                &metric.histogram,
            ) {
                (Type::Gauge, Some(Gauge { value }), None, None)
                | (Type::Counter, None, Some(Counter { value, .. }), None) => {
                    let twice = all.insert((family.name.clone(), labels), value.unwrap());
                    assert_eq!(twice, None, "{metric:?}");
                }
                (Type::Histogram, None, None, Some(histogram)) => {
                    let buckets = histogram.buckets.iter();
                    all.extend(histogram_samples(
                        (&family.name, &labels),
                        buckets.map(|it| (it.bound.unwrap(), it.cumulative_count.unwrap())),
                        (histogram.sum.unwrap(), histogram.count.unwrap()),
                    ));
                }
                _ => panic!("{metric:?} of {:?}", family.of_type()),
            }
        }
    }
    all
}

#[test]
fn protocol_buffers_have_the_series_of_the_text() {
    for report in [
        report(),
        hostile(),
        with_histograms(report()),
        with_milliseconds(),
    ] {
        let text = Exposition::default().write(&report, Dialect::OpenMetrics);
        let text = read(&String::from_utf8(text).unwrap());
        assert_eq!(samples(&decoded(&report)), text);
        assert!(!text.is_empty());
    }
}

#[test]
fn labels_of_the_configuration_are_on_every_series() {
    let own = [("cluster".to_owned(), "a".to_owned())]
        .into_iter()
        .collect();
    let bytes = Exposition::new(&own).write(&report(), Dialect::Protobuf);
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let family = Family::decode_length_delimited(&mut rest).unwrap();
        let own = pair("cluster", "a");
        assert!(
            family
                .metrics
                .iter()
                .all(|metric| metric.labels.contains(&own))
        );
    }
}

#[test]
fn counters_and_histograms_have_start_times() {
    let report = with_histograms(report());
    let mut began = 0;
    for metric in decoded(&report).iter().flat_map(|family| &family.metrics) {
        let of_counter = metric.counter.map(|it| it.created);
        let of_histogram = metric.histogram.as_ref().map(|it| it.created);
        if let Some(created) = of_counter.or(of_histogram) {
            let created = created.unwrap();
            let seconds = created.seconds.cast_unsigned();
            let start = Duration::new(seconds, created.nanos.cast_unsigned());
            assert!(start >= report.boot_time && start < report.time);
            began += 1;
        }
    }
    assert!(began > 0);
}

/// The counts of native buckets, by the power that ends each.
fn native(histogram: &Histogram) -> BTreeMap<i32, i64> {
    let (mut index, mut count) = (0, 0);
    let mut deltas = histogram.deltas.iter();
    let mut buckets = BTreeMap::new();
    for span in &histogram.spans {
        index += span.offset.unwrap();
        for _ in 0..span.length.unwrap() {
            count += deltas.next().unwrap();
            buckets.insert(index, count);
            index += 1;
        }
    }
    assert_eq!(deltas.next(), None);
    buckets
}

#[test]
fn native_buckets_are_powers_of_two() {
    let families = decoded(&with_histograms(report()));
    let mut metrics = families.iter().flat_map(|family| &family.metrics);
    let histogram = metrics
        .find_map(|metric| metric.histogram.as_ref())
        .unwrap();
    assert_eq!(histogram.schema, Some(0));
    assert_eq!(histogram.zero_threshold, Some(0.125));
    assert_eq!(histogram.zero_count, Some(2));
    // The last bucket has all larger values.
    let expected = [(-2, 5), (0, 3), (3, 1), (4, 11)];
    assert_eq!(native(histogram), BTreeMap::from(expected));
    let all = native(histogram).values().sum::<i64>() + 2;
    assert_eq!(histogram.count, Some(u64::try_from(all).unwrap()));
    // In another unit the buckets would not end at powers of two.
    let in_seconds = derive::Histogram {
        start: Duration::ZERO,
        bounds: vec![1.0],
        counts: vec![1, 2],
        sum: 3.0,
        powers: Some(PowerBuckets {
            first: 0,
            counts: vec![1, 2],
        }),
    };
    assert_eq!(super::histogram(&in_seconds, 1e-9).schema, None);
    assert_eq!(super::histogram(&in_seconds, 1.0).schema, Some(0));
}
