//! A line of `perf stat -j`: one object for each count.

use serde_json::{Deserializer, Map, Value};

use super::{METRICS_ONLY, Reading, ReadingSet, interval, parse_count, times};

const LOCALE: &str = "its numbers have the decimal comma of a locale, which is no JSON: run perf \
                      with LC_ALL=C";

/// Parses a line. None if it has no count: perf prints further metrics of an event as lines of
/// their own.
pub(super) fn line(line: &str) -> Result<Option<Reading>, String> {
    // Versions of perf differ in whether a line ends with a comma.
    let line = line.trim_end_matches(',');
    let mut objects = Deserializer::from_str(line).into_iter::<Map<String, Value>>();
    let object = match objects.next() {
        None => return Ok(None),
        Some(Ok(object)) => object,
        Some(Err(_)) if has_decimal_comma(line) => return Err(LOCALE.to_owned()),
        Some(Err(error)) => return Err(error.to_string()),
    };
    // --metric-only prints several objects on a line.
    match objects.next() {
        None => {}
        Some(Ok(_)) => return Err(METRICS_ONLY.to_owned()),
        Some(Err(error)) => return Err(error.to_string()),
    }
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    let number = |key: &str| {
        let value = object.get(key)?;
        value
            .as_f64()
            .or_else(|| value.as_str()?.trim().parse().ok())
    };
    let (Some(value), Some(event)) = (object.get("counter-value"), text("event")) else {
        // A further metric has one of these keys; the metrics of --metric-only have other keys.
        let metric = ["metric-value", "metricgroup"];
        return if object.is_empty() || metric.iter().any(|key| object.contains_key(*key)) {
            Ok(None)
        } else {
            Err(METRICS_ONLY.to_owned())
        };
    };
    let value = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    let count = parse_count(value.trim()).ok_or_else(|| format!("{value} is no count"))?;
    let scopes = [
        "socket", "die", "cluster", "cache", "core", "node", "cpu", "thread", "cgroup",
    ];
    let names = scopes.iter().filter_map(|key| {
        let scope = text(key)?;
        // perf writes S0 for a socket, but 0 for a CPU.
        let is_number = scope.bytes().all(|byte| byte.is_ascii_digit());
        Some(if is_number {
            format!("{key} {scope}")
        } else {
            scope.to_owned()
        })
    });
    // There are several if cgroups are counted for each socket.
    let names: Vec<String> = names.collect();
    let scope = (!names.is_empty()).then(|| names.join(" "));
    let (enabled, running_ratio) = times(number("event-runtime"), number("pcnt-running"));
    Ok(Some(Reading {
        set: ReadingSet {
            interval: number("interval").and_then(interval),
            scope,
            ..ReadingSet::default()
        },
        event: event.to_owned(),
        count,
        unit: text("unit").unwrap_or_default().to_owned(),
        enabled,
        running_ratio,
    }))
}

/// Whether a number outside of quotes continues after a comma, which JSON does not allow.
fn has_decimal_comma(line: &str) -> bool {
    line.split(" : ").skip(1).any(|value| {
        let rest = value.trim_start_matches(|c: char| c.is_ascii_digit());
        let decimals = rest.strip_prefix(',').filter(|_| rest.len() < value.len());
        decimals.is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit()))
    })
}
