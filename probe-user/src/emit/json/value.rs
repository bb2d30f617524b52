//! Values: numbers with what is known of them, and cells of lists.

use serde::{
    Serialize, Serializer,
    ser::{Error as _, SerializeMap},
};

use super::{Display, row::who};
use crate::derive::{Attributes, Cell, Estimate, Method, Report, Series, Value};

/// The value of a series in its window. One that could not be had is null, with its reason.
pub(super) struct Shown<'a> {
    series: &'a Series,
    unit: &'a str,
    attributes: &'a Attributes,
}

impl<'a> Shown<'a> {
    pub(super) fn of(report: &'a Report, series: &'a Series) -> Self {
        Self {
            series,
            unit: &report.metric(series).unit,
            attributes: report.attributes(series),
        }
    }

    pub(super) fn fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let estimate = match &self.series.value {
            Ok(value) => value.estimate(),
            Err(reason) => {
                map.serialize_entry("value", &())?;
                unit(map, self.unit)?;
                return map.serialize_entry("reason", &Display(reason));
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
        unit(map, self.unit)?;
        map.serialize_entry("running", &estimate.live)?;
        if let Some(time) = counter.and_then(|counter| counter.time) {
            map.serialize_entry("enabled_ns", &time.enabled)?;
            map.serialize_entry("running_ns", &time.running)?;
        }
        if let Some(group) = self.attributes.group {
            map.serialize_entry("group", &group)?;
        }
        interval(map, estimate)?;
        if let Some(bound) = estimate.above_bound {
            map.serialize_entry("above_bound", &bound)?;
        }
        let method = &self.attributes.method;
        // Shares say too that they are exact, or that it is not known how exact.
        match estimate.counting_error() {
            error if method.is_share() => map.serialize_entry("counting_error", &error)?,
            Some(error) if error > 0.0 => map.serialize_entry("counting_error", &error)?,
            _ => {}
        }
        if method.is_not_validated() {
            map.serialize_entry("validated", &false)?;
        }
        if let Some(but) = method.but() {
            map.serialize_entry("counts_also", but)?;
        }
        match method {
            Method::Counted => Ok(()),
            method => map.serialize_entry("method", &Display(method)),
        }
    }
}

fn unit<M: SerializeMap>(map: &mut M, unit: &str) -> Result<(), M::Error> {
    match unit {
        "" => Ok(()),
        unit => map.serialize_entry("unit", unit),
    }
}

fn interval<M: SerializeMap>(map: &mut M, estimate: &Estimate) -> Result<(), M::Error> {
    if let Some((low, high)) = estimate.sampled_interval() {
        map.serialize_entry("low", &low)?;
        map.serialize_entry("high", &high)?;
    }
    Ok(())
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.fields(&mut map)?;
        map.end()
    }
}

/// A value of this program's account of itself: a number or a text, null where it was not measured.
pub(super) struct Own<'a>(pub(super) &'a Series);

impl Serialize for Own<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0.value {
            Ok(Value::Counter(counter)) => counter.raw.serialize(serializer),
            Ok(Value::Gauge(gauge)) => whole(gauge.value, serializer),
            Ok(Value::State(state, _)) => state.serialize(serializer),
            Ok(Value::Info(texts)) => serializer.collect_map(texts.iter().map(|(a, b)| (a, b))),
            Ok(Value::Histogram(_)) | Err(_) => serializer.serialize_none(),
        }
    }
}

/// Whole numbers are written as such.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is whole and below 2^53"
)]
fn whole<S: Serializer>(number: f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.fract() == 0.0 && (0.0..9e15).contains(&number) {
        (number as u64).serialize(serializer)
    } else {
        number.serialize(serializer)
    }
}

/// A cell of a table of this report.
pub(super) struct OfCell<'a>(pub(super) &'a Report, pub(super) &'a Cell);

impl Serialize for OfCell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.1 {
            Cell::Number(number) | Cell::Count(number) => number.serialize(serializer),
            Cell::Text(text) => text.serialize(serializer),
            Cell::Owner(owner) => {
                let mut map = serializer.serialize_map(None)?;
                who(&mut map, self.0, owner)?;
                map.end()
            }
            Cell::Address(address) => serializer.collect_str(&format_args!("{address:#x}")),
            Cell::Estimate(None) => serializer.serialize_none(),
            Cell::Estimate(Some(estimate)) => {
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("value", &estimate.value)?;
                interval(&mut map, estimate)?;
                map.end()
            }
        }
    }
}
