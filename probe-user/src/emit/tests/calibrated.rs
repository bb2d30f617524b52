//! A share by a calibration has an interval, its error by cause, and what validates it.

use super::{fixture, wide};
use crate::{
    calibration::{MadeOn, PartError},
    derive::{Report, Spread, Value, ValueMethod},
    emit::OutputFormat,
    join::share::Method,
};

/// The report of the fixture, with its shares by a calibration: each with an error of 1 GB/s.
fn report() -> Report {
    let mut report = fixture::report();
    for attributes in &mut report.attributes {
        if let ValueMethod::Apportioned(method) = &mut attributes.method {
            *method = Method::Calibrated(MadeOn::SameType);
        }
    }
    for series in &mut report.series {
        if let Ok(Value::Gauge(gauge)) = &mut series.value
            && matches!(gauge.spread, Spread::CountingOnly(_))
        {
            gauge.spread = Spread::Calibrated(PartError {
                skew: 0.0,
                counting: 0.6,
                calibration: 0.8,
                mixture: 0.0,
                residual: 0.0,
            });
        }
    }
    report
}

#[test]
fn a_share_by_a_calibration_has_its_interval() {
    let not_validated = "shares are not validated here";
    for (format, parts) in [
        (OutputFormat::Table, &["12.5 ±8.0%"][..]),
        (
            OutputFormat::Json,
            &[
                "\"low\":11.5,\"high\":13.5,\"rel_error\":0.08,\"error_by_cause\":{\"skew\":0.0,\
                 \"counting\":0.048,\"calibration\":0.064,\"mixture\":0.0,\"residual\":0.0},\
                 \"validated\":\"calibration of this type of machine\",\"method\":\"calibrated\"",
            ],
        ),
        (
            OutputFormat::Csv,
            &[",11.5,13.5,", "calibration of this type of machine"],
        ),
        (
            OutputFormat::OpenMetrics,
            &[
                "cmem_read_bandwidth_apportioned_lower_bytes_per_second",
                "cmem_read_bandwidth_apportioned_upper_bytes_per_second",
            ],
        ),
    ] {
        let text = wide(&report(), format);
        let before = wide(&fixture::report(), format);
        for part in parts {
            assert!(text.contains(part), "{format:?}: {text}");
            assert!(!before.contains(part), "{format:?}");
        }
        assert!(!text.contains(not_validated), "{format:?}: {text}");
        assert_eq!(
            before.contains(not_validated),
            format == OutputFormat::Table
        );
    }
}
