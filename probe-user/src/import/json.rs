//! A line of `perf stat -j`: one object for each count.

use serde_json::{Map, Value};

use super::{Reading, Set, counted, interval, times};

/// None for a line without a count: perf prints further metrics of an event as lines of their own.
pub(super) fn line(line: &str) -> Result<Option<Reading>, String> {
    // perf ends lists of objects differently in its versions.
    let line = line.trim_end_matches(',');
    let object: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| error.to_string())?;
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    let number = |key: &str| {
        let value = object.get(key)?;
        value
            .as_f64()
            .or_else(|| value.as_str()?.trim().parse().ok())
    };
    let (Some(value), Some(event)) = (object.get("counter-value"), text("event")) else {
        return Ok(None);
    };
    let value = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    let count = counted(value.trim()).ok_or_else(|| format!("{value} is no count"))?;
    let scopes = [
        "socket", "die", "cluster", "core", "node", "cpu", "thread", "cgroup",
    ];
    let scope = scopes.iter().find_map(|key| {
        let scope = text(key)?;
        // perf writes S0 for a socket, but 0 for a CPU.
        let bare = scope.bytes().all(|byte| byte.is_ascii_digit());
        Some(if bare {
            format!("{key} {scope}")
        } else {
            scope.to_owned()
        })
    });
    let (enabled, live) = times(number("event-runtime"), number("pcnt-running"));
    Ok(Some(Reading {
        set: Set {
            interval: number("interval").and_then(interval),
            scope,
        },
        event: event.to_owned(),
        count,
        unit: text("unit").unwrap_or_default().to_owned(),
        enabled,
        live,
    }))
}
