//! All errors of `-e`, each as one sentence: the problem, the event, the remedy.
//!
//! The sentence includes the cause. `source()` is empty, so that the cause is not printed twice.

use std::sync::Arc;

use thiserror::Error;

use super::nearest::Nearest;
use crate::machine::{FieldFormat, SysfsError};

/// Why a list of events cannot be counted.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "each variant's message says what it and its fields are"
)]
pub enum EventError {
    #[error("the list of events is empty; name at least one, such as task-clock")]
    Empty,
    #[error("cannot read the events `{text}` at column {column}: expected {expected}")]
    Syntax {
        text: String,
        column: usize,
        expected: String,
    },
    #[error("unknown event `{event}`; the nearest known ones are {nearest}")]
    UnknownEvent { event: String, nearest: Nearest },
    #[error(
        "`{event}` is an event of {pmu}, which is not the CPU's own PMU; write `{pmu}/{event}/`"
    )]
    NeedsPmu { event: String, pmu: String },
    #[error("`{pmu}` is a PMU and not an event; write `{pmu}/event/` (its events: {nearest})")]
    PmuAlone { pmu: String, nearest: Nearest },
    #[error("unknown PMU `{pmu}` in `{event}`; the nearest ones of this machine are {nearest}")]
    UnknownPmu {
        pmu: String,
        event: String,
        nearest: Nearest,
    },
    #[error("the PMU `{pmu}` cannot be used: {reason}")]
    UnreadablePmu {
        pmu: String,
        reason: Arc<SysfsError>,
    },
    #[error(
        "`{event}` needs the CPU's own PMU, and this machine shows none{unreadable}; software \
         events such as task-clock work without"
    )]
    NoCorePmu {
        event: String,
        /// Empty, or the errors of PMUs that could not be read.
        unreadable: String,
    },
    #[error(
        "`{event}` means something else on each kind of CPU of this machine; write it as \
         `pmu/{term}/` with one of {pmus}"
    )]
    SeveralCorePmus {
        event: String,
        term: String,
        pmus: String,
    },
    #[error(
        "the cpumask of `{pmu}` is empty, so there is no CPU to open `{event}` on; bring {which} \
         online"
    )]
    EmptyCpumask {
        pmu: String,
        event: String,
        /// A suitable CPU, in words.
        which: String,
    },
    #[error("`{pmu}` has no event `{event}`; its nearest ones are {nearest}")]
    UnknownPmuEvent {
        pmu: String,
        event: String,
        nearest: Nearest,
    },
    #[error(
        "`{pmu}` has no event or term `{name}`; its nearest events are {nearest}, its terms {terms}"
    )]
    UnknownEventOrTerm {
        pmu: String,
        name: String,
        nearest: Nearest,
        terms: String,
    },
    #[error("`{pmu}` has no term `{term}`; its terms are {terms}")]
    UnknownTerm {
        pmu: String,
        term: String,
        terms: String,
    },
    #[error(
        "the term `{term}` of `{pmu}` is for perf's sampling and task modes; pmuscope counts per \
         CPU, so leave it out"
    )]
    PerfTerm { pmu: String, term: String },
    #[error(
        "`{value}` is no value for the term `{term}` of `{pmu}`; give a number of at most 64 \
         bits, decimal or with 0x"
    )]
    NotANumber {
        pmu: String,
        term: String,
        value: String,
    },
    #[error(
        "{value:#x} does not fit the term `{term}` of `{pmu}`, which has room for {} ({format}); \
         the largest value is {:#x}",
        bits(format.width()),
        format.max()
    )]
    TooWide {
        pmu: String,
        term: String,
        value: u64,
        format: FieldFormat,
    },
    #[error("`{event}` is an event of `{pmu}` and takes no value; leave out the `=`")]
    EventWithValue { pmu: String, event: String },
    #[error("the term `{term}` of `{pmu}` is given twice; keep one")]
    TwiceTheSameTerm { pmu: String, term: String },
    #[error(
        "`{pmu}` is given two events at once, `{first}` and `{second}`; write them as two events \
         of the list"
    )]
    TwoEvents {
        pmu: String,
        first: String,
        second: String,
    },
    #[error(
        "the event `{event}` of `{pmu}` asks for {term}={value:#x}, which the format/ of its \
         driver does not have; write the event's terms out"
    )]
    TermNotInFormat {
        pmu: String,
        event: String,
        term: String,
        value: u64,
    },
    #[error(
        "the modifier `{letter}` of `{event}` {why}; the modifiers are u (user), k (kernel), h \
         (hypervisor) and, for --sample, p (precise)"
    )]
    Modifier {
        letter: char,
        event: String,
        why: &'static str,
    },
    #[error("`{event}` cannot be narrowed to user or kernel: {why}; leave out its modifiers")]
    ModifierOnWhole { event: String, why: &'static str },
    #[error(
        "`{event}` cannot be narrowed to user or kernel: the kernel counts a clock at all levels; \
         leave out its modifiers, or sample it: `stat --sample {event}`"
    )]
    ModifierOnClock { event: String },
    #[error(
        "`{text}` looks like a tracepoint; pmuscope counts events of PMUs, software events and \
         duration_time"
    )]
    Tracepoint { text: String },
    #[error("`{event}` carries data and counts nothing; leave it out")]
    NotACount { event: String },
    #[error(
        "no hardware counts `{event}`: perf knows no {operation} on {cache}; use {cache}-loads"
    )]
    CacheOperation {
        event: String,
        cache: &'static str,
        operation: &'static str,
    },
    #[error(
        "{event} is the wall clock and no counter, so it cannot be in the group `{group}`; put it \
         beside the group"
    )]
    ClockInGroup { event: &'static str, group: String },
    #[error("the filter {term}={value} of `{pmu}` cannot be used: {why}")]
    Filter {
        pmu: String,
        term: String,
        value: String,
        /// The problem, and what to write instead.
        why: String,
    },
    #[error(
        "`{event}` selects by root port and by device address, and the hardware does either; \
         leave out src_rp_mask or src_bdf"
    )]
    TwoSources { event: String },
    #[error(
        "`{pmu}` has one filter by device address for all its events, and `{first}` and `{second}` \
         ask for two; count one device at a time, or select by root port (src_rp_mask)"
    )]
    TwoAddresses {
        pmu: String,
        first: String,
        second: String,
    },
    #[error(
        "the device address of `{narrow}` would narrow `{wide}` too, since `{pmu}` has one such \
         filter for all its events; give both the same src_bdf, or count them one after the other"
    )]
    AddressForAll {
        pmu: String,
        narrow: String,
        wide: String,
    },
    #[error(
        "`{pmu}` can tell {most} address ranges apart, and {ranges} address ranges are asked for; \
         leave some out"
    )]
    TooManyRanges {
        pmu: String,
        ranges: usize,
        most: usize,
    },
    #[error(
        "the group `{group}` mixes `{per_cpu}`, counted per CPU, with `{uncore}`, counted per \
         socket; put them in two groups"
    )]
    MixedScopes {
        group: String,
        per_cpu: String,
        uncore: String,
    },
    /// A scheduler event in a group with counters of a PMU.
    #[error(
        "the group `{group}` has `{event}`, which pmuscope's own program counts at switches, \
         beside counters of a PMU; write it outside of the braces"
    )]
    SchedulerInGroup { group: String, event: String },
    #[error(
        "the group `{group}` has events of the PMUs {first} and {second}, and the kernel groups \
         counters of one PMU only; make a group of each"
    )]
    MixedPmus {
        group: String,
        first: String,
        second: String,
    },
}

impl EventError {
    /// Whether the event is valid but this machine cannot count it.
    pub(super) fn is_of_machine(&self) -> bool {
        matches!(
            self,
            Self::NoCorePmu { .. } | Self::UnreadablePmu { .. } | Self::EmptyCpumask { .. }
        )
    }

    /// Whether the PMU lacks that event or term.
    pub(super) fn is_missing_name(&self) -> bool {
        matches!(
            self,
            Self::UnknownPmuEvent { .. }
                | Self::UnknownEventOrTerm { .. }
                | Self::UnknownTerm { .. }
        )
    }
}

/// `1 bit`, `2 bits`.
fn bits(width: u32) -> String {
    let plural = if width == 1 { "" } else { "s" };
    format!("{width} bit{plural}")
}
