//! The keys of the configuration: what each sets, and its valid values.

use std::{
    collections::BTreeMap,
    fmt::Display,
    net::{Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    ops::RangeInclusive,
    path::PathBuf,
    time::Duration,
};

use clap::ValueEnum;
use serde::de::DeserializeOwned;

use super::{Config, Enabled, JsonDestination, settings::SettingValue};
use crate::{
    agent::otlp,
    emit::{is_reserved_label, reserved_labels},
    event::Nearest,
    join::By,
    session::{MOST_ROWS, spe::LOWEST_IN_BUDGET},
};

/// A key, and how its value is set.
pub(super) struct ConfigKey {
    name: &'static str,
    pub(super) set: fn(&mut Config, &SettingValue<'_>) -> Result<(), String>,
}

/// The highest `count.top_processes`.
const MAX_TOP_PROCESSES: usize = 1000;

/// The highest `spe.frequency` (x86): samples per second, CPU and event. Each sample is an
/// interrupt.
const MAX_FREQUENCY: u64 = 10_000;

/// All keys, each with the assignment of its value. The part before a dot is the section.
macro_rules! keys {
    (|$config:ident, $value:ident| $($name:literal => $assignment:expr,)+) => {
        const KEYS: &[ConfigKey] = &[$(ConfigKey {
            name: $name,
            set: |$config, $value| {
                $assignment;
                Ok(())
            },
        },)+];
    };
}

keys! { |config, value|
    "interval" => config.interval = interval(value)?,
    "max_overhead" => config.max_overhead = percent_or_off(value)?,
    "kernel_log" => config.kernel_log = value.to()?,
    "count.events" => config.count.events = nonblank_strings(value)?,
    "count.metrics" => config.count.metrics = nonblank_strings(value)?,
    "count.by" => config.count.by = container_or_pod(value)?,
    "count.calibration" => config.count.calibration = Some(path(value)?),
    "count.chip" => config.count.chip = Some(choice(value)?),
    "count.reserve_counters" => config.count.reserve_counters = value.to()?,
    "count.hook" => config.count.hook = choice(value)?,
    "count.max_rows" => config.count.max_rows = Some(number(value, &(1..=MOST_ROWS), "")?),
    "count.top_processes" =>
        config.count.top_processes = number(value, &(0..=MAX_TOP_PROCESSES), "")?,
    "count.sample" => config.count.sample = nonblank_strings(value)?,
    "count.sample_budget" => config.count.sample_budget = percent(value)?,
    "spe.enabled" => config.spe.enabled = enabled(value)?,
    "spe.period" => config.spe.period = period(value)?,
    "spe.frequency" =>
        config.spe.frequency = number(value, &(1..=MAX_FREQUENCY), " samples a second")?,
    "spe.budget" => config.spe.budget = percent(value)?,
    "names.cri" => config.names.cri = value.to::<String>()?.parse()?,
    "names.root" => config.names.root = path(value)?,
    "names.labels" => config.names.labels = nonblank_strings(value)?,
    "series.max" => config.series.max = value.to()?,
    "series.labels" => config.series.labels = labels(value)?,
    "http.listen" => config.http.listen = address(&value.to::<String>()?)?,
    "http.web_config" => config.http.web_config = Some(path(value)?),
    "json.path" => config.json = Some(json_destination(value)?),
    "pins.path" => config.pins.path = Some(path(value)?),
    "pins.keep" => config.pins.keep = value.to()?,
    "state.path" => config.state = Some(path(value)?),
    "verdict.peak_bandwidth" => config.verdict.peak_bandwidth = Some(bandwidth(value)?),
    "otlp.endpoint" => config.otlp.endpoint = Some(endpoint(value)?),
    "otlp.headers" => config.otlp.headers = headers(value)?,
    "otlp.ca_file" => config.otlp.tls.ca_file = Some(path(value)?),
    "otlp.cert_file" => config.otlp.tls.cert_file = Some(path(value)?),
    "otlp.key_file" => config.otlp.tls.key_file = Some(path(value)?),
    "run.directory" => config.run = path(value)?,
}

/// Finds the key with this name.
pub(super) fn find(name: &str) -> Option<&'static ConfigKey> {
    KEYS.iter().find(|key| key.name == name)
}

/// The names of all keys.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|key| key.name)
}

/// Whether there is a section of that name.
pub(super) fn is_section(name: &str) -> bool {
    let mut sections = names().filter_map(|key| key.split_once('.'));
    sections.any(|(section, _)| section == name)
}

/// The strings of a list, none of them blank.
fn nonblank_strings(value: &SettingValue<'_>) -> Result<Vec<String>, String> {
    let strings = value.texts()?;
    match strings.iter().any(|text| text.trim().is_empty()) {
        true => Err("has an empty name".to_owned()),
        false => Ok(strings),
    }
}

/// A number in a range. In the error, `unit` follows the range.
fn number<T>(value: &SettingValue<'_>, range: &RangeInclusive<T>, unit: &str) -> Result<T, String>
where
    T: DeserializeOwned + Display + PartialOrd,
{
    let number: T = value.to()?;
    match range.contains(&number) {
        true => Ok(number),
        false => Err(format!("is {} to {}{unit}", range.start(), range.end())),
    }
}

fn interval(value: &SettingValue<'_>) -> Result<Duration, String> {
    let wanted = "is a time such as \"10s\" or \"500ms\"";
    // For a number without a unit, TOML's own error would not mention times.
    let text: String = value.to().map_err(|_| wanted.to_owned())?;
    let interval =
        humantime::parse_duration(&text).map_err(|error| format!("{wanted}: {error}"))?;
    match (Duration::from_millis(10)..=Duration::from_hours(1)).contains(&interval) {
        true => Ok(interval),
        false => Err("is from 10ms to 1h".to_owned()),
    }
}

fn container_or_pod(value: &SettingValue<'_>) -> Result<By, String> {
    match choice(value)? {
        by @ (By::Container | By::Pod) => Ok(by),
        By::Cgroup | By::Process => Err("is container or pod".to_owned()),
    }
}

fn enabled(value: &SettingValue<'_>) -> Result<Enabled, String> {
    match (value.to::<bool>(), value.to::<String>().as_deref()) {
        (Ok(true), _) => Ok(Enabled::On),
        (Ok(false), _) => Ok(Enabled::Off),
        (_, Ok("auto")) => Ok(Enabled::Auto),
        _ => Err("is true, false or \"auto\"".to_owned()),
    }
}

fn period(value: &SettingValue<'_>) -> Result<u64, String> {
    match value.to()? {
        period @ LOWEST_IN_BUDGET.. => Ok(period),
        _ => Err(format!(
            "is {LOWEST_IN_BUDGET} at least, as the period follows the budget"
        )),
    }
}

/// A share such as `0.5%`, as 0.005; None for `off`.
fn percent_or_off(value: &SettingValue<'_>) -> Result<Option<f64>, String> {
    match value.to::<String>().as_deref() {
        Ok("off") => Ok(None),
        _ => percent(value).map(Some),
    }
}

/// A share such as `0.5%`, as 0.005.
fn percent(value: &SettingValue<'_>) -> Result<f64, String> {
    let text: Option<String> = value.to().ok();
    let number = text
        .as_deref()
        .and_then(|text| text.strip_suffix('%'))
        .and_then(|it| it.trim().parse().ok());
    number
        .filter(|percent| *percent > 0.0 && *percent <= 100.0)
        .map(|percent: f64| percent / 100.0)
        .ok_or_else(|| "is a share above 0% up to 100%, such as \"0.5%\"".to_owned())
}

/// `500GB/s` in bytes per second.
fn bandwidth(value: &SettingValue<'_>) -> Result<f64, String> {
    let text: String = value.to().unwrap_or_default();
    let units = [("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6)];
    let parsed = units.iter().find_map(|(unit, bytes)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * bytes)
    });
    let valid = parsed.filter(|bytes| bytes.is_finite() && *bytes > 0.0);
    valid.ok_or_else(|| "is a bandwidth above 0 such as \"500GB/s\"".to_owned())
}

fn path(value: &SettingValue<'_>) -> Result<PathBuf, String> {
    let path = PathBuf::from(value.to::<String>()?);
    match path.is_absolute() {
        true => Ok(path),
        false => Err("is a path from the root, such as \"/run/pmuscope\"".to_owned()),
    }
}

fn json_destination(value: &SettingValue<'_>) -> Result<JsonDestination, String> {
    match value.to::<String>()?.as_str() {
        "-" => Ok(JsonDestination::Stdout),
        _ => path(value).map(JsonDestination::File),
    }
}

fn endpoint(value: &SettingValue<'_>) -> Result<String, String> {
    let endpoint: String = value.to()?;
    otlp::check(&endpoint).map(|()| endpoint)
}

fn headers(value: &SettingValue<'_>) -> Result<BTreeMap<String, String>, String> {
    // The deserializer's own error would show the value, which may be a password.
    let not_a_table = |_| "is a table such as { authorization = \"Bearer ...\" }".to_owned();
    let headers: BTreeMap<String, String> = value.to().map_err(not_a_table)?;
    otlp::headers(&headers).map(|_| headers)
}

fn labels(value: &SettingValue<'_>) -> Result<BTreeMap<String, String>, String> {
    let labels: BTreeMap<String, String> = value.to()?;
    match labels.keys().find(|name| !is_label(name)) {
        None => Ok(labels),
        Some(name) => Err(format!(
            "`{name}` cannot be a label: a name has letters, digits and `_`, does not begin \
             with a digit or `__`, and is none of pmuscope's own ({}, label_*, pmuscope_*)",
            reserved_labels().join(", ")
        )),
    }
}

/// Parses the name of an enum's variant.
fn choice<T: ValueEnum>(value: &SettingValue<'_>) -> Result<T, String> {
    let text: String = value.to()?;
    T::from_str(&text, false).map_err(|_| {
        let names = T::value_variants().iter().filter_map(T::to_possible_value);
        let names: Vec<String> = names.map(|value| value.get_name().to_owned()).collect();
        let nearest = Nearest::to(&text, names);
        format!("there is no `{text}`; the nearest are {nearest}")
    })
}

/// `127.0.0.1:9464`, `[::1]:9464`, `localhost:9464`, `:9464` for all addresses; None for `off`.
fn address(text: &str) -> Result<Option<SocketAddr>, String> {
    let wrong =
        "is ADDRESS:PORT such as \"127.0.0.1:9464\", \":9464\" for all addresses, or \"off\"";
    if text == "off" {
        return Ok(None);
    }
    if let Some(port) = text.strip_prefix(':') {
        let port = port.parse().map_err(|_| wrong.to_owned())?;
        return Ok(Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))));
    }
    if let Ok(address) = text.parse() {
        return Ok(Some(address));
    }
    // Of all host names only localhost is accepted, so that no DNS query is needed.
    let is_local = text.starts_with("localhost:");
    let mut addresses = is_local
        .then(|| text.to_socket_addrs().ok())
        .flatten()
        .ok_or_else(|| wrong.to_owned())?;
    Ok(addresses.next())
}

/// Whether a user's label may have that name.
fn is_label(name: &str) -> bool {
    let is_start_valid = name.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_');
    let are_letters_valid = name
        .chars()
        .all(|it| it.is_ascii_alphanumeric() || it == '_');
    is_start_valid && are_letters_valid && !name.starts_with("__") && !is_reserved_label(name)
}
