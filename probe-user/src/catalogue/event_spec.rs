//! An event of the catalogue: how to open it, and what it counts.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An event of a catalogue file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EventSpec {
    /// perf's `-e` string, with placeholders.
    pub perf: String,
    /// The quantity that SPE samples estimate; `None` for a plain count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled: Option<SampledQuantity>,
    /// The value of its term `event`, by which raw event codes are recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// What one count is.
    pub count: CountOf,
    /// What it counts, in a sentence. In the built-in files only events that are in no formula have
    /// a text: the other events are described by their metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Other names under which tools print it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The only counters that can count it; `None`: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<Vec<u8>>,
    /// Whether it has a fixed counter, and so takes no general one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fixed: bool,
}

impl EventSpec {
    /// Whether a PMU lists it under this name in sysfs. A PMU lists an event with `{peer}` once for
    /// each socket.
    pub(super) fn is_listed_as(&self, name: &str) -> bool {
        let terms = self.perf.strip_prefix("{pmu}/");
        let Some(listed) = terms.and_then(|terms| terms.strip_suffix('/')) else {
            return false;
        };
        match listed.split_once("{peer}") {
            None => listed == name,
            Some((before, after)) => name
                .strip_prefix(before)
                .and_then(|rest| rest.strip_suffix(after))
                .is_some_and(|number| number.parse::<u32>().is_ok()),
        }
    }
}

/// A quantity that is estimated from SPE samples. Data sources are those of
/// [`probe_common::spe::Source`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SampledQuantity {
    /// Loads, and atomics that return a value.
    Loads,
    /// Cycles of loads from dispatch to completion.
    LoadCycles,
    /// Loads with a translation table walk.
    LoadWalks,
    /// Loads with a known data source.
    SourcedLoads,
    /// Loads that the level 1 data cache served.
    L1Loads,
    /// Loads that the level 2 cache served.
    L2Loads,
    /// Loads that another core's cache served.
    PeerLoads,
    /// Loads that a cache of a cluster served.
    ClusterLoads,
    /// Loads that the level 3 or system cache of the socket served.
    SystemCacheLoads,
    /// Loads that the memory of the socket served.
    DramLoads,
    /// Loads that another socket served.
    RemoteLoads,
    /// Stores, and atomics that return no value.
    Stores,
    /// Cycles of stores from dispatch to completion.
    StoreCycles,
    /// Stores with a translation table walk.
    StoreWalks,
}

/// What one count of an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CountOf {
    /// A byte.
    Byte,
    /// A word of 4 bytes.
    Word4,
    /// A data beat of up to 32 bytes.
    Beat32,
    /// A cache line of 64 bytes.
    Line64,
    /// A request of any size.
    Request,
    /// A request of 32 bytes.
    Request32,
    /// A request that waits for one cycle.
    Outstanding,
    /// A cycle.
    Cycle,
    /// A slot that an operation could have taken.
    Slot,
    /// An instruction.
    Instruction,
    /// An operation (micro-operation).
    Operation,
    /// An occurrence of anything else.
    Event,
    /// A nanosecond.
    Ns,
    /// The file does not state it.
    Unstated,
}

impl CountOf {
    /// The bytes of one count; `None` if counts have no size in bytes.
    #[must_use]
    pub fn bytes(self) -> Option<u32> {
        match self {
            Self::Byte => Some(1),
            Self::Word4 => Some(4),
            Self::Beat32 | Self::Request32 => Some(32),
            Self::Line64 => Some(64),
            Self::Request
            | Self::Outstanding
            | Self::Cycle
            | Self::Slot
            | Self::Instruction
            | Self::Operation
            | Self::Event
            | Self::Ns
            | Self::Unstated => None,
        }
    }
}

/// In words, as in "one count is a cycle".
impl fmt::Display for CountOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Byte => "a byte",
            Self::Word4 => "a word of 4 bytes",
            Self::Beat32 => "a beat of up to 32 bytes",
            Self::Line64 => "a line of 64 bytes",
            Self::Request => "a request",
            Self::Request32 => "a request of 32 bytes",
            Self::Outstanding => "a request waiting for a cycle",
            Self::Cycle => "a cycle",
            Self::Slot => "a slot",
            Self::Instruction => "an instruction",
            Self::Operation => "an operation",
            Self::Event => "an event",
            Self::Ns => "a nanosecond",
            Self::Unstated => "of a unit that the file does not state",
        })
    }
}
