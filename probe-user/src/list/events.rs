//! The events, in sections: the name of each on the command line, and whether this machine counts
//! it.

use std::io;

use super::{
    generic::{self, GenericEvent},
    pmus::pmu_kind,
};
use crate::{
    catalogue::{Catalogue, Hardware},
    event::{self, Counter, EventError, Source},
    machine::{Pmu, PmuKind, Pmus},
};

/// Events that have something in common.
#[derive(Clone, Debug, PartialEq)]
pub struct EventSection {
    /// What the events have in common.
    pub title: String,
    /// The PMUs that have all of these events; empty for generic events.
    pub pmus: Vec<String>,
    /// The events, in the order to print.
    pub events: Vec<EventItem>,
}

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct EventItem {
    /// What to write after `-e`, the usual name first. For an event of several PMUs: `PMU/name/`.
    pub names: Vec<String>,
    /// The unit of the scaled count; None: a number of occurrences.
    pub unit: Option<String>,
    /// What one count stands for in `unit`; None is 1.
    pub scale: Option<f64>,
    /// What the event counts; None for an event of a PMU that the catalogue does not describe.
    pub description: Option<String>,
    /// The counter to open; None if the event has none, as `duration_time`, or cannot be resolved.
    pub counter: Option<Counter>,
    /// Whether this machine counts it.
    pub availability: Availability,
}

/// Whether this machine counts an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// This machine counts it.
    Here,
    /// This machine does not count it, for this reason.
    NotHere(String),
    /// The event could not be tried, for this reason.
    Untried(String),
}

/// Tries to open a counter on this machine.
type OpenCounter<'o> = &'o dyn Fn(&Counter) -> io::Result<()>;

pub(super) fn sections(pmus: &Pmus, open: OpenCounter<'_>) -> Vec<EventSection> {
    let section = |title: &str, events: Vec<EventItem>| EventSection {
        title: title.to_owned(),
        pmus: Vec::new(),
        events,
    };
    let tried = |generic: &GenericEvent| {
        let names = generic.names.iter().map(|name| (*name).to_owned());
        try_event(names.collect(), generic.meaning, pmus, open)
    };
    let caches = generic::CACHES
        .iter()
        .flat_map(generic::GenericCache::events)
        .map(|(name, meaning)| try_event(vec![name], &meaning, pmus, open));
    let mut sections = vec![
        section(
            "hardware events, counted per container by the core PMU",
            generic::HARDWARE.iter().map(tried).collect(),
        ),
        section(
            "hardware cache events, counted per container by the core PMU",
            caches.collect(),
        ),
        section(
            "software events, counted per container by the kernel",
            generic::SOFTWARE.iter().map(tried).collect(),
        ),
        section(
            "scheduler events, counted per container by pmuscope's program at each switch",
            generic::SCHEDULER.iter().map(tried).collect(),
        ),
    ];
    sections.extend(pmu_sections(pmus));
    sections.push(section("raw events", raw(pmus)));
    sections
}

/// The item of a generic event. Only opening the event shows whether this machine counts it.
fn try_event(names: Vec<String>, meaning: &str, pmus: &Pmus, open: OpenCounter<'_>) -> EventItem {
    let resolved = resolve(&names[0], pmus);
    let description = Some(meaning.to_owned());
    let event = match resolved {
        Ok(event) => event,
        Err(reason) => {
            return EventItem {
                names,
                unit: None,
                scale: None,
                description,
                counter: None,
                availability: Availability::NotHere(reason),
            };
        }
    };
    let counter = match event.source {
        Source::Counter(counter) => Some(counter),
        Source::DurationTime => None,
    };
    let availability = match counter.as_ref().map(open) {
        None | Some(Ok(())) => Availability::Here,
        Some(Err(error)) => match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                Availability::Untried("not tried: it takes CAP_PERFMON".to_owned())
            }
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO | libc::EINVAL) => {
                Availability::NotHere("this machine's PMU does not count it".to_owned())
            }
            // Scheduler events.
            Some(libc::ENOSYS) => Availability::NotHere(
                "this kernel keeps no waits: it has neither CONFIG_SCHEDSTATS nor \
                 CONFIG_TASK_DELAY_ACCT"
                    .to_owned(),
            ),
            _ => Availability::Untried(format!("not tried: {error}")),
        },
    };
    EventItem {
        names,
        unit: event.unit,
        scale: event.scale,
        description,
        counter,
        availability,
    }
}

/// The one event that `text` stands for, or why it stands for none.
fn resolve(text: &str, pmus: &Pmus) -> Result<event::Event, String> {
    let groups = event::parse(text, pmus).map_err(|error| match error {
        // One text for all events without a core PMU, so that it is printed once.
        EventError::NoCorePmu { unreadable, .. } => {
            format!("this machine shows no core PMU{unreadable}")
        }
        error => error.to_string(),
    })?;
    // With several kinds of core, the event of the first kind stands for all.
    let event = groups.into_iter().flat_map(|group| group.events).next();
    event.ok_or_else(|| format!("`{text}` is no event"))
}

/// The sections of events that PMUs name. PMUs of one kind with the same events share a section.
fn pmu_sections(pmus: &Pmus) -> Vec<EventSection> {
    let mut kinds: Vec<Vec<&Pmu>> = Vec::new();
    for pmu in pmus.iter().filter(|pmu| !pmu.events.is_empty()) {
        let same = |other: &Pmu| {
            pmu_kind(&other.name) == pmu_kind(&pmu.name)
                && other.events == pmu.events
                && other.formats == pmu.formats
                && is_offline(other) == is_offline(pmu)
        };
        match kinds.iter_mut().find(|kind| same(kind[0])) {
            Some(kind) => kind.push(pmu),
            None => kinds.push(vec![pmu]),
        }
    }
    let section = |kind: Vec<&Pmu>| {
        let event = |name: &String| named_event(kind[0], name, kind.len() > 1, pmus);
        EventSection {
            title: title(&kind),
            pmus: kind.iter().map(|pmu| pmu.name.clone()).collect(),
            events: kind[0].events.keys().map(event).collect(),
        }
    };
    kinds.into_iter().map(section).collect()
}

/// Whether the cpumask of a PMU is empty, so that no CPU can open its events.
fn is_offline(pmu: &Pmu) -> bool {
    matches!(&pmu.kind, PmuKind::Uncore { cpus } if cpus.is_empty())
}

fn title(kind: &[&Pmu]) -> String {
    let names = match kind {
        [only] => only.name.clone(),
        [first, second] => format!("{}, {}", first.name, second.name),
        [first, .., last] => format!("{} ... {} ({} PMUs)", first.name, last.name, kind.len()),
        [] => String::new(),
    };
    let counted = match kind[0].kind {
        PmuKind::Core => "counted per container",
        PmuKind::Uncore { .. } => "counted per socket or device",
        PmuKind::Other => "counted per container, on each CPU",
    };
    if kind.len() > 1 {
        format!("events of {names}, {counted}; write PMU for one of the names")
    } else {
        format!("events of {names}, {counted}")
    }
}

/// The item of an event that a PMU names. The event is taken as counted if it resolves, without
/// being opened. `is_shared`: several PMUs have it.
fn named_event(pmu: &Pmu, name: &str, is_shared: bool, pmus: &Pmus) -> EventItem {
    let listed = &pmu.events[name];
    let resolved = resolve(&format!("{}/{name}/", pmu.name), pmus);
    let written = if is_shared { "PMU" } else { pmu.name.as_str() };
    let (counter, availability) = match resolved {
        Ok(event) => match event.source {
            Source::Counter(counter) => (Some(counter), Availability::Here),
            Source::DurationTime => (None, Availability::Here),
        },
        Err(reason) => (None, Availability::NotHere(reason)),
    };
    EventItem {
        names: vec![format!("{written}/{name}/")],
        unit: listed.unit.clone(),
        scale: listed.scale,
        description: None,
        counter,
        availability,
    }
}

/// Adds the catalogue's descriptions to the events that PMUs name.
pub(super) fn describe(sections: &mut [EventSection], catalogue: &Catalogue, hardware: &Hardware) {
    for section in sections {
        let Some(pmu) = section.pmus.first() else {
            continue;
        };
        for event in &mut section.events {
            let name = event.names.first().and_then(|name| name.split('/').nth(1));
            let text = name.and_then(|name| catalogue.event_text(pmu, name, hardware));
            event.description = text.or(event.description.take());
        }
    }
}

/// Hints on how to write an event that is not listed.
fn raw(pmus: &Pmus) -> Vec<EventItem> {
    let mut hints = Vec::new();
    let hint = |name: String, meaning: String, availability| EventItem {
        names: vec![name],
        unit: None,
        scale: None,
        description: Some(meaning),
        counter: None,
        availability,
    };
    let cores: Vec<&Pmu> = pmus.cores().collect();
    let raw_code = match cores.as_slice() {
        [_] => Availability::Here,
        [] => Availability::NotHere("this machine shows no core PMU".to_owned()),
        _ => Availability::NotHere(
            "this machine has several kinds of core: write PMU/config=0xNNNN/".to_owned(),
        ),
    };
    hints.push(hint(
        "rNNNN".to_owned(),
        "the event with that hexadecimal code on the core PMU, as the CPU's manual numbers it"
            .to_owned(),
        raw_code,
    ));
    hints.push(hint(
        "PMU/TERM=VALUE,.../".to_owned(),
        "any PMU, by the terms that `pmuscope list pmus` shows, or by config, config1, config2, \
         config3, config4"
            .to_owned(),
        Availability::Here,
    ));
    hints
}
