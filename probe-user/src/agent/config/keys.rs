//! The keys: what each sets, and which values it takes.

use std::{
    net::{Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    time::Duration,
};

use clap::ValueEnum;

use super::{Config, Enabled, JsonTo, settings::Given};
use crate::{
    agent::otlp,
    catalogue::Chip,
    emit::{OWN_LABELS, is_own_label},
    event::Nearest,
    join::By,
    session::{MOST_ROWS, spe::LOWEST_IN_BUDGET},
};

/// A key.
pub(super) struct Key {
    name: &'static str,
    pub(super) set: fn(&mut Config, Given<'_>) -> Result<(), String>,
}

/// All of them; a name before a point is that of a section.
const KEYS: &[Key] = &[
    key("interval", |config, given| {
        let interval = duration(&given)?;
        if !(Duration::from_millis(10)..=Duration::from_hours(1)).contains(&interval) {
            return Err("is from 10ms to 1h".to_owned());
        }
        config.interval = interval;
        Ok(())
    }),
    key("max_overhead", |config, given| {
        config.max_overhead = match given.to::<String>().as_deref() {
            Ok("off") => None,
            _ => Some(percent(&given)?),
        };
        Ok(())
    }),
    key("kernel_log", |config, given| {
        config.kernel_log = given.to()?;
        Ok(())
    }),
    key("count.events", |config, given| {
        config.count.events = lists(&given)?;
        Ok(())
    }),
    key("count.metrics", |config, given| {
        config.count.metrics = lists(&given)?;
        Ok(())
    }),
    key("count.by", |config, given| {
        config.count.by = match choice(&given)? {
            by @ (By::Container | By::Pod) => by,
            By::Cgroup | By::Process => return Err("is container or pod".to_owned()),
        };
        Ok(())
    }),
    key("count.chip", |config, given| {
        config.count.chip = Some(choice::<Chip>(&given)?);
        Ok(())
    }),
    key("count.reserve_counters", |config, given| {
        config.count.reserve_counters = given.to()?;
        Ok(())
    }),
    key("count.hook", |config, given| {
        config.count.hook = choice(&given)?;
        Ok(())
    }),
    key("count.max_rows", |config, given| match given.to()? {
        rows @ 1..=MOST_ROWS => {
            config.count.max_rows = Some(rows);
            Ok(())
        }
        _ => Err(format!("is 1 to {MOST_ROWS}")),
    }),
    key("count.top_processes", |config, given| match given.to()? {
        processes @ 0..=MOST_PROCESSES => {
            config.count.top_processes = processes;
            Ok(())
        }
        _ => Err(format!("is 0 to {MOST_PROCESSES}")),
    }),
    key("count.sample", |config, given| {
        config.count.sample = lists(&given)?;
        Ok(())
    }),
    key("count.sample_budget", |config, given| {
        config.count.sample_budget = percent(&given)?;
        Ok(())
    }),
    key("spe.enabled", |config, given| {
        config.spe.enabled = match (given.to::<bool>(), given.to::<String>().as_deref()) {
            (Ok(true), _) => Enabled::On,
            (Ok(false), _) => Enabled::Off,
            (_, Ok("auto")) => Enabled::Auto,
            _ => return Err("is true, false or \"auto\"".to_owned()),
        };
        Ok(())
    }),
    key("spe.period", |config, given| match given.to()? {
        period @ LOWEST_IN_BUDGET.. => {
            config.spe.period = period;
            Ok(())
        }
        _ => Err(format!(
            "is {LOWEST_IN_BUDGET} at least, as the period follows the budget"
        )),
    }),
    key("spe.frequency", |config, given| match given.to()? {
        frequency @ 1..=MOST_INTERRUPTS => {
            config.spe.frequency = frequency;
            Ok(())
        }
        _ => Err(format!("is 1 to {MOST_INTERRUPTS} samples a second")),
    }),
    key("spe.budget", |config, given| {
        config.spe.budget = percent(&given)?;
        Ok(())
    }),
    key("names.cri", |config, given| {
        config.names.cri = given.to::<String>()?.parse()?;
        Ok(())
    }),
    key("names.root", |config, given| {
        config.names.root = path(&given)?;
        Ok(())
    }),
    key("names.labels", |config, given| {
        config.names.labels = lists(&given)?;
        Ok(())
    }),
    key("series.max", |config, given| {
        config.series.max = given.to()?;
        Ok(())
    }),
    key("series.labels", |config, given| {
        config.series.labels = given.to()?;
        match config.series.labels.keys().find(|name| !is_label(name)) {
            None => Ok(()),
            Some(name) => Err(format!(
                "`{name}` cannot be a label: a name has letters, digits and `_`, does not begin \
                 with a digit or `__`, and is none of pmuscope's own ({}, label_*, pmuscope_*)",
                OWN_LABELS.join(", ")
            )),
        }
    }),
    key("http.listen", |config, given| {
        config.http.listen = address(&given.to::<String>()?)?;
        Ok(())
    }),
    key("http.web_config", |config, given| {
        config.http.web_config = Some(path(&given)?);
        Ok(())
    }),
    key("json.path", |config, given| {
        config.json = Some(match given.to::<String>()?.as_str() {
            "-" => JsonTo::Stdout,
            _ => JsonTo::File(path(&given)?),
        });
        Ok(())
    }),
    key("pins.path", |config, given| {
        config.pins.path = Some(path(&given)?);
        Ok(())
    }),
    key("pins.keep", |config, given| {
        config.pins.keep = given.to()?;
        Ok(())
    }),
    key("state.path", |config, given| {
        config.state = Some(path(&given)?);
        Ok(())
    }),
    key("verdict.peak_bandwidth", |config, given| {
        config.verdict.peak_bandwidth = Some(bandwidth(&given)?);
        Ok(())
    }),
    key("otlp.endpoint", |config, given| {
        let endpoint: String = given.to()?;
        otlp::check(&endpoint)?;
        config.otlp.endpoint = Some(endpoint);
        Ok(())
    }),
    key("otlp.headers", |config, given| {
        config.otlp.headers = given.to()?;
        otlp::headers(&config.otlp.headers).map(|_| ())
    }),
    key("otlp.ca_file", |config, given| {
        config.otlp.tls.ca_file = Some(path(&given)?);
        Ok(())
    }),
    key("otlp.cert_file", |config, given| {
        config.otlp.tls.cert_file = Some(path(&given)?);
        Ok(())
    }),
    key("otlp.key_file", |config, given| {
        config.otlp.tls.key_file = Some(path(&given)?);
        Ok(())
    }),
    key("run.directory", |config, given| {
        config.run = path(&given)?;
        Ok(())
    }),
];

/// The most processes that are shown.
const MOST_PROCESSES: usize = 1000;

/// The most samples of memory accesses per second, CPU and event, where each is an interrupt.
const MOST_INTERRUPTS: u64 = 10_000;

const fn key(name: &'static str, set: fn(&mut Config, Given<'_>) -> Result<(), String>) -> Key {
    Key { name, set }
}

/// The key of that name.
pub(super) fn of(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The names of all keys.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|key| key.name)
}

/// Whether keys are in a section of that name.
pub(super) fn is_section(name: &str) -> bool {
    let mut sections = names().filter_map(|key| key.split_once('.'));
    sections.any(|(section, _)| section == name)
}

/// Lists of names, none of them empty.
fn lists(given: &Given<'_>) -> Result<Vec<String>, String> {
    let lists = given.texts()?;
    match lists.iter().any(|list| list.trim().is_empty()) {
        true => Err("has an empty name".to_owned()),
        false => Ok(lists),
    }
}

fn duration(given: &Given<'_>) -> Result<Duration, String> {
    let wanted = "is a time such as \"10s\" or \"500ms\"";
    // The reason that TOML's types give, of a number without a unit, says nothing of times.
    let text: String = given.to().map_err(|_| wanted.to_owned())?;
    humantime::parse_duration(&text).map_err(|error| format!("{wanted}: {error}"))
}

/// `0.5%` as 0.005.
fn percent(given: &Given<'_>) -> Result<f64, String> {
    let text: Option<String> = given.to().ok();
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
fn bandwidth(given: &Given<'_>) -> Result<f64, String> {
    let text: String = given.to().unwrap_or_default();
    let units = [("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6)];
    let parsed = units.iter().find_map(|(unit, bytes)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * bytes)
    });
    let sound = parsed.filter(|bytes| bytes.is_finite() && *bytes > 0.0);
    sound.ok_or_else(|| "is a bandwidth above 0 such as \"500GB/s\"".to_owned())
}

fn path(given: &Given<'_>) -> Result<PathBuf, String> {
    let path = PathBuf::from(given.to::<String>()?);
    match path.is_absolute() {
        true => Ok(path),
        false => Err("is a path from the root, such as \"/run/pmuscope\"".to_owned()),
    }
}

/// One of a few words.
fn choice<T: ValueEnum>(given: &Given<'_>) -> Result<T, String> {
    let text: String = given.to()?;
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
    // No question to the network: localhost alone has a name.
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
    first && rest && !name.starts_with("__") && !is_own_label(name)
}
