//! Recognises events of the catalogue by printed names.
//!
//! Names are: the catalogue's own, the driver's name or raw number after any instance of the PMU,
//! other names of the vendor's tools, raw codes of core events. Filters that are not in the
//! catalogue's encoding are part of the place: counts with and without them are separate.

use std::{collections::BTreeMap, sync::Arc};

use crate::catalogue::{CountOf, EventSpec, Instance, MetricPlace, Per, PmuSpec};

/// An event, and the place of its count.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecognisedEvent {
    /// The event's name in formulas.
    pub(super) event: String,
    pub(super) place: MetricPlace,
    /// The modifiers after the event, such as `u` or `k`.
    pub(super) modifiers: String,
    /// The PMU's name, if one unit of several was printed.
    pub(super) unit: Option<String>,
    /// What one count is.
    pub(super) count: CountOf,
    /// Number of filters that the catalogue's encoding does not have.
    extra: usize,
}

/// A printed event.
struct Printed<'a> {
    pmu: Option<&'a str>,
    /// The name of the event, or its number.
    head: EventTerm<'a>,
    terms: BTreeMap<&'a str, u64>,
    modifiers: &'a str,
}

enum EventTerm<'a> {
    Name(&'a str),
    Number(u64),
}

/// The event of `spec` with this name; `None` if there is none.
pub(super) fn recognise(text: &str, spec: &Arc<PmuSpec>) -> Option<RecognisedEvent> {
    if let Some(exact) = recognise_exact(text, spec) {
        return Some(exact);
    }
    let printed = Printed::parse(text)?;
    let instance = match printed.pmu {
        None => Instance::default(),
        Some(pmu) if spec.pattern.is_core() => is_core(pmu).then(Instance::default)?,
        // A PMU's name without a number: perf has summed all instances.
        Some(pmu) if spec.pattern.stem() == Some(pmu) => Instance::default(),
        Some(pmu) => spec.pattern.instance(pmu)?,
    };
    let known = spec.events.iter().filter_map(|(name, event)| {
        let captured = printed.match_event(name, event, spec)?;
        let unit = printed
            .pmu
            .filter(|pmu| instance.unit.is_some() && spec.pattern.instance(pmu).is_some());
        // Machines may have cores of two kinds, each with a PMU.
        let core = printed.pmu.filter(|_| spec.pattern.is_core());
        Some(RecognisedEvent {
            event: name.clone(),
            place: MetricPlace {
                socket: instance.socket,
                device: match spec.per {
                    Per::Device => printed.pmu.map(str::to_owned),
                    Per::Cpu | Per::Socket => None,
                },
                peer: captured.peer,
                part: captured.part,
                filters: captured.filters,
            },
            modifiers: printed.modifiers.to_owned(),
            unit: unit.or(core).map(str::to_owned),
            count: event.count,
            extra: captured.extra,
        })
    });
    known.min_by_key(|known| known.extra)
}

/// The event that tools print with this whole text, terms and modifiers included.
fn recognise_exact(text: &str, spec: &PmuSpec) -> Option<RecognisedEvent> {
    let is_term = |c: char| matches!(c, '/' | ':');
    if !text.contains(is_term) {
        return None;
    }
    let is_printed = |event: &EventSpec| event.also.iter().any(|also| also == text);
    let (name, event) = spec.events.iter().find(|(_, event)| is_printed(event))?;
    Some(RecognisedEvent {
        event: name.clone(),
        place: MetricPlace::default(),
        modifiers: String::new(),
        unit: None,
        count: event.count,
        extra: 0,
    })
}

/// The values of an encoding's placeholders in a printed event.
#[derive(Default)]
struct Captured {
    peer: Option<u32>,
    part: Option<u32>,
    filters: BTreeMap<String, u64>,
    extra: usize,
}

impl<'a> Printed<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        // `event [pmu]`: perf's form for an event without a PMU that it counts separately on each.
        if let Some((name, pmu)) = text.strip_suffix(']').and_then(|it| it.rsplit_once(" [")) {
            let printed = Self::parse(name)?;
            return Some(Self {
                pmu: printed.pmu.or(Some(pmu)),
                ..printed
            });
        }
        let Some((pmu, rest)) = text.split_once('/') else {
            let (name, modifiers) = text.split_once(':').unwrap_or((text, ""));
            return Some(Self {
                pmu: None,
                head: EventTerm::Name(name),
                terms: BTreeMap::new(),
                modifiers,
            });
        };
        let (terms, modifiers) = rest.rsplit_once('/')?;
        let mut head = None;
        let mut numbers = BTreeMap::new();
        for term in terms.split(',') {
            match term.split_once('=') {
                None => head = Some(EventTerm::Name(term)),
                Some(("event", value)) => {
                    head = Some(match number(value) {
                        Some(number) => EventTerm::Number(number),
                        None => EventTerm::Name(value),
                    });
                }
                Some(("name", _)) => {}
                Some((term, value)) => {
                    numbers.insert(term, number(value)?);
                }
            }
        }
        Some(Self {
            pmu: Some(pmu),
            head: head?,
            terms: numbers,
            modifiers: modifiers.trim_start_matches(':'),
        })
    }

    /// The values of the placeholders if this is the event, else None.
    fn match_event(&self, name: &str, event: &EventSpec, spec: &PmuSpec) -> Option<Captured> {
        let mut captured = Captured::default();
        let encoding = Encoding::parse(event);
        let is_named = match self.head {
            EventTerm::Name(head) => {
                head.eq_ignore_ascii_case(name)
                    || encoding
                        .name
                        .is_some_and(|pattern| capture(pattern, head, &mut captured))
                    || event
                        .also
                        .iter()
                        .any(|also| capture(also, head, &mut captured))
                    || self.pmu.is_none()
                        && spec.pattern.is_core()
                        && encoding.is_raw(head, event.id)
            }
            EventTerm::Number(number) => encoding.matches_number(event.id, number, &mut captured),
        };
        if !is_named {
            return None;
        }
        let by_name = matches!(self.head, EventTerm::Name(_));
        let mut given = self.terms.clone();
        for (term, value) in &encoding.terms {
            let actual = given.remove(term);
            match value
                .strip_prefix('{')
                .and_then(|value| value.strip_suffix('}'))
            {
                Some("part_mask") => match actual {
                    Some(mask) if mask.is_power_of_two() => {
                        captured.part = Some(mask.trailing_zeros());
                    }
                    Some(mask) => {
                        captured.filters.insert((*term).to_owned(), mask);
                    }
                    None => {}
                },
                Some(filter) => {
                    let filter = filter.to_owned();
                    captured.filters.extend(actual.map(|value| (filter, value)));
                }
                // A tool's name stands for all of these terms.
                None if by_name && actual.is_none() && encoding.name.is_none() => {}
                None => {
                    if actual.unwrap_or(0) != number(value)? {
                        return None;
                    }
                }
            }
        }
        captured.extra = given.len();
        let extra = given
            .into_iter()
            .map(|(term, value)| (term.to_owned(), value));
        captured.filters.extend(extra);
        Some(captured)
    }
}

/// The terms of a catalogue's encoding.
struct Encoding<'a> {
    /// The name; `None` if the encoding is raw.
    name: Option<&'a str>,
    event: Option<u64>,
    /// All other terms, values as written.
    terms: Vec<(&'a str, &'a str)>,
}

impl<'a> Encoding<'a> {
    fn parse(event: &'a EventSpec) -> Self {
        let mut encoding = Self {
            name: None,
            event: None,
            terms: Vec::new(),
        };
        let Some((_, rest)) = event.perf.split_once('/') else {
            encoding.name = Some(&event.perf);
            return encoding;
        };
        for term in rest.trim_end_matches('/').split(',') {
            match term.split_once('=') {
                None => encoding.name = Some(term),
                Some(("event", value)) => encoding.event = number(value),
                Some(term) => encoding.terms.push(term),
            }
        }
        encoding
    }

    /// Whether `event=number` is this event. The numbers for sockets 0 to 3 are consecutive.
    fn matches_number(&self, id: Option<u64>, number: u64, captured: &mut Captured) -> bool {
        if self.event == Some(number) {
            return true;
        }
        match (id, self.name) {
            (Some(id), Some(name)) if name.contains("{peer}") => {
                let peer = number.checked_sub(id).filter(|peer| *peer < 4);
                captured.peer = peer.and_then(|peer| u32::try_from(peer).ok());
                peer.is_some()
            }
            (Some(id), _) => id == number,
            (None, _) => false,
        }
    }

    /// Whether `rNNNN` is this event of a core. On x86, the bits that perf replaces are ignored.
    fn is_raw(&self, text: &str, id: Option<u64>) -> bool {
        let Some(raw) = text
            .strip_prefix('r')
            .and_then(|hex| u64::from_str_radix(hex, 16).ok())
        else {
            return false;
        };
        let Some(event) = self.event.or(id) else {
            return false;
        };
        let config = self.terms.iter().try_fold(event, |config, (term, value)| {
            let shift = match *term {
                "umask" => 8,
                "edge" => 18,
                "inv" => 23,
                "cmask" => 24,
                _ => return None,
            };
            Some(config | number(value)? << shift)
        });
        let replaced = if self.terms.is_empty() {
            0
        } else {
            1 << 16 | 1 << 17 | 1 << 22
        };
        config == Some(raw & !replaced)
    }
}

/// Whether `text` matches `pattern`, ignoring case; `{peer}` and `{part}` stand for numbers, which
/// are captured.
fn capture(pattern: &str, text: &str, captured: &mut Captured) -> bool {
    let Some((before, rest)) = pattern.split_once('{') else {
        return pattern.eq_ignore_ascii_case(text);
    };
    let Some((placeholder, after)) = rest.split_once('}') else {
        return false;
    };
    let (Some(head), Some(middle)) = (text.get(..before.len()), text.get(before.len()..)) else {
        return false;
    };
    let digits = middle
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(middle.len());
    let (number, tail) = middle.split_at(digits);
    if !head.eq_ignore_ascii_case(before) || !tail.eq_ignore_ascii_case(after) {
        return false;
    }
    let Ok(number) = number.parse() else {
        return false;
    };
    match placeholder {
        "peer" => captured.peer = Some(number),
        "part" => captured.part = Some(number),
        _ => return false,
    }
    true
}

/// Whether core PMUs have this name.
fn is_core(pmu: &str) -> bool {
    pmu == "cpu" || pmu.starts_with("cpu_") || pmu.starts_with("armv")
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
