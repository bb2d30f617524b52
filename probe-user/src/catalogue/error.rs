//! What can be wrong with a catalogue file, a selection of metrics, or a machine.

use super::{chip::Platform, event_spec::CountOf};
use crate::{
    event::{EventError, Nearest},
    formula::FormulaError,
};

/// A catalogue file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "catalogue {file}: {problem}{}",
    .line.map(|line| format!(" (line {line})")).unwrap_or_default()
)]
pub struct CatalogueError {
    /// The file.
    pub file: Box<str>,
    /// The line, counted from 1; `None` if unknown, or if the problem states it.
    pub line: Option<u32>,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a catalogue file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Read(std::io::Error),
    /// It is no JSON.
    #[error("is no JSON that perf reads: {0}")]
    Json(serde_json::Error),
    /// mapfile.csv names no files for the CPU.
    #[error("mapfile.csv has no row for {0} whose files are here: give the directory of a model")]
    NoModel(String),
    /// A model with events but no metrics.
    #[error("its files of {0} have no metrics: take those of intel/perfmon or of a newer kernel")]
    NoMetrics(String),
    /// The platform's CPUs match several rows of mapfile.csv.
    #[error("it has several models of this platform: give the directory of one: {0}")]
    SeveralModels(String),
    /// A directory with more files than one CPU model has.
    #[error("it has {0} files, more than {1}: give the directory of a model")]
    TooManyFiles(usize, usize),
    /// It is not in the format.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// A family with this name exists already.
    #[error("there is a family {0} already: give this one another name")]
    FamilyTwice(String),
    /// No platform, no PMU or no metric.
    #[error("it has no {0}: add one")]
    Nothing(&'static str),
    /// A pattern of PMU names that is not valid, such as one with an unknown placeholder.
    #[error("PMU {pmu}: pattern `{pattern}`: {why}")]
    Pattern {
        /// The key of the PMU.
        pmu: String,
        /// As written.
        pattern: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An event name that a formula cannot use.
    #[error(
        "event {0}: a formula cannot name it; use letters, digits, `_` and dots, and no word of \
         the formula language"
    )]
    EventName(String),
    /// Platforms or drivers in a file that is not compiled in.
    #[error(
        "it has a [[platform]] or a [driver], which only the files that are compiled in can have: \
         add it to \
         probe-user/catalogue, or name platforms that are there"
    )]
    Platform,
    /// Two platforms with the same name, chip, PMU, chip id or MIDR.
    #[error("{0} is in two platforms: nothing would tell them apart")]
    PlatformTwice(String),
    /// A driver that is not described.
    #[error("there is no driver {0} in [driver] of any file: describe it there")]
    Driver(String),
    /// `weights_of` names an unknown platform.
    #[error("weights_of names {0}, which is no platform of any file")]
    WeightsOf(String),
    /// A `local` weight without `remote`: accesses to other sockets' memory have no weight.
    #[error("weight {0} is local and has no `remote`, which would count the other sockets' memory")]
    LocalAlone(String),
    /// An event with this name is in two PMUs of the file.
    #[error("event {0} is defined twice: rename one of them")]
    EventTwice(String),
    /// An encoding with an unknown placeholder.
    #[error("event {event}: {{{placeholder}}} is no placeholder of PMU {pmu}")]
    Placeholder {
        /// The event.
        event: String,
        /// The key of its PMU.
        pmu: String,
        /// Without the braces.
        placeholder: String,
    },
    /// An encoding that perf accepts on no machine.
    #[error("event {event}: {error}; write an event of its PMU as `{{pmu}}/NAME/`")]
    Perf {
        /// The event.
        event: String,
        /// What is wrong with it.
        error: Box<EventError>,
    },
    /// Something is wrong with one metric.
    #[error("metric {name}: {problem}")]
    Metric {
        /// Its name.
        name: String,
        /// What is wrong with it.
        problem: MetricProblem,
    },
}

impl Problem {
    /// The line of the table or event that the problem is about; `None` if it is not known.
    pub(super) fn line(&self, text: &str) -> Option<u32> {
        let is_event = |line: &str, event: &str| {
            let key = line.split('=').next().unwrap_or_default().trim();
            key.trim_matches('"') == event
        };
        let has_value = |line: &str, key: &str, value: &str| {
            let pair = line.split_once('=');
            pair.is_some_and(|(name, text)| {
                let text = text.split('#').next().unwrap_or_default();
                name.trim() == key && text.trim().trim_matches('"') == value
            })
        };
        let is_about = |line: &str| match self {
            Self::Metric { name, .. } | Self::FamilyTwice(name) => has_value(line, "name", name),
            Self::EventName(event)
            | Self::EventTwice(event)
            | Self::Placeholder { event, .. }
            | Self::Perf { event, .. } => is_event(line, event),
            Self::Pattern { pattern, .. } => has_value(line, "pattern", pattern),
            Self::Platform => ["[[platform]]", "[driver]"].contains(&line),
            Self::Read(_)
            | Self::Json(_)
            | Self::NoModel(_)
            | Self::NoMetrics(_)
            | Self::SeveralModels(_)
            | Self::TooManyFiles(..)
            | Self::Toml(_)
            | Self::Nothing(_)
            | Self::PlatformTwice(_)
            | Self::Driver(_)
            | Self::WeightsOf(_)
            | Self::LocalAlone(_) => false,
        };
        // The first `name` is the family's. Of two metrics or events with one name, the last is the
        // duplicate.
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let index = match self {
            Self::FamilyTwice(_) => lines.iter().position(|line| is_about(line)),
            _ => lines.iter().rposition(|line| is_about(line)),
        };
        u32::try_from(index? + 1).ok()
    }
}

/// What is wrong with a metric.
#[derive(Debug, thiserror::Error)]
pub enum MetricProblem {
    /// Not in `snake_case`.
    #[error("its name is not snake_case")]
    Name,
    /// The name or an alias is taken.
    #[error("{name} is a metric of {family} already, on platform {platform}")]
    Taken {
        /// The name or alias.
        name: String,
        /// The family that has it.
        family: String,
        /// A platform that both apply to.
        platform: Platform,
    },
    /// The formula is not in the grammar.
    #[error(transparent)]
    Formula(#[from] FormulaError),
    /// The formula names an event that the file does not define.
    #[error("the file defines no event {event}; near: {near}")]
    Event {
        /// The event.
        event: String,
        /// What it was probably meant to be.
        near: Nearest,
    },
    /// `from_sockets` without the PMU's `mismatch`.
    #[error(
        "from_sockets needs `mismatch` of PMU {0}: how far source and destination may differ, in \
         thousandths"
    )]
    Mismatch(String),
    /// Metrics that name each other in a cycle.
    #[error("its formula needs its own value: {0}; write one of them over events")]
    Cycle(String),
    /// The formula names a metric that does not apply to all platforms of the file.
    #[error("{0} is a metric, but not of all platforms of this file: a formula cannot name it")]
    Elsewhere(String),
    /// Events of two PMUs cannot be in one group, so no ratio of them is exact.
    #[error("its events are of two PMUs, {0} and {1}: they cannot be in one group")]
    TwoPmus(String, String),
    /// A clock and a counter in one formula.
    #[error(
        "its formula has the clock {clock} and {other}, which count other parts of the time: write \
         counter_time for the time of its counters"
    )]
    Clock {
        /// An event that counts ns.
        clock: String,
        /// Another event.
        other: String,
    },
    /// A formula without events, in a file with several PMUs.
    #[error("its formula names no event, so it is not known which PMU's time it needs")]
    NoPmu,
    /// A note or reason that is not in `[notes]`.
    #[error("there is no note {0} in [notes]: add it")]
    Note(String),
    /// A chip of another platform.
    #[error("not_on names {0}, which is on no platform of the file")]
    Chip(super::Chip),
    /// A bound that no value can be below.
    #[error("bound {0} is not above zero: give the largest possible value")]
    Bound(f64),
    /// A bandwidth over events whose counts have no size in bytes.
    #[error("it is a bandwidth in {unit}, but one count of {event} is {count}")]
    NotBytes {
        /// The unit of the metric.
        unit: String,
        /// The event.
        event: String,
        /// What one count is.
        count: CountOf,
    },
    /// A bandwidth with the wrong factor.
    #[error(
        "it is in {unit} and one count of {event} is {count}: the factor in the formula must be \
         {expected}, it is {found}"
    )]
    Factor {
        /// The unit of the metric.
        unit: String,
        /// The event.
        event: String,
        /// What one count is.
        count: CountOf,
        /// What one count per second (or one count in flight) must give.
        expected: f64,
        /// What it gives.
        found: f64,
    },
    /// A bandwidth with a formula that is not bytes divided by time.
    #[error("it is in {unit}, but its formula is no sum of counts divided by time")]
    NoBandwidth {
        /// The unit of the metric.
        unit: String,
    },
}

/// A list of metrics that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// No platform has a metric of this name.
    #[error("there is no metric {name}; near: {near}. `pmuscope list metrics` names all")]
    Unknown {
        /// As written.
        name: String,
        /// What it was probably meant to be.
        near: Nearest,
    },
    /// A metric of a user's directory that cannot be computed.
    #[error("metric {name} of {source_} cannot be used: {reason}")]
    Refused {
        /// As written.
        name: String,
        /// The directory.
        source_: String,
        /// Why.
        reason: String,
    },
    /// A metric of another platform.
    #[error("metric {name} is for {platforms}, and this machine is {here}: --chip selects another")]
    Elsewhere {
        /// As written.
        name: String,
        /// The platforms that it applies to.
        platforms: String,
        /// The platform of the machine.
        here: Platform,
    },
    /// No group of that name on this platform.
    #[error("there is no metric group {name} on {here}; there are: {groups}")]
    Group {
        /// As written.
        name: String,
        /// The platform of the machine.
        here: Platform,
        /// The groups.
        groups: String,
    },
    /// An empty element.
    #[error("the list of metrics has an empty element: remove the comma before or after it")]
    Empty,
}

/// Why the counters of a metric cannot be opened on this machine.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// No PMU has this name.
    #[error("there is no PMU {0}: its driver is not loaded, or the hardware does not have it")]
    NoPmu(String),
    /// No core PMU: the CPUs have none, or the hypervisor hides it.
    #[error("this machine has no core PMU (a virtual machine may have none)")]
    NoCorePmu,
    /// The metric is about other sockets, and the machine has only one.
    #[error("there is only one {0}, so there is no peer socket")]
    NoPeer(String),
    /// No device is behind the parts that it counts.
    #[error("there is no device behind any {0}")]
    NoDevice(String),
    /// A write metric on a link to another CPU.
    #[error("the peer of {0} is another CPU: the hardware counts only reads on such a link")]
    CpuPeer(String),
    /// An event that this PMU does not have.
    #[error(transparent)]
    Event(#[from] EventError),
}
