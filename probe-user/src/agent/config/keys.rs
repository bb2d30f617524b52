//! The keys of the configuration: what each sets, and its valid values.

use std::{
    net::{Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    time::Duration,
};

use clap::ValueEnum;

use super::{Config, Enabled, JsonDestination, settings::SettingValue};
use crate::{
    agent::otlp,
    catalogue::Chip,
    emit::{is_reserved_label, reserved_labels},
    event::Nearest,
    join::By,
    session::{MOST_ROWS, spe::LOWEST_IN_BUDGET},
};

/// A key.
pub(super) struct ConfigKey {
    name: &'static str,
    pub(super) set: fn(&mut Config, SettingValue<'_>) -> Result<(), String>,
}

/// All keys; the part before a point is the section.
const KEYS: &[ConfigKey] = &[
    key("interval", |config, value| {
        let interval = duration(&value)?;
        if !(Duration::from_millis(10)..=Duration::from_hours(1)).contains(&interval) {
            return Err("is from 10ms to 1h".to_owned());
        }
        config.interval = interval;
        Ok(())
    }),
    key("max_overhead", |config, value| {
        config.max_overhead = match value.to::<String>().as_deref() {
            Ok("off") => None,
            _ => Some(percent(&value)?),
        };
        Ok(())
    }),
    key("kernel_log", |config, value| {
        config.kernel_log = value.to()?;
        Ok(())
    }),
    key("count.events", |config, value| {
        config.count.events = lists(&value)?;
        Ok(())
    }),
    key("count.metrics", |config, value| {
        config.count.metrics = lists(&value)?;
        Ok(())
    }),
    key("count.by", |config, value| {
        config.count.by = match choice(&value)? {
            by @ (By::Container | By::Pod) => by,
            By::Cgroup | By::Process => return Err("is container or pod".to_owned()),
        };
        Ok(())
    }),
    key("count.chip", |config, value| {
        config.count.chip = Some(choice::<Chip>(&value)?);
        Ok(())
    }),
    key("count.reserve_counters", |config, value| {
        config.count.reserve_counters = value.to()?;
        Ok(())
    }),
    key("count.hook", |config, value| {
        config.count.hook = choice(&value)?;
        Ok(())
    }),
    key("count.max_rows", |config, value| match value.to()? {
        rows @ 1..=MOST_ROWS => {
            config.count.max_rows = Some(rows);
            Ok(())
        }
        _ => Err(format!("is 1 to {MOST_ROWS}")),
    }),
    key("count.top_processes", |config, value| match value.to()? {
        processes @ 0..=MOST_PROCESSES => {
            config.count.top_processes = processes;
            Ok(())
        }
        _ => Err(format!("is 0 to {MOST_PROCESSES}")),
    }),
    key("count.sample", |config, value| {
        config.count.sample = lists(&value)?;
        Ok(())
    }),
    key("count.sample_budget", |config, value| {
        config.count.sample_budget = percent(&value)?;
        Ok(())
    }),
    key("spe.enabled", |config, value| {
        config.spe.enabled = match (value.to::<bool>(), value.to::<String>().as_deref()) {
            (Ok(true), _) => Enabled::On,
            (Ok(false), _) => Enabled::Off,
            (_, Ok("auto")) => Enabled::Auto,
            _ => return Err("is true, false or \"auto\"".to_owned()),
        };
        Ok(())
    }),
    key("spe.period", |config, value| match value.to()? {
        period @ LOWEST_IN_BUDGET.. => {
            config.spe.period = period;
            Ok(())
        }
        _ => Err(format!(
            "is {LOWEST_IN_BUDGET} at least, as the period follows the budget"
        )),
    }),
    key("spe.frequency", |config, value| match value.to()? {
        frequency @ 1..=MOST_INTERRUPTS => {
            config.spe.frequency = frequency;
            Ok(())
        }
        _ => Err(format!("is 1 to {MOST_INTERRUPTS} samples a second")),
    }),
    key("spe.budget", |config, value| {
        config.spe.budget = percent(&value)?;
        Ok(())
    }),
    key("names.cri", |config, value| {
        config.names.cri = value.to::<String>()?.parse()?;
        Ok(())
    }),
    key("names.root", |config, value| {
        config.names.root = path(&value)?;
        Ok(())
    }),
    key("names.labels", |config, value| {
        config.names.labels = lists(&value)?;
        Ok(())
    }),
    key("series.max", |config, value| {
        config.series.max = value.to()?;
        Ok(())
    }),
    key("series.labels", |config, value| {
        config.series.labels = value.to()?;
        match config.series.labels.keys().find(|name| !is_label(name)) {
            None => Ok(()),
            Some(name) => Err(format!(
                "`{name}` cannot be a label: a name has letters, digits and `_`, does not begin \
                 with a digit or `__`, and is none of pmuscope's own ({}, label_*, pmuscope_*)",
                reserved_labels().join(", ")
            )),
        }
    }),
    key("http.listen", |config, value| {
        config.http.listen = address(&value.to::<String>()?)?;
        Ok(())
    }),
    key("http.web_config", |config, value| {
        config.http.web_config = Some(path(&value)?);
        Ok(())
    }),
    key("json.path", |config, value| {
        config.json = Some(match value.to::<String>()?.as_str() {
            "-" => JsonDestination::Stdout,
            _ => JsonDestination::File(path(&value)?),
        });
        Ok(())
    }),
    key("pins.path", |config, value| {
        config.pins.path = Some(path(&value)?);
        Ok(())
    }),
    key("pins.keep", |config, value| {
        config.pins.keep = value.to()?;
        Ok(())
    }),
    key("state.path", |config, value| {
        config.state = Some(path(&value)?);
        Ok(())
    }),
    key("verdict.peak_bandwidth", |config, value| {
        config.verdict.peak_bandwidth = Some(bandwidth(&value)?);
        Ok(())
    }),
    key("otlp.endpoint", |config, value| {
        let endpoint: String = value.to()?;
        otlp::check(&endpoint)?;
        config.otlp.endpoint = Some(endpoint);
        Ok(())
    }),
    key("otlp.headers", |config, value| {
        config.otlp.headers = value.to()?;
        otlp::headers(&config.otlp.headers).map(|_| ())
    }),
    key("otlp.ca_file", |config, value| {
        config.otlp.tls.ca_file = Some(path(&value)?);
        Ok(())
    }),
    key("otlp.cert_file", |config, value| {
        config.otlp.tls.cert_file = Some(path(&value)?);
        Ok(())
    }),
    key("otlp.key_file", |config, value| {
        config.otlp.tls.key_file = Some(path(&value)?);
        Ok(())
    }),
    key("run.directory", |config, value| {
        config.run = path(&value)?;
        Ok(())
    }),
];

/// The most shown processes.
const MOST_PROCESSES: usize = 1000;

/// The most samples of memory accesses per second, CPU and event, where each is an interrupt.
const MOST_INTERRUPTS: u64 = 10_000;

const fn key(
    name: &'static str,
    set: fn(&mut Config, SettingValue<'_>) -> Result<(), String>,
) -> ConfigKey {
    ConfigKey { name, set }
}

/// Finds the key of a name.
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

/// Lists of names, none of them empty.
fn lists(value: &SettingValue<'_>) -> Result<Vec<String>, String> {
    let lists = value.texts()?;
    match lists.iter().any(|list| list.trim().is_empty()) {
        true => Err("has an empty name".to_owned()),
        false => Ok(lists),
    }
}

fn duration(value: &SettingValue<'_>) -> Result<Duration, String> {
    let wanted = "is a time such as \"10s\" or \"500ms\"";
    // For a number without a unit, TOML's own error would not mention times.
    let text: String = value.to().map_err(|_| wanted.to_owned())?;
    humantime::parse_duration(&text).map_err(|error| format!("{wanted}: {error}"))
}

/// `0.5%` as 0.005.
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
    let sound = parsed.filter(|bytes| bytes.is_finite() && *bytes > 0.0);
    sound.ok_or_else(|| "is a bandwidth above 0 such as \"500GB/s\"".to_owned())
}

fn path(value: &SettingValue<'_>) -> Result<PathBuf, String> {
    let path = PathBuf::from(value.to::<String>()?);
    match path.is_absolute() {
        true => Ok(path),
        false => Err("is a path from the root, such as \"/run/pmuscope\"".to_owned()),
    }
}

/// One of the names of an enum.
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
    let local = text.starts_with("localhost:");
    let mut found = local
        .then(|| text.to_socket_addrs().ok())
        .flatten()
        .ok_or_else(|| wrong.to_owned())?;
    Ok(found.next())
}

/// Whether a user's label may have that name.
fn is_label(name: &str) -> bool {
    let first = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let rest = name
        .chars()
        .all(|it| it.is_ascii_alphanumeric() || it == '_');
    first && rest && !name.starts_with("__") && !is_reserved_label(name)
}
