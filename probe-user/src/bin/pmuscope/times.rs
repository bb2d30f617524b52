//! Parsers of times in options.

use std::time::Duration;

/// Parses milliseconds, or a time with its unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let time = match text.parse() {
        Ok(millis) => Ok(Duration::from_millis(millis)),
        Err(_) => humantime::parse_duration(text),
    };
    time.map_err(|_| "it must be a time such as 5s, 500ms or 500".to_owned())
}

/// The shortest length of a window or a run.
const SHORTEST: Duration = Duration::from_millis(10);

/// Parses the length of windows.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    match (SHORTEST..=Duration::from_hours(24)).contains(&interval) {
        true => Ok(interval),
        false => Err("it must be from 10ms to 1 day".to_owned()),
    }
}

/// Parses the longest time of a run.
pub(crate) fn timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration(text)?;
    match (SHORTEST..=Duration::from_hours(24 * 365)).contains(&timeout) {
        true => Ok(timeout),
        false => Err("it must be from 10ms to 365 days".to_owned()),
    }
}
