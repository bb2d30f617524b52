//! A syntax tree and the PMUs of a machine to events that can be opened.

use super::{
    Counter, Event, EventGroup, Scope, Source,
    encode::{self, Words},
    error::EventError,
    filters, generic,
    modifier::Modifiers,
    nearest::Nearest,
    syntax::{EventSpec, Head, Item},
};
use crate::{
    machine::{Pmu, PmuEvent, PmuKind, Pmus, Word, terms::Term},
    sys::perf::TYPE_RAW,
};

/// The PMUs whose events the kernel lets into any group, because they take no hardware counter
/// (`task_ctx_nr == perf_sw_context` in their drivers).
const WITH_ANY_PMU: [&str; 6] = [
    "software",
    "msr",
    "tracepoint",
    "kprobe",
    "uprobe",
    "breakpoint",
];

/// Resolves the whole list, or says what is wrong with the first event that is.
pub(super) fn resolve(items: &[Item], pmus: &Pmus) -> Result<Vec<EventGroup>, EventError> {
    let mut groups = Vec::new();
    for item in items {
        let specs = match item {
            Item::Event(spec) => std::slice::from_ref(spec),
            Item::Group { events, .. } => events,
        };
        for kind in kinds(specs, pmus) {
            groups.push(group(item, kind, pmus)?);
        }
    }
    Ok(groups)
}

/// The kinds of core that the generic events of a group stand for, where cores differ in kind: that
/// of the group's other events, else each. One None where they stand for nothing of that sort.
fn kinds<'p>(specs: &[EventSpec], pmus: &'p Pmus) -> Vec<Option<&'p Pmu>> {
    let generic = |spec: &EventSpec| match &spec.head {
        Head::Name(name) => numbered(name).is_some(),
        Head::Pmu { .. } => false,
    };
    if pmus.cores().nth(1).is_none() || !specs.iter().any(generic) {
        return vec![None];
    }
    let named = |pmu: &&Pmu| {
        let on = |spec: &EventSpec| matches!(&spec.head, Head::Pmu { pmu: name, .. } if *name == pmu.name);
        specs.iter().any(on)
    };
    match pmus.cores().find(named) {
        Some(pmu) => vec![Some(pmu)],
        None => pmus.cores().map(Some).collect(),
    }
}

/// With generic events of that kind of core.
fn group(item: &Item, kind: Option<&Pmu>, pmus: &Pmus) -> Result<EventGroup, EventError> {
    match item {
        Item::Event(spec) => Ok(EventGroup {
            events: vec![event(spec, Modifiers::default(), kind, pmus)?],
            explicit: false,
        }),
        Item::Group { events, modifiers } => {
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

/// The kernel opens a group as one: on one CPU, its counters on one PMU.
fn check_group(item: &Item, events: &[Event]) -> Result<(), EventError> {
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
    Ok(())
}

fn event(
    spec: &EventSpec,
    outer: Modifiers,
    kind: Option<&Pmu>,
    pmus: &Pmus,
) -> Result<Event, EventError> {
    let modifiers = Modifiers::parse(&spec.modifiers, spec)?.with(outer);
    let found = match &spec.head {
        Head::Name(name) => bare(name, kind, pmus)?,
        Head::Pmu { pmu, terms } => on_pmu(spec, pmu, terms, pmus)?,
    };
    let whole = match &found.source {
        Source::DurationTime => Some("it is the wall clock"),
        Source::Counter(counter) => match counter.scope {
            Scope::Uncore { .. } => Some("its PMU counts for the whole socket"),
            Scope::Cpu | Scope::Cpus(_) => None,
        },
    };
    if let Some(why) = whole
        && !modifiers.is_empty()
    {
        let event = spec.to_string();
        return Err(EventError::ModifierOnWhole { event, why });
    }
    let as_written = || {
        let mut head = spec.head.clone();
        // Of one kind of core, as it could be written alone.
        if let (Head::Name(name), Source::Counter(counter), Some(kind)) =
            (&head, &found.source, kind)
            && counter.pmu.as_ref() == Some(&kind.name)
        {
            let (pmu, name) = (kind.name.clone(), name.clone());
            let terms = vec![Term { name, value: None }];
            head = Head::Pmu { pmu, terms };
        }
        let modifiers = modifiers.to_string();
        EventSpec { head, modifiers }.to_string()
    };
    Ok(Event {
        name: found.name.clone().unwrap_or_else(as_written),
        source: found.source,
        exclude: modifiers.exclude(),
        unit: found.unit,
        scale: found.scale,
    })
}

/// What an event is, before its modifiers.
struct Found {
    source: Source,
    /// The `name=` term.
    name: Option<String>,
    unit: Option<String>,
    scale: Option<f64>,
}

impl Found {
    /// An event of a kernel table, on the PMU of that name.
    fn numbered(pmu: Option<&str>, type_: u32, config: u64) -> Self {
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

    fn on(pmu: &Pmu, words: Words, event: Option<&PmuEvent>, name: Option<&str>) -> Self {
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

    fn in_nanoseconds(self) -> Self {
        Self {
            unit: Some("ns".to_owned()),
            ..self
        }
    }
}

/// An event without a PMU before it: a name of the kernel's tables, an event of the core PMU, or a
/// raw code, in this order.
fn bare(name: &str, kind: Option<&Pmu>, pmus: &Pmus) -> Result<Found, EventError> {
    if name == generic::DURATION_TIME {
        let clock = Found {
            source: Source::DurationTime,
            name: None,
            unit: None,
            scale: None,
        };
        return Ok(clock.in_nanoseconds());
    }
    if let Some(config) = generic::software(name) {
        let event = Found::numbered(Some("software"), generic::TYPE_SOFTWARE, config);
        // The two clocks count nanoseconds, the others occurrences.
        return Ok(if name.ends_with("-clock") {
            event.in_nanoseconds()
        } else {
            event
        });
    }
    if name == generic::BPF_OUTPUT {
        let event = name.to_owned();
        return Err(EventError::NotACount { event });
    }
    if let Some(config) = generic::hardware(name) {
        return generic_event(name, generic::TYPE_HARDWARE, config, kind, pmus);
    }
    match generic::cache(name) {
        Some(Ok(config)) => {
            return generic_event(name, generic::TYPE_HW_CACHE, config, kind, pmus);
        }
        Some(Err(no)) => {
            return Err(EventError::CacheOperation {
                event: name.to_owned(),
                cache: no.cache,
                operation: no.operation,
            });
        }
        None => {}
    }
    let with_event: Vec<&Pmu> = pmus
        .cores()
        .filter(|pmu| pmu.event(name).is_some())
        .collect();
    if !with_event.is_empty() {
        let pmu = only(&with_event, name, name)?;
        if let Some(event) = pmu.event(name) {
            let words = encode::encode_event(pmu, name, event)?;
            return Ok(Found::on(pmu, words, Some(event), None));
        }
    }
    if let Some(config) = raw_code(name) {
        // PERF_TYPE_RAW is the x86 PMU's own type; elsewhere the kernel would have to guess.
        let pmu = only(&cores(name, pmus)?, name, &format!("config={config:#x}"))?;
        return Ok(Found::numbered(Some(&pmu.name), pmu.type_, config));
    }
    Err(unknown(name, pmus))
}

/// Type and number of a generic hardware event.
fn numbered(name: &str) -> Option<(u32, u64)> {
    let cache = || Some((generic::TYPE_HW_CACHE, generic::cache(name)?.ok()?));
    let hardware = generic::hardware(name).map(|config| (generic::TYPE_HARDWARE, config));
    hardware.or_else(cache)
}

/// A generic hardware event, of one kind of core where they differ.
fn generic_event(
    name: &str,
    type_: u32,
    config: u64,
    kind: Option<&Pmu>,
    pmus: &Pmus,
) -> Result<Found, EventError> {
    match (kind, &cores(name, pmus)?[..]) {
        (Some(kind), _) => Ok(of_kind(kind, type_, config, pmus)),
        (None, [pmu]) => Ok(Found::numbered(Some(&pmu.name), type_, config)),
        (None, _) => Ok(Found::numbered(None, type_, config)),
    }
}

/// A generic event on the CPUs of one kind of core. The kernel finds the PMU by the CPU, unless one
/// has the type of raw events (Intel's): it would be taken for all, so each is named in the upper
/// half.
fn of_kind(kind: &Pmu, type_: u32, config: u64, pmus: &Pmus) -> Found {
    let by_type = pmus.cores().any(|pmu| pmu.type_ == TYPE_RAW);
    let pmu = if by_type {
        u64::from(kind.type_) << 32
    } else {
        0
    };
    let mut found = Found::numbered(Some(&kind.name), type_, config | pmu);
    if let (Source::Counter(counter), Some(cpus)) = (&mut found.source, &kind.cpus) {
        counter.scope = Scope::Cpus(cpus.clone());
    }
    found
}

/// The core PMUs, of which `event` needs one.
fn cores<'p>(event: &str, pmus: &'p Pmus) -> Result<Vec<&'p Pmu>, EventError> {
    let cores: Vec<&Pmu> = pmus.cores().collect();
    if !cores.is_empty() {
        return Ok(cores);
    }
    let reasons: Vec<String> = pmus.unreadable().map(ToString::to_string).collect();
    let unreadable = if reasons.is_empty() {
        String::new()
    } else {
        format!(" (not read: {})", reasons.join("; "))
    };
    Err(EventError::NoCorePmu {
        event: event.to_owned(),
        unreadable,
    })
}

/// The one PMU of `candidates`; `term` is what the user may write for `event` on each of several.
fn only<'p>(candidates: &[&'p Pmu], event: &str, term: &str) -> Result<&'p Pmu, EventError> {
    match candidates {
        [pmu] => Ok(pmu),
        several => {
            let names: Vec<&str> = several.iter().map(|pmu| pmu.name.as_str()).collect();
            Err(EventError::SeveralCorePmus {
                event: event.to_owned(),
                term: term.to_owned(),
                pmus: names.join(", "),
            })
        }
    }
}

/// The code of `rNNNN`, one to sixteen hexadecimal digits.
fn raw_code(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('r')?;
    let hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    hex.then(|| u64::from_str_radix(digits, 16).ok())?
}

/// What to say about a name that is no event by itself.
fn unknown(name: &str, pmus: &Pmus) -> EventError {
    let event = name.to_owned();
    if let Some(pmu) = pmus.iter().find(|pmu| pmu.event(name).is_some()) {
        let pmu = pmu.name.clone();
        return EventError::NeedsPmu { event, pmu };
    }
    match pmus.get(name) {
        Some(Ok(pmu)) => EventError::PmuAlone {
            pmu: event,
            nearest: Nearest::to("", pmu.events.keys()),
        },
        Some(Err(reason)) => EventError::UnreadablePmu {
            pmu: event,
            reason: reason.clone(),
        },
        None => {
            let core_events = pmus.cores().flat_map(|pmu| pmu.events.keys().cloned());
            let nearest = Nearest::to(name, generic::names().chain(core_events));
            EventError::UnknownEvent { event, nearest }
        }
    }
}

fn on_pmu(spec: &EventSpec, name: &str, terms: &[Term], pmus: &Pmus) -> Result<Found, EventError> {
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
        && let Some((type_, config)) = numbered(name)
    {
        return Ok(of_kind(pmu, type_, config, pmus));
    }
    let terms = filters::expand(pmu, terms)?;
    let encoded = encode::encode(pmu, &terms)?;
    if let PmuKind::Uncore { cpus } = &pmu.kind
        && cpus.is_empty()
    {
        let known = pmu.associated.as_ref().filter(|cpus| !cpus.is_empty());
        let which = known.map_or_else(
            || "a CPU of that part of the machine".to_owned(),
            |cpus| format!("one of the CPUs {cpus}"),
        );
        return Err(EventError::EmptyCpumask {
            pmu: name.to_owned(),
            event: spec.to_string(),
            which,
        });
    }
    Ok(Found::on(pmu, encoded.words, encoded.event, encoded.name))
}
