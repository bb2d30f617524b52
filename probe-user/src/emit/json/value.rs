//! Values: numbers with their errors and methods, and cells of lists.

use serde::{
    Serialize, Serializer,
    ser::{Error as _, SerializeMap},
};

use super::{DisplayString, row::serialize_subject};
use crate::{
    derive::{Attributes, Estimate, Report, Series, Spread, TableCell, Value, ValueMethod},
    join::share::Validation,
};

/// The fields of the value of a series in its window; null and a reason if it is missing.
pub(super) struct SeriesFields<'a> {
    series: &'a Series,
    unit: &'a str,
    attributes: &'a Attributes,
}

impl<'a> SeriesFields<'a> {
    pub(super) fn new(report: &'a Report, series: &'a Series) -> Self {
        Self {
            series,
            unit: &report.metric(series).unit,
            attributes: report.attributes(series),
        }
    }

    pub(super) fn write_fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let estimate = match &self.series.value {
            Ok(value) => value.estimate(),
            Err(reason) => {
                map.serialize_entry("value", &())?;
                write_unit(map, self.unit)?;
                return map.serialize_entry("reason", &DisplayString(reason));
            }
        };
        let Some(estimate) = estimate else {
            return Err(M::Error::custom("a row has numbers only"));
        };
        map.serialize_entry("value", &estimate.value)?;
        let counter = self.series.counter();
        if let Some(counter) = counter {
            map.serialize_entry("raw", &counter.raw)?;
        }
        write_unit(map, self.unit)?;
        map.serialize_entry("running", &estimate.running_ratio)?;
        if let Some(time) = counter.and_then(|counter| counter.time) {
            map.serialize_entry("enabled_ns", &time.enabled)?;
            map.serialize_entry("running_ns", &time.running)?;
        }
        if let Some(group) = self.attributes.group {
            map.serialize_entry("group", &group)?;
        }
        write_interval(map, estimate)?;
        if let Some(bound) = estimate.exceeded_bound {
            map.serialize_entry("exceeded_bound", &bound)?;
        }
        if estimate.over_threshold {
            map.serialize_entry("over_threshold", &true)?;
        }
        let method = &self.attributes.method;
        if let Spread::Calibrated(error) = estimate.spread {
            let relative = error.scale(estimate.value.recip());
            map.serialize_entry("rel_error", &relative.all())?;
            map.serialize_entry("error_by_cause", &relative)?;
        }
        // Shares state the error even if it is 0 or unknown.
        match estimate.counting_error() {
            _ if matches!(estimate.spread, Spread::Calibrated(_)) => {}
            error if method.is_share() => map.serialize_entry("counting_error", &error)?,
            Some(error) if error > 0.0 => map.serialize_entry("counting_error", &error)?,
            _ => {}
        }
        match method.validation() {
            None => {}
            Some(Validation::Nothing) => map.serialize_entry("validated", &false)?,
            Some(by) => map.serialize_entry("validated", &DisplayString(&by))?,
        }
        if let Some(others) = method.counts_also() {
            map.serialize_entry("counts_also", others)?;
        }
        match method {
            ValueMethod::Counted => Ok(()),
            method => map.serialize_entry("method", &DisplayString(method)),
        }
    }
}

fn write_unit<M: SerializeMap>(map: &mut M, unit: &str) -> Result<(), M::Error> {
    match unit {
        "" => Ok(()),
        unit => map.serialize_entry("unit", unit),
    }
}

fn write_interval<M: SerializeMap>(map: &mut M, estimate: &Estimate) -> Result<(), M::Error> {
    if let Some((low, high)) = estimate.estimated_interval() {
        map.serialize_entry("low", &low)?;
        map.serialize_entry("high", &high)?;
    }
    Ok(())
}

impl Serialize for SeriesFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.write_fields(&mut map)?;
        map.end()
    }
}

/// The value of a self-counter: a number or a text, null if it was not measured.
pub(super) struct SelfValue<'a>(pub(super) &'a Series);

impl Serialize for SelfValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0.value {
            Ok(Value::Counter(counter)) => counter.raw.serialize(serializer),
            Ok(Value::Gauge(gauge)) => write_number(gauge.value, serializer),
            Ok(Value::State(state, _)) => state.serialize(serializer),
            Ok(Value::Info(texts)) => serializer.collect_map(texts.iter().map(|(a, b)| (a, b))),
            Ok(Value::Histogram(_)) | Err(_) => serializer.serialize_none(),
        }
    }
}

/// Writes a number, without decimals if it is whole.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is whole and below 2^53"
)]
fn write_number<S: Serializer>(number: f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.fract() == 0.0 && (0.0..9e15).contains(&number) {
        (number as u64).serialize(serializer)
    } else {
        number.serialize(serializer)
    }
}

/// A cell of a list of this report.
pub(super) struct CellValue<'a>(pub(super) &'a Report, pub(super) &'a TableCell);

impl Serialize for CellValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.1 {
            TableCell::Number(number) | TableCell::Count(number) => number.serialize(serializer),
            TableCell::Text(text) => text.serialize(serializer),
            TableCell::Owner(owner) => {
                let mut map = serializer.serialize_map(None)?;
                serialize_subject(&mut map, self.0, owner)?;
                map.end()
            }
            TableCell::Address(address) => serializer.collect_str(&format_args!("{address:#x}")),
            TableCell::Estimate(None) => serializer.serialize_none(),
            TableCell::Estimate(Some(estimate)) => {
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("value", &estimate.value)?;
                write_interval(&mut map, estimate)?;
                map.end()
            }
        }
    }
}
