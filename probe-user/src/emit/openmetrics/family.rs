//! Metric families, named and scaled to base units by the conventions of Prometheus.

use crate::derive::{CounterSource, MetricInfo, MetricKind, Report};

/// The level of the subjects of a family, which is a part of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubjectLevel {
    /// Rows, sockets' metrics and shares.
    Rows,
    /// Processes in addition to rows.
    Processes,
    /// Events of sockets.
    Sockets,
    /// The whole machine.
    Machine,
    /// This program.
    SelfCounters,
}

/// The aspect of series in a family, which is a part of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aspect {
    /// The value of any metric but a counter.
    Value,
    /// The raw count of a counter.
    Raw,
    /// The number of samples of a sampled counter.
    Samples,
    /// The enabled time of a counter group.
    Enabled,
    /// The running time of a counter group.
    Running,
    /// The estimate of a counter for the whole time.
    Estimated,
    /// The lower end of the 95% interval.
    Lower,
    /// The upper end of the 95% interval.
    Upper,
    /// The standard error.
    Error,
    /// The smallest running ratio of the metric's events in the window.
    RunningRatio,
    /// The largest possible value, if the value exceeds it.
    Bound,
}

/// The number of aspects.
const ASPECTS: usize = Aspect::Bound as usize + 1;

/// The number of levels of subjects.
const LEVELS: usize = SubjectLevel::SelfCounters as usize + 1;

impl Aspect {
    /// Words for the metric name and the help text; for a counter group the whole help text.
    fn words(self, kind: MetricKind) -> (&'static str, &'static str) {
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
            (Self::Lower, MetricKind::Counter) => (
                "estimated_lower",
                ": lower end of the 95% interval of the estimate",
            ),
            (Self::Upper, MetricKind::Counter) => (
                "estimated_upper",
                ": upper end of the 95% interval of the estimate",
            ),
            (Self::Error, MetricKind::Counter) => (
                "estimated_counting_error",
                ": standard error of the estimate, as far as counting makes it",
            ),
            (Self::Lower, _) => ("lower", ": lower end of the 95% interval"),
            (Self::Upper, _) => ("upper", ": upper end of the 95% interval"),
            (Self::Error, _) => (
                "counting_error",
                ": standard error, as far as counting makes it",
            ),
            (Self::RunningRatio, _) => (
                "live",
                ": smallest share of the window for which one of its events was on the PMU",
            ),
            (Self::Bound, _) => (
                "exceeded_bound",
                ": largest possible value, where its events did not count the same things",
            ),
        }
    }

    /// The unit of the numbers of this aspect, if it differs from the unit of the metric.
    fn unit(self) -> Option<&'static str> {
        match self {
            Self::Samples => Some(""),
            Self::Enabled | Self::Running => Some("ns"),
            Self::RunningRatio => Some("1"),
            _ => None,
        }
    }

    /// The type of the families of this aspect, for a metric of this kind.
    fn kind(self, of_metric: MetricKind) -> MetricKind {
        match self {
            Self::Value => of_metric,
            Self::Raw | Self::Samples | Self::Enabled | Self::Running | Self::Estimated => {
                MetricKind::Counter
            }
            Self::Lower | Self::Upper | Self::Error | Self::RunningRatio | Self::Bound => {
                MetricKind::Gauge
            }
        }
    }
}

/// A family of samples with one name.
pub(super) struct MetricFamily {
    pub(super) name: String,
    pub(super) help: String,
    /// Unit suffix of the name; empty for none.
    pub(super) unit: String,
    /// Factor from the unit of the family's first metric to the unit of the family. Only events
    /// share a family, and each has its own factor ([`Families::index_of`]).
    pub(super) factor: f64,
    pub(super) kind: MetricKind,
    pub(super) aspect: Aspect,
    /// Whether all its numbers are whole, in every window.
    pub(super) is_whole: bool,
    /// Whether it holds events, which the label `event` names.
    holds_events: bool,
}

impl MetricFamily {
    /// The type name in the text formats.
    pub(super) fn type_name(&self) -> &'static str {
        match self.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::Info => "info",
            MetricKind::State => "stateset",
        }
    }
}

/// The families of a report, in the order of their first series.
pub(super) struct Families<'a> {
    report: &'a Report,
    list: Vec<MetricFamily>,
    /// Indices into `list` and factors to the family's unit, by metric, level, whether split by
    /// data source, and aspect.
    indices: Vec<Option<(usize, f64)>>,
}

impl<'a> Families<'a> {
    pub(super) fn new(report: &'a Report) -> Self {
        Self {
            report,
            list: Vec::new(),
            indices: vec![None; report.metrics.len() * LEVELS * 2 * ASPECTS],
        }
    }

    pub(super) fn list(&self) -> &[MetricFamily] {
        &self.list
    }

    /// The index of the family for an aspect of a metric, and the factor from the unit of the
    /// metric to the unit of the family.
    pub(super) fn index_of(
        &mut self,
        metric: u32,
        level: SubjectLevel,
        by_source: bool,
        aspect: Aspect,
    ) -> (usize, f64) {
        let of_level = metric as usize * LEVELS + level as usize;
        let at = (of_level * 2 + usize::from(by_source)) * ASPECTS + aspect as usize;
        if let Some(found) = self.indices[at] {
            return found;
        }
        let described = &self.report.metrics[metric as usize];
        let mut family = family(described, level, by_source, aspect);
        let factor = family.factor;
        let same = |known: &MetricFamily| known.name == family.name;
        let found = match self.list.iter().position(same) {
            // Events with the same base unit share a family.
            Some(found) if family.holds_events && self.list[found].holds_events => found,
            found => {
                family.is_whole &= !family.holds_events || self.are_events_whole(described);
                // The metrics' names differ only in characters that the format does not allow.
                if found.is_some() {
                    family.name = format!("{}_{metric}", family.name);
                    family.unit.clear();
                }
                self.list.push(family);
                self.list.len() - 1
            }
        };
        self.indices[at] = Some((found, factor));
        (found, factor)
    }

    /// Whether no event of this event's unit has a scale with a fraction.
    fn are_events_whole(&self, event: &MetricInfo) -> bool {
        let unit = |metric: &MetricInfo| base_unit(&metric.unit).0;
        let is_fraction = |metric: &&MetricInfo| match metric.counting {
            CounterSource::Event(scale) => scale.fract() != 0.0,
            CounterSource::All | CounterSource::Samples => false,
        };
        let mut fractions = self.report.metrics.iter().filter(is_fraction);
        fractions.all(|metric| unit(metric) != unit(event))
    }
}

fn family(
    metric: &MetricInfo,
    level: SubjectLevel,
    by_source: bool,
    aspect: Aspect,
) -> MetricFamily {
    let level = match level {
        SubjectLevel::Rows => "",
        SubjectLevel::Processes => "process_",
        SubjectLevel::Sockets => "socket_",
        SubjectLevel::Machine => "machine_",
        SubjectLevel::SelfCounters => "self_",
    };
    let by_source = if by_source { "by_source_" } else { "" };
    let holds_events = metric.is_event();
    let (name, help) = match holds_events {
        true => ("events", "What events counted since the row began"),
        false => (metric.name.as_str(), metric.help.as_str()),
    };
    let (own_unit, short, _) = base_unit(&metric.unit);
    let words = name
        .split('_')
        .filter(|word| *word != short || short.is_empty());
    let name = valid_name(&words.collect::<Vec<_>>().join("_"));
    // Strips the unit: the base unit is appended in full below.
    let own_unit = valid_name(&own_unit);
    let stem = match name.strip_suffix(&own_unit) {
        Some(rest) if !own_unit.is_empty() && rest.ends_with('_') => rest.trim_end_matches('_'),
        Some("") if !own_unit.is_empty() => "",
        _ => &name,
    };
    let (word, help_suffix) = aspect.words(metric.kind);
    let (unit, _, factor) = base_unit(aspect.unit().unwrap_or(&metric.unit));
    let unit = valid_name(&unit);
    let parts = [stem, word, &unit]
        .into_iter()
        .filter(|part| !part.is_empty());
    let name = parts.collect::<Vec<_>>().join("_");
    MetricFamily {
        name: format!("pmuscope_{level}{by_source}{name}"),
        help: match aspect {
            Aspect::Enabled | Aspect::Running => help_suffix.to_owned(),
            _ => format!("{help}{help_suffix}"),
        },
        is_whole: match aspect {
            // An event in ns may share the family of one in s.
            Aspect::Raw | Aspect::Samples => factor == 1.0 && unit != "seconds",
            _ => matches!(metric.kind, MetricKind::Info | MetricKind::State),
        },
        unit,
        factor,
        kind: aspect.kind(metric.kind),
        aspect,
        holds_events,
    }
}

/// The base unit of a unit, the word for the unit in metric names, and the factor.
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

/// Lower case, with `_` instead of invalid characters.
fn valid_name(name: &str) -> String {
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
    use crate::derive::CounterSource;

    fn metric(name: &str, unit: &str, kind: MetricKind, counting: CounterSource) -> MetricInfo {
        MetricInfo {
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
                "memory_access_latency_mean_cycles",
                "cycles",
                "pmuscope_memory_access_latency_mean_cycles",
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
            let metric = metric(name, unit, MetricKind::Gauge, CounterSource::All);
            let family = family(&metric, SubjectLevel::Rows, false, Aspect::Value);
            assert_eq!(family.name, expected);
        }
    }

    #[test]
    fn the_word_of_an_aspect_precedes_the_unit() {
        let clock = metric(
            "task-clock",
            "ns",
            MetricKind::Counter,
            CounterSource::Event(1.0),
        );
        let sampled = metric(
            "memory_accesses",
            "",
            MetricKind::Counter,
            CounterSource::Samples,
        );
        let latency = metric(
            "latency_cycles",
            "cycles",
            MetricKind::Gauge,
            CounterSource::All,
        );
        let ratio = metric("miss_ratio", "1", MetricKind::Gauge, CounterSource::All);
        let cases = [
            (&clock, Aspect::Raw, "events_seconds"),
            (&clock, Aspect::Running, "events_running_seconds"),
            (&clock, Aspect::Estimated, "events_estimated_seconds"),
            (
                &clock,
                Aspect::Error,
                "events_estimated_counting_error_seconds",
            ),
            (&sampled, Aspect::Samples, "memory_accesses_samples"),
            (&sampled, Aspect::Lower, "memory_accesses_estimated_lower"),
            (&latency, Aspect::Value, "latency_cycles"),
            (&latency, Aspect::Upper, "latency_upper_cycles"),
            (&ratio, Aspect::RunningRatio, "miss_live_ratio"),
            (&ratio, Aspect::Error, "miss_counting_error_ratio"),
        ];
        for (metric, aspect, expected) in cases {
            let family = family(metric, SubjectLevel::Rows, false, aspect);
            assert_eq!(family.name, format!("pmuscope_{expected}"));
            assert!(family.name.ends_with(&family.unit));
        }
    }
}
