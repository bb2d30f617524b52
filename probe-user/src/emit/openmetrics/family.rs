//! Metric families: names by the conventions of Prometheus, with base units.

use std::collections::HashMap;

use super::{text, type_name};
use crate::derive::{Kind, Metric, Report};

/// Whose values a family holds, which is a part of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Level {
    /// Rows, sockets' metrics and shares.
    Rows,
    /// Events that sockets count.
    Sockets,
    /// The whole machine.
    Machine,
    /// This program.
    Own,
}

/// Samples of one name.
pub(super) struct Family {
    pub(super) name: String,
    pub(super) help: String,
    /// The last word or words of the name; empty for none.
    pub(super) unit: String,
    /// From the unit of the metric to the family's.
    pub(super) factor: f64,
    kind: Kind,
}

impl Family {
    pub(super) fn type_name(&self) -> &'static str {
        type_name(self.kind)
    }
}

/// The families of a report, in the order of their first series.
pub(super) struct Families<'a> {
    report: &'a Report,
    list: Vec<Family>,
    /// By metric, level, and whether it is told by where accesses were served.
    known: HashMap<(u32, Level, bool), usize>,
    /// The label of each event.
    events: Vec<String>,
}

impl<'a> Families<'a> {
    pub(super) fn new(report: &'a Report) -> Self {
        let event = |metric: &Metric| match metric.event {
            true => text::label("event", &metric.name),
            false => String::new(),
        };
        Self {
            report,
            list: Vec::new(),
            known: HashMap::new(),
            events: report.metrics.iter().map(event).collect(),
        }
    }

    pub(super) fn list(&self) -> &[Family] {
        &self.list
    }

    /// The label of an event; empty of a metric.
    pub(super) fn event(&self, metric: u32) -> &str {
        &self.events[metric as usize]
    }

    /// The family of a metric: its index.
    pub(super) fn of(&mut self, metric: u32, level: Level, by_source: bool) -> usize {
        if let Some(family) = self.known.get(&(metric, level, by_source)) {
            return *family;
        }
        let described = &self.report.metrics[metric as usize];
        let mut family = family(described, level, by_source);
        let same = |known: &Family| known.name == family.name;
        let found = match self.list.iter().position(same) {
            // Events of one unit are one family.
            Some(found) if described.event => found,
            found => {
                // Names that differ only in what a name may not have.
                if found.is_some() {
                    family.name = format!("{}_{metric}", family.name);
                    family.unit.clear();
                }
                self.list.push(family);
                self.list.len() - 1
            }
        };
        self.known.insert((metric, level, by_source), found);
        found
    }
}

fn family(metric: &Metric, level: Level, by_source: bool) -> Family {
    let level = match level {
        Level::Rows => "",
        Level::Sockets => "socket_",
        Level::Machine => "machine_",
        Level::Own => "self_",
    };
    let by_source = if by_source { "by_source_" } else { "" };
    let (name, help) = if metric.event {
        ("events", "What events counted, since the session began")
    } else {
        (metric.name.as_str(), metric.help.as_str())
    };
    let (unit, short, factor) = base_unit(&metric.unit);
    // The unit comes last, in full.
    let words = name
        .split('_')
        .filter(|word| *word != short || short.is_empty());
    let name = valid(&words.collect::<Vec<_>>().join("_"));
    let unit = valid(&unit);
    let name = match name.strip_suffix(&unit) {
        _ if unit.is_empty() => name,
        Some(rest) if rest.is_empty() || rest.ends_with('_') => name,
        _ => format!("{name}_{unit}"),
    };
    Family {
        name: format!("pmuscope_{level}{by_source}{name}"),
        help: help.to_owned(),
        unit,
        factor,
        kind: metric.kind,
    }
}

/// The base unit of a unit, the word by which names of metrics call the unit, and the factor.
fn base_unit(unit: &str) -> (String, &'static str, f64) {
    let (base, short, factor) = match unit {
        "" => ("", "", 1.0),
        "1" => ("ratio", "", 1.0),
        "%" => ("ratio", "percent", 0.01),
        "ppm" => ("ratio", "ppm", 1e-6),
        "ns" => ("seconds", "ns", 1e-9),
        "us" => ("seconds", "us", 1e-6),
        "ms" => ("seconds", "ms", 1e-3),
        "s" => ("seconds", "s", 1.0),
        "B" => ("bytes", "", 1.0),
        "KiB" => ("bytes", "", 1024.0),
        "MiB" => ("bytes", "", 1_048_576.0),
        "GiB" => ("bytes", "", 1_073_741_824.0),
        "B/s" => ("bytes_per_second", "", 1.0),
        "MB/s" => ("bytes_per_second", "", 1e6),
        "GB/s" => ("bytes_per_second", "", 1e9),
        "GHz" => ("hertz", "", 1e9),
        "1/s" => ("per_second", "", 1.0),
        "1/cycle" => ("per_cycle", "", 1.0),
        "1/1000 instructions" => ("per_instruction", "", 1e-3),
        "CPU" => ("cpus", "", 1.0),
        other => return (other.to_lowercase(), "", 1.0),
    };
    (base.to_owned(), short, factor)
}

/// Lower case, with `_` in place of what a name may not have.
fn valid(name: &str) -> String {
    let mut valid = String::new();
    for char in name.chars() {
        let char = if char.is_ascii_alphanumeric() {
            char
        } else {
            '_'
        };
        if char != '_' || !valid.ends_with('_') {
            valid.push(char.to_ascii_lowercase());
        }
    }
    valid.trim_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_in_their_base_unit() {
        let cases = [
            ("ipc", "1/cycle", "pmuscope_ipc_per_cycle"),
            ("branch_miss_ratio", "1", "pmuscope_branch_miss_ratio"),
            ("io_percent_of_reads", "%", "pmuscope_io_of_reads_ratio"),
            (
                "read_bandwidth",
                "GB/s",
                "pmuscope_read_bandwidth_bytes_per_second",
            ),
            (
                "spe_latency_mean_cycles",
                "cycles",
                "pmuscope_spe_latency_mean_cycles",
            ),
            (
                "ns_per_run_charging",
                "ns",
                "pmuscope_per_run_charging_seconds",
            ),
            (
                "Über-Metrik (neu)",
                "Furlongs",
                "pmuscope_ber_metrik_neu_furlongs",
            ),
            ("plain", "", "pmuscope_plain"),
        ];
        for (name, unit, expected) in cases {
            let metric = Metric {
                name: name.to_owned(),
                help: String::new(),
                unit: unit.to_owned(),
                kind: Kind::Gauge,
                event: false,
            };
            assert_eq!(family(&metric, Level::Rows, false).name, expected);
        }
    }
}
