//! Metric families: names by the conventions of Prometheus, with base units.

use crate::derive::{Kind, Metric, Report};

/// Whose values a family holds, which is a part of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Rows, sockets' metrics and shares.
    Rows,
    /// Processes beside rows.
    Processes,
    /// Events that sockets count.
    Sockets,
    /// The whole machine.
    Machine,
    /// This program.
    Own,
}

/// What a family says of series, which is a part of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aspect {
    /// What they are: of all but counters.
    Value,
    /// Of a counter: as counted.
    Raw,
    /// Of a counter of what samples stand for: how many samples.
    Samples,
    /// Of a counter group: the time for which it could have been live.
    Enabled,
    /// Of a counter group: the time for which it was.
    Running,
    /// Of a counter: for the whole time.
    Estimated,
    /// The lower end of the 95% interval.
    Lower,
    /// The upper end.
    Upper,
    /// The standard error.
    Error,
    /// The smallest share of the window for which one of the events was on the PMU.
    Live,
    /// The largest possible value, where it is above that.
    Bound,
}

/// How many there are.
const ASPECTS: usize = Aspect::Bound as usize + 1;
const LEVELS: usize = Level::Own as usize + 1;

impl Aspect {
    /// Its words in the name, and its words in the help text; for a counter group the whole help
    /// text.
    fn words(self, kind: Kind) -> (&'static str, &'static str) {
        match (self, kind) {
            (Self::Value | Self::Raw, _) => ("", ""),
            (Self::Samples, _) => ("samples", ": samples"),
            (Self::Enabled, _) => (
                "enabled",
                "Time for which the events of a counter group were enabled, since the row began",
            ),
            (Self::Running, _) => (
                "running",
                "Time for which the events of a counter group were on the PMU, since the row began",
            ),
            (Self::Estimated, _) => ("estimated", ": estimate for the whole time"),
            (Self::Lower, Kind::Counter) => (
                "estimated_lower",
                ": lower end of the 95% interval of the estimate",
            ),
            (Self::Upper, Kind::Counter) => (
                "estimated_upper",
                ": upper end of the 95% interval of the estimate",
            ),
            (Self::Error, Kind::Counter) => (
                "estimated_counting_error",
                ": standard error of the estimate, as far as counting makes it",
            ),
            (Self::Lower, _) => ("lower", ": lower end of the 95% interval"),
            (Self::Upper, _) => ("upper", ": upper end of the 95% interval"),
            (Self::Error, _) => (
                "counting_error",
                ": standard error, as far as counting makes it",
            ),
            (Self::Live, _) => (
                "live",
                ": smallest share of the window for which one of its events was on the PMU",
            ),
            (Self::Bound, _) => (
                "exceeded_bound",
                ": largest possible value, where its events did not count the same things",
            ),
        }
    }

    /// Its unit in the model, where it is not the metric's.
    fn unit(self) -> Option<&'static str> {
        match self {
            Self::Samples => Some(""),
            Self::Enabled | Self::Running => Some("ns"),
            Self::Live => Some("1"),
            _ => None,
        }
    }

    fn kind(self, of: Kind) -> Kind {
        match self {
            Self::Value => of,
            Self::Raw | Self::Samples | Self::Enabled | Self::Running | Self::Estimated => {
                Kind::Counter
            }
            Self::Lower | Self::Upper | Self::Error | Self::Live | Self::Bound => Kind::Gauge,
        }
    }
}

/// Samples of one name.
pub(super) struct Family {
    pub(super) name: String,
    pub(super) help: String,
    /// The last word or words of the name; empty for none.
    pub(super) unit: String,
    /// From the unit of the metric to the family's.
    pub(super) factor: f64,
    pub(super) kind: Kind,
    pub(super) aspect: Aspect,
    /// Of several events.
    events: bool,
}

impl Family {
    /// What its type is called.
    pub(super) fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
            Kind::State => "stateset",
        }
    }
}

/// The families of a report, in the order of their first series.
pub(super) struct Families<'a> {
    report: &'a Report,
    list: Vec<Family>,
    /// By metric, level, whether it is told by where accesses were served, and aspect.
    known: Vec<Option<usize>>,
}

impl<'a> Families<'a> {
    pub(super) fn new(report: &'a Report) -> Self {
        Self {
            report,
            list: Vec::new(),
            known: vec![None; report.metrics.len() * LEVELS * 2 * ASPECTS],
        }
    }

    pub(super) fn list(&self) -> &[Family] {
        &self.list
    }

    /// The family of an aspect of a metric: its index.
    pub(super) fn of(
        &mut self,
        metric: u32,
        level: Level,
        by_source: bool,
        aspect: Aspect,
    ) -> usize {
        let at = metric as usize * LEVELS + level as usize;
        let at = (at * 2 + usize::from(by_source)) * ASPECTS + aspect as usize;
        if let Some(family) = self.known[at] {
            return family;
        }
        let described = &self.report.metrics[metric as usize];
        let mut family = family(described, level, by_source, aspect);
        let same = |known: &Family| known.name == family.name;
        let found = match self.list.iter().position(same) {
            // Events of one unit are one family.
            Some(found) if family.events && self.list[found].events => found,
            found => {
                // Names that differ only in characters that the format does not allow.
                if found.is_some() {
                    family.name = format!("{}_{metric}", family.name);
                    family.unit.clear();
                }
                self.list.push(family);
                self.list.len() - 1
            }
        };
        self.known[at] = Some(found);
        found
    }
}

fn family(metric: &Metric, level: Level, by_source: bool, aspect: Aspect) -> Family {
    let level = match level {
        Level::Rows => "",
        Level::Processes => "process_",
        Level::Sockets => "socket_",
        Level::Machine => "machine_",
        Level::Own => "self_",
    };
    let by_source = if by_source { "by_source_" } else { "" };
    let events = metric.is_event();
    let (name, help) = match events {
        true => ("events", "What events counted since the row began"),
        false => (metric.name.as_str(), metric.help.as_str()),
    };
    let (own_unit, short, _) = base_unit(&metric.unit);
    let words = name
        .split('_')
        .filter(|word| *word != short || short.is_empty());
    let name = valid(&words.collect::<Vec<_>>().join("_"));
    // The unit comes last, in full.
    let own_unit = valid(&own_unit);
    let stem = match name.strip_suffix(&own_unit) {
        Some(rest) if !own_unit.is_empty() && rest.ends_with('_') => rest.trim_end_matches('_'),
        Some("") if !own_unit.is_empty() => "",
        _ => &name,
    };
    let (word, more) = aspect.words(metric.kind);
    let (unit, _, factor) = base_unit(aspect.unit().unwrap_or(&metric.unit));
    let unit = valid(&unit);
    let parts = [stem, word, &unit];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    let name = parts.collect::<Vec<_>>().join("_");
    Family {
        name: format!("pmuscope_{level}{by_source}{name}"),
        help: match aspect {
            Aspect::Enabled | Aspect::Running => more.to_owned(),
            _ => format!("{help}{more}"),
        },
        unit,
        factor,
        kind: aspect.kind(metric.kind),
        aspect,
        events,
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
        "B/access" => ("bytes_per_access", "", 1.0),
        "1/B" => ("per_byte", "", 1.0),
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
    use crate::derive::Counting;

    fn metric(name: &str, unit: &str, kind: Kind, counting: Counting) -> Metric {
        Metric {
            name: name.to_owned(),
            help: String::new(),
            unit: unit.to_owned(),
            kind,
            counting,
        }
    }

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
            let metric = metric(name, unit, Kind::Gauge, Counting::All);
            let family = family(&metric, Level::Rows, false, Aspect::Value);
            assert_eq!(family.name, expected);
        }
    }

    #[test]
    fn what_is_beside_a_value_has_its_word_before_the_unit() {
        let clock = metric("task-clock", "ns", Kind::Counter, Counting::Event(1.0));
        let sampled = metric("spe_operations", "", Kind::Counter, Counting::Samples);
        let latency = metric("latency_cycles", "cycles", Kind::Gauge, Counting::All);
        let ratio = metric("miss_ratio", "1", Kind::Gauge, Counting::All);
        let cases = [
            (&clock, Aspect::Raw, "events_seconds"),
            (&clock, Aspect::Running, "events_running_seconds"),
            (&clock, Aspect::Estimated, "events_estimated_seconds"),
            (
                &clock,
                Aspect::Error,
                "events_estimated_counting_error_seconds",
            ),
            (&sampled, Aspect::Samples, "spe_operations_samples"),
            (&sampled, Aspect::Lower, "spe_operations_estimated_lower"),
            (&latency, Aspect::Value, "latency_cycles"),
            (&latency, Aspect::Upper, "latency_upper_cycles"),
            (&ratio, Aspect::Live, "miss_live_ratio"),
            (&ratio, Aspect::Error, "miss_counting_error_ratio"),
        ];
        for (metric, aspect, expected) in cases {
            let family = family(metric, Level::Rows, false, aspect);
            assert_eq!(family.name, format!("pmuscope_{expected}"));
            assert!(family.name.ends_with(&family.unit));
        }
    }
}
