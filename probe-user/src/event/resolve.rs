//! Resolves a syntax tree against the PMUs of a machine to events that can be opened.

use super::{
    Counter, Event, EventGroup, Scope, Source,
    encode::{self, ConfigWords},
    error::EventError,
    filters, generic,
    modifier::Modifiers,
    nearest::Nearest,
    syntax::{EventHead, ListItem, WrittenEvent},
    unqualified::{generic_config, on_core, unqualified},
};
use crate::machine::{Pmu, PmuEvent, PmuKind, Pmus, Word, terms::Term};

/// PMUs whose events may join any group, because they use no hardware counter (`task_ctx_nr ==
/// perf_sw_context` in their drivers).
const WITH_ANY_PMU: [&str; 6] = [
    "software",
    "msr",
    "tracepoint",
    "kprobe",
    "uprobe",
    "breakpoint",
];

/// Resolves the whole list. An error is about the first wrong event.
pub(super) fn resolve(items: &[ListItem], pmus: &Pmus) -> Result<Vec<EventGroup>, EventError> {
    let mut groups = Vec::new();
    for item in items {
        let Some(pattern) = pmu_pattern(item, pmus) else {
            groups.extend(resolve_item(item, pmus)?);
            continue;
        };
        let before = groups.len();
        let mut missing = None;
        for name in pmus.instances(pattern) {
            match resolve_item(&item.with_pmu(pattern, name), pmus) {
                Ok(resolved) => groups.extend(resolved),
                // A pattern may also match PMUs of other kinds.
                Err(error) if error.is_missing_name() => missing = missing.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = missing
            && groups.len() == before
        {
            return Err(error);
        }
    }
    Ok(groups)
}

fn resolve_item(item: &ListItem, pmus: &Pmus) -> Result<Vec<EventGroup>, EventError> {
    let kinds = core_kinds(item.events(), pmus).into_iter();
    kinds.map(|kind| group(item, kind, pmus)).collect()
}

/// The first PMU name of an item that stands for PMUs with other names: a name without its number,
/// or with `*` or `?`. `None` if there is none.
fn pmu_pattern<'i>(item: &'i ListItem, pmus: &Pmus) -> Option<&'i str> {
    let mut heads = item.events().iter().map(|spec| &spec.head);
    heads.find_map(|head| match head {
        EventHead::Pmu { pmu, .. } if pmus.get(pmu).is_none() => {
            (!pmus.instances(pmu).is_empty()).then_some(pmu.as_str())
        }
        EventHead::Pmu { .. } | EventHead::Name(_) => None,
    })
}

/// The core PMUs on which to resolve an item's generic events, if cores differ in kind: the core
/// PMU that another event of the item names, else each core PMU. A single `None` if cores do not
/// differ, or if no event is generic.
fn core_kinds<'p>(specs: &[WrittenEvent], pmus: &'p Pmus) -> Vec<Option<&'p Pmu>> {
    let is_generic = |spec: &WrittenEvent| match &spec.head {
        EventHead::Name(name) => generic_config(name).is_some(),
        EventHead::Pmu { .. } => false,
    };
    if pmus.cores().nth(1).is_none() || !specs.iter().any(is_generic) {
        return vec![None];
    }
    let is_named = |pmu: &&Pmu| {
        let is_on = |spec: &WrittenEvent| match &spec.head {
            EventHead::Pmu { pmu: name, .. } => *name == pmu.name,
            EventHead::Name(_) => false,
        };
        specs.iter().any(is_on)
    };
    match pmus.cores().find(is_named) {
        Some(pmu) => vec![Some(pmu)],
        None => pmus.cores().map(Some).collect(),
    }
}

/// Resolves an item, with its generic events on the core PMU `kind`.
fn group(item: &ListItem, kind: Option<&Pmu>, pmus: &Pmus) -> Result<EventGroup, EventError> {
    match item {
        ListItem::Event(spec) => Ok(EventGroup {
            events: vec![event(spec, Modifiers::default(), kind, pmus)?],
            explicit: false,
        }),
        ListItem::Group { events, modifiers } => {
            let modifiers = Modifiers::parse(modifiers, item)?;
            let resolve = |spec| event(spec, modifiers, kind, pmus);
            let events = events.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
            check_group(item, &events)?;
            Ok(EventGroup {
                events,
                explicit: true,
            })
        }
    }
}

/// The kernel requires a group to be on one CPU, with its hardware counters on one PMU.
fn check_group(item: &ListItem, events: &[Event]) -> Result<(), EventError> {
    let mut per_cpu: Option<&Event> = None;
    let mut uncore: Option<&Event> = None;
    let mut hardware: Option<&str> = None;
    for event in events {
        let counter = match &event.source {
            Source::DurationTime => {
                return Err(EventError::ClockInGroup {
                    event: generic::DURATION_TIME,
                    group: item.to_string(),
                });
            }
            Source::Counter(counter) => counter,
        };
        match counter.scope {
            Scope::Cpu | Scope::Cpus(_) => per_cpu = per_cpu.or(Some(event)),
            Scope::Uncore { .. } => uncore = uncore.or(Some(event)),
        }
        if let (Some(per_cpu), Some(uncore)) = (per_cpu, uncore) {
            return Err(EventError::MixedScopes {
                group: item.to_string(),
                per_cpu: per_cpu.name.clone(),
                uncore: uncore.name.clone(),
            });
        }
        let pmu = counter.pmu.as_deref().unwrap_or("of the CPUs");
        if WITH_ANY_PMU.contains(&pmu) {
            continue;
        }
        match hardware {
            Some(first) if first != pmu => {
                return Err(EventError::MixedPmus {
                    group: item.to_string(),
                    first: first.to_owned(),
                    second: pmu.to_owned(),
                });
            }
            Some(_) | None => hardware = Some(pmu),
        }
    }
    // A group with counters may be multiplexed. Scheduler events are not: pmuscope's program always
    // counts them.
    let scheduler_event = events.iter().find(
        |event| matches!(&event.source, Source::Counter(counter) if counter.is_of_scheduler()),
    );
    match scheduler_event.filter(|_| hardware.is_some()) {
        Some(event) => Err(EventError::SchedulerInGroup {
            group: item.to_string(),
            event: event.name.clone(),
        }),
        None => Ok(()),
    }
}

/// Resolves an event; `outer` are the modifiers of its group.
fn event(
    spec: &WrittenEvent,
    outer: Modifiers,
    kind: Option<&Pmu>,
    pmus: &Pmus,
) -> Result<Event, EventError> {
    let modifiers = Modifiers::parse(&spec.modifiers, spec)?.with(outer);
    let resolved = match &spec.head {
        EventHead::Name(name) => unqualified(name, kind, pmus)?,
        EventHead::Pmu { pmu, terms } => on_pmu(spec, pmu, terms, pmus)?,
    };
    let why_not_narrowed = match &resolved.source {
        Source::DurationTime => Some("it is the wall clock"),
        Source::Counter(counter) => match counter.scope {
            Scope::Uncore { .. } => Some("its PMU counts for the whole socket"),
            Scope::Cpu if counter.is_of_scheduler() => Some("switches have no level"),
            Scope::Cpu | Scope::Cpus(_) => None,
        },
    };
    if let Some(why) = why_not_narrowed
        && !modifiers.is_empty()
    {
        let event = spec.to_string();
        return Err(EventError::ModifierOnWhole { event, why });
    }
    let as_written = || {
        let mut head = spec.head.clone();
        // An event of one kind of core is named `pmu/name/`, which can be parsed by itself.
        if let (EventHead::Name(name), Source::Counter(counter), Some(kind)) =
            (&head, &resolved.source, kind)
            && counter.pmu.as_ref() == Some(&kind.name)
        {
            let (pmu, name) = (kind.name.clone(), name.clone());
            let terms = vec![Term { name, value: None }];
            head = EventHead::Pmu { pmu, terms };
        }
        let modifiers = modifiers.to_string();
        WrittenEvent { head, modifiers }.to_string()
    };
    Ok(Event {
        name: resolved.name.clone().unwrap_or_else(as_written),
        source: resolved.source,
        exclude: modifiers.exclude(),
        unit: resolved.unit,
        scale: resolved.scale,
    })
}

/// A resolved event, without its modifiers.
pub(super) struct ResolvedEvent {
    pub(super) source: Source,
    /// The `name=` term.
    pub(super) name: Option<String>,
    pub(super) unit: Option<String>,
    pub(super) scale: Option<f64>,
}

impl ResolvedEvent {
    /// An event of the kernel's tables, on the PMU of that name.
    pub(super) fn with_number(pmu: Option<&str>, type_: u32, config: u64) -> Self {
        Self {
            source: Source::Counter(Counter {
                pmu: pmu.map(str::to_owned),
                scope: Scope::Cpu,
                type_,
                config,
                config1: 0,
                config2: 0,
                config3: 0,
                config4: 0,
            }),
            name: None,
            unit: None,
            scale: None,
        }
    }

    pub(super) fn on_pmu(
        pmu: &Pmu,
        words: ConfigWords,
        event: Option<&PmuEvent>,
        name: Option<&str>,
    ) -> Self {
        let scope = match &pmu.kind {
            PmuKind::Core => pmu.cpus.clone().map_or(Scope::Cpu, Scope::Cpus),
            PmuKind::Other => Scope::Cpu,
            PmuKind::Uncore { cpus } => Scope::Uncore { cpus: cpus.clone() },
        };
        Self {
            source: Source::Counter(Counter {
                pmu: Some(pmu.name.clone()),
                scope,
                type_: pmu.type_,
                config: words.get(Word::Config),
                config1: words.get(Word::Config1),
                config2: words.get(Word::Config2),
                config3: words.get(Word::Config3),
                config4: words.get(Word::Config4),
            }),
            name: name.map(str::to_owned),
            unit: event.and_then(|event| event.unit.clone()),
            scale: event.and_then(|event| event.scale),
        }
    }

    pub(super) fn in_nanoseconds(self) -> Self {
        Self {
            unit: Some("ns".to_owned()),
            ..self
        }
    }
}

fn on_pmu(
    spec: &WrittenEvent,
    name: &str,
    terms: &[Term],
    pmus: &Pmus,
) -> Result<ResolvedEvent, EventError> {
    let pmu = match pmus.get(name) {
        Some(Ok(pmu)) => pmu,
        Some(Err(reason)) => {
            return Err(EventError::UnreadablePmu {
                pmu: name.to_owned(),
                reason: reason.clone(),
            });
        }
        None => {
            return Err(EventError::UnknownPmu {
                pmu: name.to_owned(),
                event: spec.to_string(),
                nearest: Nearest::to(name, pmus.names()),
            });
        }
    };
    if let [Term { name, value: None }] = terms
        && pmu.kind == PmuKind::Core
        && pmus.cores().nth(1).is_some()
        && pmu.event(name).is_none()
        && let Some((type_, config)) = generic_config(name)
    {
        return Ok(on_core(pmu, type_, config, pmus));
    }
    let terms = filters::expand(pmu, terms, pmus)?;
    let encoded = encode::encode(pmu, &terms)?;
    if let PmuKind::Uncore { cpus } = &pmu.kind
        && cpus.is_empty()
    {
        let associated = pmu.associated.as_ref().filter(|cpus| !cpus.is_empty());
        let which = associated.map_or_else(
            || "a CPU of that part of the machine".to_owned(),
            |cpus| format!("one of the CPUs {cpus}"),
        );
        return Err(EventError::EmptyCpumask {
            pmu: name.to_owned(),
            event: spec.to_string(),
            which,
        });
    }
    Ok(ResolvedEvent::on_pmu(
        pmu,
        encoded.words,
        encoded.event,
        encoded.name,
    ))
}
