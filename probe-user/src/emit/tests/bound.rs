//! A value above the largest possible one is shown, and every format says so.

use super::{fixture, wide};
use crate::{
    derive::{Report, Value},
    emit::Format,
};

/// The fixture's report, with a bound of half of what each gauge is.
fn report() -> Report {
    let mut report = fixture::report();
    for series in &mut report.series {
        if let Ok(Value::Gauge(gauge)) = &mut series.value {
            gauge.above_bound = Some(gauge.value / 2.0);
        }
    }
    report
}

#[test]
fn a_value_above_its_bound_is_shown_and_flagged() {
    for (format, sign) in [
        (
            Format::Table,
            "the largest possible value: its events do not count the same things",
        ),
        (Format::Json, "\"above_bound\":"),
        (Format::Csv, "the largest possible value"),
        (Format::OpenMetrics, "_exceeded_bound"),
    ] {
        let said = wide(&report(), format);
        assert!(said.contains(sign), "{format:?}: {said}");
        assert!(
            !wide(&fixture::report(), format).contains(sign),
            "{format:?}"
        );
    }
}
