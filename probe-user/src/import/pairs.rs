//! A line `event=value`, for counts from anywhere.
//!
//! The value may have commas between groups of three digits, as documents print counts.

use super::{CountedValue, Reading, ReadingSet};

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

fn number(text: &str) -> Option<f64> {
    let plain = if text.contains(',') {
        let mut groups = text.split(',');
        let first = groups.next()?;
        let digits = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
        let grouped = (1..=3).contains(&first.len())
            && digits(first)
            && groups.all(|group| group.len() == 3 && digits(group));
        grouped.then(|| text.replace(',', ""))?
    } else {
        text.to_owned()
    };
    let number: f64 = plain.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}
