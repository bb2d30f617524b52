//! The event lists of `-e`, in perf's syntax, resolved against the PMUs of the machine.
//!
//! `syntax` reads the text, `resolve` and `bare` join it and the machine's PMUs with the tables of
//! `generic`, and `encode` fills the bit fields. Nothing is opened here.

pub mod accesses;
mod bare;
mod encode;
mod error;
mod filters;
mod generic;
mod modifier;
mod nearest;
mod resolve;
pub mod sampling;
pub mod spe;
mod syntax;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub(crate) use self::filters::check as check_filters;
pub use self::{
    accesses::{Accesses, NoAccesses, accesses},
    error::EventError,
    nearest::Nearest,
};
pub use crate::sys::perf::Exclude;
use crate::{
    machine::{Pmus, Word, cpus::CpuList},
    sys::perf::Attr,
};

/// Events that are opened together, so that they count over the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct EventGroup {
    /// At least one; the first is the leader.
    pub events: Vec<Event>,
    /// Whether the user wrote it with braces; an event on its own is a group of one without.
    pub explicit: bool,
}

impl EventGroup {
    /// Whether one of its events is counted by that PMU.
    #[must_use]
    pub fn is_on(&self, pmu: &str) -> bool {
        self.events.iter().any(|event| {
            matches!(&event.source, Source::Counter(counter) if counter.pmu.as_deref() == Some(pmu))
        })
    }
}

/// One thing to count.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// As the user wrote it, with all modifiers that hold for it; or the value of `name=`.
    pub name: String,
    /// Where the count comes from.
    pub source: Source,
    /// The privilege levels left out.
    pub exclude: Exclude,
    /// The unit of the count times `scale`; `None` where it is a number of occurrences.
    pub unit: Option<String>,
    /// The factor from counts to `unit`; `None` is 1.
    pub scale: Option<f64>,
}

/// Where a count comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The wall clock, in ns; there is nothing to open.
    DurationTime,
    /// A counter of the kernel's.
    Counter(Counter),
}

/// What to open, in the terms of `perf_event_attr`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// The PMU that counts it; `None` where the kernel is left to find one.
    pub pmu: Option<String>,
    /// The CPUs to open it on.
    pub scope: Scope,
    /// `perf_event_attr.type`
    pub type_: u32,
    /// `perf_event_attr.config`
    pub config: u64,
    /// `perf_event_attr.config1`
    pub config1: u64,
    /// `perf_event_attr.config2`
    pub config2: u64,
    /// `perf_event_attr.config3`
    pub config3: u64,
    /// `perf_event_attr.config4`
    pub config4: u64,
}

impl Counter {
    /// One of its config words.
    #[must_use]
    pub fn word(&self, word: Word) -> u64 {
        match word {
            Word::Config => self.config,
            Word::Config1 => self.config1,
            Word::Config2 => self.config2,
            Word::Config3 => self.config3,
            Word::Config4 => self.config4,
        }
    }
}

/// The CPUs to open a counter on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// Every online CPU, each counting for itself.
    Cpu,
    /// The cores of one kind (`cpus` of their PMU), each counting for itself.
    Cpus(CpuList),
    /// Each CPU of the PMU's `cpumask`, counting for its whole socket or other part of the machine.
    Uncore {
        /// Never empty.
        cpus: CpuList,
    },
}

impl Counter {
    /// False for what the kernel counts itself.
    #[must_use]
    pub fn is_hardware(&self) -> bool {
        self.type_ != generic::TYPE_SOFTWARE
    }

    /// True for cpu-clock and task-clock, which the kernel counts at all levels.
    #[must_use]
    pub fn is_clock(&self) -> bool {
        self.type_ == generic::TYPE_SOFTWARE && self.config < 2
    }

    /// As the system call takes it.
    pub(crate) fn attr(&self) -> Attr {
        Attr {
            type_: self.type_,
            config: Word::ALL.map(|word| self.word(word)),
        }
    }

    /// The kernel's task-clock, which every machine counts.
    pub(crate) fn task_clock() -> Self {
        Self {
            pmu: Some("software".to_owned()),
            scope: Scope::Cpu,
            type_: generic::TYPE_SOFTWARE,
            config: generic::software("task-clock").expect("it is in the table"),
            config1: 0,
            config2: 0,
            config3: 0,
            config4: 0,
        }
    }
}

impl Scope {
    /// Whether a counter is opened on this CPU to count for it.
    #[must_use]
    pub fn counts_on(&self, cpu: u32) -> bool {
        match self {
            Self::Cpu => true,
            Self::Cpus(cpus) => cpus.contains(cpu),
            Self::Uncore { .. } => false,
        }
    }
}

/// Checks one event as far as no machine is needed: how it is written, and a name without a PMU.
///
/// # Errors
/// The first thing wrong with it.
pub(crate) fn check(text: &str) -> Result<(), EventError> {
    let items = syntax::parse(text)?;
    let heads = items.iter().flat_map(syntax::Item::heads);
    for head in heads {
        if let syntax::Head::Name(name) = head
            && !bare::is_generic(name)
        {
            let event = name.clone();
            let nearest = Nearest::to(name, generic::names());
            return Err(EventError::UnknownEvent { event, nearest });
        }
    }
    Ok(())
}

/// Reads a list of events and resolves it against the PMUs of the machine.
///
/// The syntax is perf's: events separated by commas, `{a,b}` for groups, `pmu/term,term=value/`,
/// raw `rNNNN`, and `:u`, `:k`, `:h` behind an event or a group.
///
/// # Errors
/// The first thing wrong with the text, or with an event on this machine.
pub fn parse(text: &str, pmus: &Pmus) -> Result<Vec<EventGroup>, EventError> {
    let groups = parse_sampled(text, pmus)?;
    let narrowed = |event: &&Event| {
        event.exclude != Exclude::default()
            && matches!(&event.source, Source::Counter(counter) if counter.is_clock())
    };
    match groups.iter().flat_map(|group| &group.events).find(narrowed) {
        Some(event) => Err(EventError::ModifierOnWhole {
            event: event.name.clone(),
            why: "the kernel counts a clock at all levels",
        }),
        None => Ok(groups),
    }
}

/// The same of events that are sampled: the kernel takes samples of a clock at one level, too.
fn parse_sampled(text: &str, pmus: &Pmus) -> Result<Vec<EventGroup>, EventError> {
    let groups = resolve::resolve(&syntax::parse(text)?, pmus)?;
    let events = groups.iter().flat_map(|group| &group.events);
    let counters = events.filter_map(|event| match &event.source {
        Source::Counter(counter) => Some((event.name.as_str(), counter)),
        Source::DurationTime => None,
    });
    filters::check(counters, pmus)?;
    Ok(groups)
}
