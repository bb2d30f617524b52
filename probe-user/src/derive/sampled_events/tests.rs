//! Values of owners without samples, shares with their errors, and warnings.

use super::*;
use crate::{snapshot::SampledEventHealth, window::SampleKind};

fn counts(samples: u64) -> SampleCounts {
    SampleCounts {
        samples,
        operations: 1000.0 * float(samples),
        variance: 1e6 * float(samples),
        ..SampleCounts::default()
    }
}

/// Samples with these periods.
fn with_periods(periods: &[f64]) -> SampleCounts {
    SampleCounts {
        samples: periods.len() as u64,
        operations: periods.iter().sum(),
        variance: periods.iter().map(|period| period * period).sum(),
        ..SampleCounts::default()
    }
}

#[test]
fn an_event_without_a_sample_has_an_upper_end_or_a_reason() {
    // `before`, `now`: the periods of other owners' samples in earlier windows, and in this one.
    let none = |period, counted, [enabled, running]: [u64; 2], [before, now]: [&[f64]; 2]| {
        let mut window = SampleWindow {
            events: vec![EventWindow {
                health: SampledEventHealth {
                    name: "cycles".to_owned(),
                    period,
                    ..SampledEventHealth::default()
                },
                gained: EventGain {
                    counted,
                    time: RunningTime { enabled, running },
                    ..EventGain::default()
                },
                ..EventWindow::default()
            }],
            ..SampleWindow::default()
        };
        let all = [before, now].concat();
        let kind = SampleKind::event(0, None);
        window.total.delta.insert(kind, with_periods(now));
        window.total.total.insert(kind, with_periods(&all));
        let events = SampledEvents {
            window: &window,
            metrics: Vec::new(),
            attributes: 0,
        };
        events
            .without_samples(0)
            .map(|none| (none.value, none.high))
    };
    let zero_limit = statistics::unseen_limit();
    let (nobody, few): (_, &[f64]) = ([&[][..], &[]], &[10.0, 30.0]);
    assert_eq!(
        none(Some(500), 7, [9, 9], nobody),
        Ok((0.0, 500.0 * zero_limit))
    );
    assert_eq!(none(None, 7, [9, 9], nobody), Ok((0.0, 7.0)));
    // On the PMU for half of the time.
    assert_eq!(none(None, 7, [10, 5], nobody), Ok((0.0, 14.0)));
    // One event in four is in the sample of 10; the others are in the sample of 30.
    assert_eq!(
        none(None, 7, [9, 9], [few, few]),
        Ok((0.0, 25.0 * zero_limit))
    );
    // The period has changed since.
    assert_eq!(
        none(Some(800), 7, [9, 9], [few, &[]]),
        Ok((0.0, 800.0 * zero_limit))
    );
    assert_eq!(none(None, 7, [9, 9], [few, &[]]), Ok((0.0, 7.0)));
    assert_eq!(none(Some(500), 0, [9, 9], nobody), Err(Reason::NotMeasured));
    assert_eq!(
        none(Some(500), 0, [9, 9], [few, &[]]),
        Ok((0.0, 20.0 * zero_limit))
    );
    let never = NoValue::NeverRan("cycles".to_owned());
    assert_eq!(
        none(Some(500), 0, [9, 0], [few, &[]]),
        Err(Reason::NoValue(never))
    );
}

#[test]
fn code_without_a_file_is_an_address_of_its_process() {
    let spot = |module: Option<&str>, tgid| Hotspot {
        entity: Entity::System,
        event: 0,
        page: false,
        function: None,
        module: module.map(Into::into),
        build_id: None,
        address: 0x7f00,
        tgid,
    };
    assert_eq!(location(&spot(Some("[jit]"), 12)), "0x7f00 of process 12");
    assert_eq!(location(&spot(None, 12)), "0x7f00 of process 12");
    assert_eq!(location(&spot(Some("/bin/a"), 0)), "+0x7f00");
}

#[test]
fn dropped_samples_widen_the_upper_end() {
    let at = HotspotCounts {
        samples: 40,
        events: 40_000.0,
    };
    let kept = |samples| HotspotCounts {
        samples,
        events: 1000.0 * float(samples),
    };
    let whole = share(at, kept(100), &counts(100)).unwrap();
    assert!((whole.value - 0.4).abs() < 1e-12);
    let (low, high) = whole.estimated_interval().unwrap();
    assert!(
        (low - 0.3094).abs() < 1e-3 && (high - 0.4980).abs() < 1e-3,
        "{low} {high}"
    );
    // 20 of its 100 samples have no address.
    let (same, wider) = share(at, kept(80), &counts(100))
        .unwrap()
        .estimated_interval()
        .unwrap();
    assert!((same - low).abs() < 1e-12 && (wider - high - 0.2).abs() < 1e-12);
    assert_eq!(share(HotspotCounts::default(), kept(0), &counts(0)), None);
    // The row itself has 20 of 100 samples: the map of rows had no space for the others.
    let shares = [40, 60].map(|samples| share(kept(samples), kept(100), &counts(20)));
    let sum: f64 = shares.into_iter().map(|share| share.unwrap().value).sum();
    assert!((sum - 1.0).abs() < 1e-12, "{sum}");
}

/// 400 samples of a period of 1,000, and a sample of 70,000 in another function.
#[test]
fn a_heavy_sample_counts_as_one_sample() {
    let mut row = counts(400);
    row.samples += 1;
    row.operations += 70_000.0;
    row.variance += 70_000.0 * 70_000.0;
    let heavy = HotspotCounts {
        samples: 1,
        events: 70_000.0,
    };
    let kept = HotspotCounts {
        samples: 401,
        events: 470_000.0,
    };
    let share = share(heavy, kept, &row).unwrap();
    let (low, high) = share.estimated_interval().unwrap();
    // It may occur three times as often, or hardly ever: a Poisson count of 1 has the limits 0.03
    // and 5.6.
    assert!(low < 0.2 * share.value && high > 3.0 * share.value);
}

#[test]
fn missed_samples_above_one_percent_are_reported() {
    let event = |name: &str, gained| EventWindow {
        health: SampledEventHealth {
            name: name.to_owned(),
            ..SampledEventHealth::default()
        },
        gained,
        ..EventWindow::default()
    };
    let gained = |missed, due| EventGain {
        missed,
        due,
        ..EventGain::default()
    };
    let window = SampleWindow {
        events: vec![
            event("cycles", gained(1, 100)),
            event("cpu-clock", gained(20, 200)),
        ],
        ..SampleWindow::default()
    };
    let lines = warnings(&window);
    assert_eq!(lines.len(), 1);
    let expected =
        "cpu-clock: by the event's count 200 samples were due; 20 of them were not taken";
    assert!(lines[0].starts_with(expected), "{lines:?}");
    // The kernel may have throttled the counter of `cycles`.
    let limited = EventGain {
        limited: true,
        ..EventGain::default()
    };
    let window = SampleWindow {
        events: vec![event("cycles", limited)],
        ..SampleWindow::default()
    };
    let lines = warnings(&window);
    assert!(
        lines.len() == 1 && lines[0].contains("perf_event_max_sample_rate"),
        "{lines:?}"
    );
}
