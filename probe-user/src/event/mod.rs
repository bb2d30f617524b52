//! The event lists of `-e`, in perf's syntax, resolved against the PMUs of the machine.
//!
//! `syntax` parses the text, `resolve` and `unqualified` look up names in the machine's PMUs and
//! the tables of `generic`, and `encode` fills the bit fields. [`parse`] does all of it. No event
//! is opened.

pub mod accesses;
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
mod unqualified;

use serde::{Deserialize, Serialize};

pub(crate) use self::filters::check as check_filters;
pub use self::{
    accesses::{AccessScaling, NoAccesses, accesses},
    error::EventError,
    nearest::Nearest,
};
pub use crate::sys::perf::Exclude;
use crate::{
    machine::{Pmus, Word, cpus::CpuList},
    sys::perf::Attr,
};

/// Events that are opened as a group, so that they count over the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct EventGroup {
    /// At least one; the first is the leader.
    pub events: Vec<Event>,
    /// Whether it was written with braces. A single event without braces is a group of one.
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

/// An event to count.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// As written, with all modifiers that apply to it; or the value of `name=`.
    pub name: String,
    /// Source of its count.
    pub source: Source,
    /// The excluded privilege levels.
    pub exclude: Exclude,
    /// The unit of the count times `scale`; `None` for a number of occurrences.
    pub unit: Option<String>,
    /// The factor from counts to `unit`; `None` is 1.
    pub scale: Option<f64>,
}

/// The source of a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The wall clock, in ns; no event is opened.
    DurationTime,
    /// A counter of the kernel.
    Counter(Counter),
}

/// The attributes of an event to open, as in `perf_event_attr`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// The PMU that counts it; `None` if the kernel chooses.
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
    /// Each CPU of the PMU's `cpumask`, counting for its whole socket or another part of the
    /// machine.
    Uncore {
        /// Never empty.
        cpus: CpuList,
    },
}

impl Counter {
    /// False for software and scheduler events, which always run.
    #[must_use]
    pub fn is_hardware(&self) -> bool {
        self.type_ != generic::TYPE_SOFTWARE && !self.is_of_scheduler()
    }

    /// Whether it is one of the kernel's generic hardware events, such as `cycles`.
    pub(crate) fn is_generic(&self) -> bool {
        self.type_ == generic::TYPE_HARDWARE
    }

    /// Whether it is one of the kernel's generic cache events, such as `dTLB-loads`.
    pub(crate) fn is_cache(&self) -> bool {
        self.type_ == generic::TYPE_HW_CACHE
    }

    /// Whether pmuscope's program counts it at each switch ([`probe_common::SchedulerCounter`]). No
    /// event is opened for it.
    #[must_use]
    pub fn is_of_scheduler(&self) -> bool {
        self.type_ == generic::TYPE_SCHEDULER
    }

    /// True for cpu-clock and task-clock, which the kernel counts at all levels.
    #[must_use]
    pub fn is_clock(&self) -> bool {
        self.type_ == generic::TYPE_SOFTWARE && self.config < 2
    }

    /// The attributes in the form of the system call `perf_event_open`.
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

/// Checks what does not depend on the machine: the syntax, and names without a PMU.
///
/// # Errors
/// The first error in it.
pub(crate) fn check(text: &str) -> Result<(), EventError> {
    let items = syntax::parse(text)?;
    let heads = items.iter().flat_map(syntax::ListItem::heads);
    for head in heads {
        if let syntax::EventHead::Name(name) = head
            && !unqualified::is_generic(name)
        {
            let event = name.clone();
            let nearest = Nearest::to(name, generic::names());
            return Err(EventError::UnknownEvent { event, nearest });
        }
    }
    Ok(())
}

/// Parses a list of events and resolves it against the PMUs of the machine.
///
/// The syntax is perf's: events separated by commas, `{a,b}` for groups, `pmu/term,term=value/`,
/// raw `rNNNN`, and `:u`, `:k`, `:h` behind an event or a group.
///
/// # Errors
/// The first error in the text, or of an event on this machine.
pub fn parse(text: &str, pmus: &Pmus) -> Result<Vec<EventGroup>, EventError> {
    resolve_counted(&syntax::parse(text)?, pmus)
}

/// Resolves events that are counted, not sampled.
fn resolve_counted(items: &[syntax::ListItem], pmus: &Pmus) -> Result<Vec<EventGroup>, EventError> {
    let groups = resolve_sampled(items, pmus)?;
    let is_narrowed_clock = |event: &&Event| {
        event.exclude != Exclude::default()
            && matches!(&event.source, Source::Counter(counter) if counter.is_clock())
    };
    match groups
        .iter()
        .flat_map(|group| &group.events)
        .find(is_narrowed_clock)
    {
        Some(event) => Err(EventError::ModifierOnClock {
            event: event.name.clone(),
        }),
        None => Ok(groups),
    }
}

/// An event of a list that this machine cannot count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncountableEvent {
    /// As the user wrote it.
    pub name: String,
    /// Why, as a sentence.
    pub reason: String,
}

/// Like [`parse`], but returns separately the events that this machine cannot count.
///
/// # Errors
/// The first error in the text or of an event, except that this machine cannot count the event.
pub fn parse_countable(
    text: &str,
    pmus: &Pmus,
) -> Result<(Vec<EventGroup>, Vec<UncountableEvent>), EventError> {
    let items = syntax::parse(text)?;
    match resolve_counted(&items, pmus) {
        Err(error) if error.is_of_machine() => {}
        parsed => return Ok((parsed?, Vec::new())),
    }
    let mut uncountable = Vec::new();
    let mut is_countable = |event: &syntax::WrittenEvent| {
        let alone = syntax::ListItem::Event(event.clone());
        match resolve::resolve(&[alone], pmus) {
            Err(error) if error.is_of_machine() => {
                uncountable.push(UncountableEvent {
                    name: event.to_string(),
                    reason: error.to_string(),
                });
                false
            }
            _ => true,
        }
    };
    let items = items.into_iter();
    let items = items.filter_map(|item| item.retain(&mut is_countable));
    Ok((
        resolve_counted(&items.collect::<Vec<_>>(), pmus)?,
        uncountable,
    ))
}

/// As [`resolve_counted`], for sampled events. Clocks may have modifiers here, because the kernel
/// can sample a clock at a single privilege level.
fn resolve_sampled(items: &[syntax::ListItem], pmus: &Pmus) -> Result<Vec<EventGroup>, EventError> {
    let groups = resolve::resolve(items, pmus)?;
    let events = groups.iter().flat_map(|group| &group.events);
    let counters = events.filter_map(|event| match &event.source {
        Source::Counter(counter) => Some((event.name.as_str(), counter)),
        Source::DurationTime => None,
    });
    filters::check(counters, pmus)?;
    Ok(groups)
}
