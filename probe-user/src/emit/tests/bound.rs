//! A value above its bound, or over its threshold, is shown and flagged.

use super::{fixture, wide};
use crate::{
    derive::{Report, Value},
    emit::OutputFormat,
};

/// The report of the fixture, with half of each gauge's value as its bound.
fn report() -> Report {
    let mut report = fixture::report();
    for series in &mut report.series {
        if let Ok(Value::Gauge(gauge)) = &mut series.value {
            gauge.exceeded_bound = Some(gauge.value / 2.0);
        }
    }
    report
}

#[test]
fn a_value_above_its_bound_is_shown_and_flagged() {
    for (format, sign) in [
        (
            OutputFormat::Table,
            "the largest possible value: its events do not count the same things",
        ),
        (OutputFormat::Json, "\"exceeded_bound\":"),
        (OutputFormat::Csv, "the largest possible value"),
        (OutputFormat::OpenMetrics, "_exceeded_bound"),
    ] {
        let text = wide(&report(), format);
        assert!(text.contains(sign), "{format:?}: {text}");
        assert!(
            !wide(&fixture::report(), format).contains(sign),
            "{format:?}"
        );
    }
}

#[test]
fn a_value_over_its_threshold_is_shown_and_flagged() {
    let mut report = fixture::report();
    for series in &mut report.series {
        if let Ok(Value::Gauge(gauge)) = &mut series.value {
            gauge.over_threshold = true;
        }
    }
    for (format, sign) in [
        (OutputFormat::Table, "over its threshold"),
        (OutputFormat::Json, "\"over_threshold\":true"),
        (OutputFormat::Csv, "over the metric's threshold"),
    ] {
        let text = wide(&report, format);
        assert!(text.contains(sign), "{format:?}: {text}");
        assert!(
            !wide(&fixture::report(), format).contains(sign),
            "{format:?}"
        );
    }
}
