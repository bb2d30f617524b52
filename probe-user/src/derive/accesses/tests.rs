//! Series of loads and stores, with and without a known number of operations.

use probe_common::spe::{Source, SpeRow};

use super::*;
use crate::{
    derive::Subject, event::AccessScaling, snapshot::SampledEventHealth, window::SampleKind,
};

fn counts(samples: u32, cycles: u16, walks: u32) -> SampleCounts {
    let mut counts = SampleCounts::default();
    let weight = 1000.0;
    let latency = f64::from(cycles) * weight;
    counts.samples = u64::from(samples);
    counts.walks = f64::from(walks) * weight;
    counts.cycles = latency * f64::from(samples);
    counts.squares = f64::from(cycles) * latency * f64::from(samples);
    counts.histogram[SpeRow::bucket(cycles)] = weight * f64::from(samples);
    counts.operations = weight * f64::from(samples);
    counts.variance = 1e6 * f64::from(samples);
    counts
}

fn usage() -> SampleUsage {
    let spe = SampleKind::spe;
    [
        (
            spe(Class::Load, MemLevel::By(Source::L1d)),
            counts(900, 4, 0),
        ),
        (
            spe(Class::Load, MemLevel::By(Source::Remote)),
            counts(100, 600, 50),
        ),
        (spe(Class::Store, MemLevel::Unknown), counts(20, 8, 2)),
    ]
    .into()
}

/// A window with an event of memory accesses, whose counter the kernel may have stopped `limited`
/// times.
fn by_event(accesses: AccessScaling, limited: u64) -> SampleWindow {
    SampleWindow {
        events: vec![EventWindow {
            health: SampledEventHealth {
                accesses: Some(accesses),
                limited,
                ..SampledEventHealth::default()
            },
            ever_limited: limited > 0,
            ..EventWindow::default()
        }],
        ..SampleWindow::default()
    }
}

#[test]
fn loads_and_stores_are_estimated_separately() {
    let mut report = Report::default();
    report.clear(Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let accesses = AccessMetrics::new(&mut report, None);
    let subject = report.subject(Subject::Machine);
    let row = Gained::first(usage(), Duration::from_secs(3));
    accesses.add_row(&mut report, subject, &row, &usage());
    let value = |metric: &str, operation, source| {
        let mut series = report.find_series(&Subject::Machine, metric);
        let found = series.find(|series| {
            let attributes = report.attributes(series);
            (attributes.operation, attributes.source) == (Some(operation), source)
        });
        found.cloned()
    };
    let number = |metric, source| {
        let series = value(metric, Class::Load, source).unwrap();
        series.estimate().unwrap().value
    };
    let operations = value("memory_accesses", Class::Load, None).unwrap();
    let total = report.total(&operations).unwrap();
    assert_eq!((total.start.as_secs(), total.raw), (3, 1000));
    assert!((total.estimate.value - 1e6).abs() < 1e-6);
    assert!(total.estimate.estimated_interval().is_some());
    let operations = *operations.counter().unwrap();
    assert_eq!(operations.raw, 1000);
    assert!((operations.estimate.value - 1e6).abs() < 1e-6);
    let (low, high) = operations.estimate.estimated_interval().unwrap();
    assert!(low < 1e6 && high > 1e6);
    assert!((number("memory_access_latency_mean_cycles", None) - 63.6).abs() < 1e-9);
    assert!((number("memory_access_tlb_walk_share", None) - 0.05).abs() < 1e-12);
    assert!((number("memory_access_remote_share", None) - 0.1).abs() < 1e-12);
    let l1d = Some(MemLevel::By(Source::L1d));
    assert!((number("memory_access_source_share", l1d) - 0.9).abs() < 1e-12);
    // Stores have no data source.
    assert_eq!(
        value("memory_access_remote_share", Class::Store, None),
        None
    );
    let not_said = Some(MemLevel::Unknown);
    assert!(value("memory_accesses", Class::Store, not_said).is_some());
    assert_eq!(mem_level_name(MemLevel::Unknown), "not_said");
}

/// Each kind of core has its own event of loads.
#[test]
fn loads_of_two_events_are_one_series() {
    let mut report = Report::default();
    report.clear(Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let accesses = AccessMetrics::new(&mut report, None);
    let subject = report.subject(Subject::Machine);
    let level = MemLevel::By(Source::L2);
    let kind = |event| SampleKind::event(event, Some((Class::Load, level)));
    let usage = [(kind(0), counts(30, 4, 0)), (kind(1), counts(70, 4, 0))].into();
    let row = Gained::first(usage, Duration::ZERO);
    accesses.add_row(&mut report, subject, &row, &row.delta);
    let of_level = report
        .find_series(&Subject::Machine, "memory_accesses")
        .filter(|series| report.attributes(series).source == Some(level));
    let raw: Vec<u64> = of_level
        .map(|series| series.counter().unwrap().raw)
        .collect();
    assert_eq!(raw, [100]);
}

/// If the number of operations is unknown, metrics that need it have no value.
#[test]
fn loads_chosen_by_a_core_have_samples_and_no_operations() {
    let mut report = Report::default();
    report.clear(Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let window = by_event(AccessScaling::Tagged, 0);
    let accesses = AccessMetrics::new(&mut report, Some(&window));
    let subject = report.subject(Subject::Machine);
    let row = Gained::first(usage(), Duration::from_secs(3));
    accesses.add_row(&mut report, subject, &row, &usage());
    let value = |metric: &str, operation| {
        let mut series = report.find_series(&Subject::Machine, metric);
        let found = series.find(|series| {
            let attributes = report.attributes(series);
            (attributes.operation, attributes.source) == (Some(operation), None)
        });
        found.map(|series| series.value.clone())
    };
    let no_number = Err(Reason::NoValue(NoValue::ChosenByCore));
    assert_eq!(value("memory_accesses", Class::Load), Some(no_number));
    let Some(Ok(Value::Counter(samples))) = value(SAMPLES, Class::Load) else {
        panic!("no {SAMPLES}");
    };
    assert_eq!(
        (samples.raw, samples.estimate.estimated_interval()),
        (1000, None)
    );
    assert!(matches!(
        value("memory_access_remote_share", Class::Load),
        Some(Ok(_))
    ));
    assert_eq!(value("memory_access_latency_cycles", Class::Load), None);
    // Stores are counted.
    let stores = value("memory_accesses", Class::Store);
    assert!(matches!(stores, Some(Ok(Value::Counter(_)))), "{stores:?}");
    assert_eq!(value(SAMPLES, Class::Store), None);
    // Only SPE records when an operation was issued.
    assert_eq!(
        value("memory_access_issue_latency_mean_cycles", Class::Store),
        None
    );
    assert!(value("memory_access_latency_cycles", Class::Store).is_some());
}

/// Totals lack the operations missed while the counter was stopped.
#[test]
fn totals_have_no_interval_once_a_counter_may_have_stopped() {
    for ever_limited in [false, true] {
        let mut report = Report::default();
        report.clear(Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let window = by_event(AccessScaling::Counted, ever_limited.into());
        let accesses = AccessMetrics::new(&mut report, Some(&window));
        let subject = report.subject(Subject::Machine);
        let row = Gained::first(usage(), Duration::from_secs(3));
        accesses.add_row(&mut report, subject, &row, &usage());
        let mut all = 0;
        for series in report.find_series(&Subject::Machine, "memory_accesses") {
            let (value, total) = (series.estimate().unwrap(), report.total(series).unwrap());
            assert!(value.estimated_interval().is_some());
            assert_eq!(total.estimate.estimated_interval().is_some(), !ever_limited);
            all += 1;
        }
        assert!(all > 0);
    }
}

/// Samples of other rows do not bound the rare accesses of a row, however short or long their
/// latencies are.
#[test]
fn a_mean_does_not_depend_on_neighbours() {
    let latency = |everyone: &SampleUsage| {
        let mut report = Report::default();
        report.clear(Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let accesses = AccessMetrics::new(&mut report, None);
        let subject = report.subject(Subject::Machine);
        let row = Gained::first(usage(), Duration::from_secs(3));
        accesses.add_row(&mut report, subject, &row, everyone);
        let all: Vec<_> = report
            .find_series(&Subject::Machine, "memory_access_latency_mean_cycles")
            .map(|series| series.value.clone())
            .collect();
        // Loads and their two memory levels have values; stores have too few samples.
        assert_eq!(all.iter().filter(|value| value.is_ok()).count(), 3);
        all
    };
    let alone = latency(&usage());
    for cycles in [4, 400, 60_000] {
        let served = MemLevel::By(if cycles == 4 {
            Source::L1d
        } else {
            Source::Dram
        });
        let of_others = counts(20_000, cycles, 0);
        let others = SampleUsage::from([(SampleKind::spe(Class::Load, served), of_others)]);
        assert_eq!(latency(&others), alone, "{cycles}");
    }
}
