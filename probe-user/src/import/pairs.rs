//! A line `event=value`, for counts from anywhere.
//!
//! The value may have marks between groups of digits, as documents print counts.

use super::{
    CountedValue, Reading, ReadingSet,
    number::{self, Notation},
};

/// Whether the line is of this form, perhaps with a mistake: no line of perf ends in `=` and text
/// without a comma or a slash.
pub(super) fn looks_like(text: &str) -> bool {
    let rest = text.rsplit_once('=').map(|(_, rest)| rest);
    line(text).is_ok() || rest.is_some_and(|rest| !rest.contains([',', '/']))
}

pub(super) fn line(line: &str) -> Result<Reading, String> {
    let (event, value) = line.rsplit_once('=').ok_or("it has no `=`")?;
    let (event, value) = (event.trim(), value.trim());
    if event.is_empty() {
        return Err("it has no event".to_owned());
    }
    let count = number(value).ok_or_else(|| format!("{value} is no count"))?;
    Ok(Reading {
        set: ReadingSet::default(),
        event: event.to_owned(),
        count: CountedValue::Value(count),
        unit: String::new(),
        enabled: None,
        running_ratio: 1.0,
    })
}

/// A number with a decimal point.
fn number(text: &str) -> Option<f64> {
    let notation = Notation {
        decimal: Some('.'),
        whole: false,
    };
    let number: f64 = text
        .parse()
        .ok()
        .or_else(|| number::parse(text, notation).ok())?;
    (number.is_finite() && number >= 0.0).then_some(number)
}
