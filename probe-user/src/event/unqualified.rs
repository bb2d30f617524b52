//! Events written without a PMU: names of the kernel's tables, events of the core PMU, and raw
//! codes.

use super::{
    Scope, Source, encode, error::EventError, generic, nearest::Nearest, resolve::ResolvedEvent,
};
use crate::{
    machine::{Pmu, Pmus},
    sys::perf::TYPE_RAW,
};

/// Resolves an event written without a PMU. Tries the kernel's tables, the core PMU's events, and
/// raw codes, in this order. `kind` is the core PMU for a generic event, if cores differ in kind.
pub(super) fn unqualified(
    name: &str,
    kind: Option<&Pmu>,
    pmus: &Pmus,
) -> Result<ResolvedEvent, EventError> {
    if name == generic::DURATION_TIME {
        let clock = ResolvedEvent {
            source: Source::DurationTime,
            name: None,
            unit: None,
            scale: None,
        };
        return Ok(clock.in_nanoseconds());
    }
    let software = generic::software(name).map(|config| (generic::TYPE_SOFTWARE, config));
    // Scheduler events have the PMU of software events, so that both can be in one group.
    let scheduler = || Some((generic::TYPE_SCHEDULER, generic::scheduler(name)?));
    if let Some((type_, config)) = software.or_else(scheduler) {
        let event = ResolvedEvent::with_number(Some("software"), type_, config);
        return Ok(if generic::is_in_nanoseconds(name) {
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
        Some(Err(rejected)) => {
            return Err(EventError::CacheOperation {
                event: name.to_owned(),
                cache: rejected.cache,
                operation: rejected.operation,
            });
        }
        None => {}
    }
    let with_event: Vec<&Pmu> = pmus
        .cores()
        .filter(|pmu| pmu.event(name).is_some())
        .collect();
    if !with_event.is_empty() {
        let pmu = only_pmu(&with_event, name, name)?;
        if let Some(event) = pmu.event(name) {
            let words = encode::encode_event(pmu, name, event)?;
            return Ok(ResolvedEvent::on_pmu(pmu, words, Some(event), None));
        }
    }
    if let Some(config) = raw_code(name) {
        // The event gets the PMU's own type. PERF_TYPE_RAW is that of the x86 PMU, and on other
        // machines the kernel would have to guess the PMU.
        let pmu = only_pmu(&cores(name, pmus)?, name, &format!("config={config:#x}"))?;
        return Ok(ResolvedEvent::with_number(
            Some(&pmu.name),
            pmu.type_,
            config,
        ));
    }
    Err(unknown(name, pmus))
}

/// Whether a name without a PMU is an event whatever PMUs the machine has.
pub(super) fn is_generic(name: &str) -> bool {
    let counted = generic::software(name).or_else(|| generic::scheduler(name));
    let is_counted = || counted.or_else(|| raw_code(name)).is_some();
    generic_config(name).is_some() || is_counted() || name == generic::DURATION_TIME
}

/// Type and config of a generic hardware event.
pub(super) fn generic_config(name: &str) -> Option<(u32, u64)> {
    let cache = || Some((generic::TYPE_HW_CACHE, generic::cache(name)?.ok()?));
    let hardware = generic::hardware(name).map(|config| (generic::TYPE_HARDWARE, config));
    hardware.or_else(cache)
}

/// A generic hardware event, of one kind of core if cores differ.
fn generic_event(
    name: &str,
    type_: u32,
    config: u64,
    kind: Option<&Pmu>,
    pmus: &Pmus,
) -> Result<ResolvedEvent, EventError> {
    match (kind, &cores(name, pmus)?[..]) {
        (Some(kind), _) => Ok(on_core(kind, type_, config, pmus)),
        (None, [pmu]) => Ok(ResolvedEvent::with_number(Some(&pmu.name), type_, config)),
        (None, _) => Ok(ResolvedEvent::with_number(None, type_, config)),
    }
}

/// A generic event on the CPUs of one kind of core. The kernel finds the PMU by the CPU, unless a
/// core PMU has the type of raw events (Intel's): the kernel would use that PMU on all CPUs. In
/// this case the upper half of config has the PMU's type.
pub(super) fn on_core(kind: &Pmu, type_: u32, config: u64, pmus: &Pmus) -> ResolvedEvent {
    let needs_type = pmus.cores().any(|pmu| pmu.type_ == TYPE_RAW);
    let pmu = if needs_type {
        u64::from(kind.type_) << 32
    } else {
        0
    };
    let mut resolved = ResolvedEvent::with_number(Some(&kind.name), type_, config | pmu);
    if let (Source::Counter(counter), Some(cpus)) = (&mut resolved.source, &kind.cpus) {
        counter.scope = Scope::Cpus(cpus.clone());
    }
    resolved
}

/// The core PMUs; an error for `event` if there are none.
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

/// The only PMU of `candidates`. With several, the error suggests `term` for `event` on each.
fn only_pmu<'p>(candidates: &[&'p Pmu], event: &str, term: &str) -> Result<&'p Pmu, EventError> {
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

/// The code of `rNNNN`: one to sixteen hexadecimal digits.
fn raw_code(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('r')?;
    let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_hex.then(|| u64::from_str_radix(digits, 16).ok())?
}

/// The error for a name that is no event without a PMU.
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
