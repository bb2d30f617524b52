//! Encodes the terms of `pmu/term,term=value/` into the config words of `perf_event_attr`.

use super::{error::EventError, generic, nearest::Nearest};
use crate::machine::{
    FieldFormat, Pmu, PmuEvent, PmuKind, Word,
    terms::{self, Term},
};

/// Terms that perf accepts for any PMU and that mean nothing for counting per CPU.
const PERF_ONLY: [&str; 22] = [
    "period",
    "freq",
    "branch_type",
    "time",
    "call-graph",
    "stack-size",
    "max-stack",
    "max-events",
    "nr",
    "inherit",
    "no-inherit",
    "overwrite",
    "no-overwrite",
    "driver-config",
    "percore",
    "aux-output",
    "aux-action",
    "aux-sample-size",
    "metric-id",
    "raw",
    "cpu",
    "ratio-to-prev",
];

/// The config words of an event, by [`Word`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConfigWords([u64; 5]);

impl ConfigWords {
    pub(super) fn get(self, word: Word) -> u64 {
        self.0[word as usize]
    }

    fn set(&mut self, word: Word, value: u64) {
        self.0[word as usize] = value;
    }

    /// Replaces the bits of a field by `scattered`, a value that is spread over these bits.
    fn put(&mut self, format: FieldFormat, scattered: u64) {
        let word = &mut self.0[format.word() as usize];
        *word = *word & !format.mask() | scattered;
    }
}

/// The encoded terms of an event.
#[derive(Debug)]
pub(super) struct EncodedTerms<'t, 'p> {
    pub(super) words: ConfigWords,
    /// The event of `events/` that a term names.
    pub(super) event: Option<&'p PmuEvent>,
    /// The `name=` term.
    pub(super) name: Option<&'t str>,
}

/// Encodes `terms` for `pmu`.
///
/// Whole words are applied first, then the named event, then single fields, regardless of the order
/// in the text. A field therefore overrides the same field of the named event.
pub(super) fn encode<'t, 'p>(
    pmu: &'p Pmu,
    terms: &'t [Term],
) -> Result<EncodedTerms<'t, 'p>, EventError> {
    let mut encoded = EncodedTerms {
        words: ConfigWords::default(),
        event: None,
        name: None,
    };
    let mut event_name: Option<&str> = None;
    let mut fields = Vec::new();
    let mut is_event = false;
    for (i, term) in terms.iter().enumerate() {
        let name = term.name.as_str();
        if terms[..i].iter().any(|before| before.name == name) {
            return Err(EventError::TwiceTheSameTerm {
                pmu: pmu.name.clone(),
                term: name.to_owned(),
            });
        }
        let role = role(pmu, term)?;
        is_event |= !matches!(role, Role::Name(_));
        match role {
            Role::Name(text) => encoded.name = Some(text),
            Role::Word(word, value) => encoded.words.set(word, value),
            Role::Field(format, scattered) => fields.push((format, scattered)),
            Role::Event(name, event) => {
                if let Some(first) = event_name.replace(name) {
                    return Err(EventError::TwoEvents {
                        pmu: pmu.name.clone(),
                        first: first.to_owned(),
                        second: name.to_owned(),
                    });
                }
                encoded.event = Some(event);
            }
        }
    }
    // PMUs without this field, such as AMD's IBS, have one event, which needs no term.
    if !is_event && pmu.formats.contains_key("event") {
        return Err(EventError::PmuAlone {
            pmu: pmu.name.clone(),
            nearest: Nearest::to("", pmu.events.keys()),
        });
    }
    if let (Some(name), Some(event)) = (event_name, encoded.event) {
        put_event(pmu, name, event, &mut encoded.words)?;
    }
    for (format, scattered) in fields {
        encoded.words.put(format, scattered);
    }
    Ok(encoded)
}

/// The config words of a single event of `events/`.
pub(super) fn encode_event(
    pmu: &Pmu,
    name: &str,
    event: &PmuEvent,
) -> Result<ConfigWords, EventError> {
    let mut words = ConfigWords::default();
    put_event(pmu, name, event, &mut words)?;
    Ok(words)
}

/// The meaning of a term.
enum Role<'t, 'p> {
    Name(&'t str),
    Word(Word, u64),
    /// A field and its value, spread over the field's bits.
    Field(FieldFormat, u64),
    Event(&'t str, &'p PmuEvent),
}

fn role<'t, 'p>(pmu: &'p Pmu, term: &'t Term) -> Result<Role<'t, 'p>, EventError> {
    let name = term.name.as_str();
    if let Some(word) = Word::named(name) {
        return Ok(Role::Word(word, number(pmu, term)?));
    }
    if let Some(format) = pmu.formats.get(name).copied() {
        // Only the field `event` takes a name instead of a number: the name of an event of the PMU.
        if name == "event"
            && let Some(value) = &term.value
            && terms::number(value).is_none()
        {
            let event = named_event(pmu, value).ok_or_else(|| unknown_event(pmu, value))?;
            return Ok(Role::Event(value, event));
        }
        let value = number(pmu, term)?;
        let scattered = format.scatter(value).ok_or_else(|| EventError::TooWide {
            pmu: pmu.name.clone(),
            term: name.to_owned(),
            value,
            format,
        })?;
        return Ok(Role::Field(format, scattered));
    }
    match (&term.value, named_event(pmu, name)) {
        (None, Some(event)) => return Ok(Role::Event(name, event)),
        (Some(value), None) if name == "name" => return Ok(Role::Name(value)),
        (Some(_), Some(_)) => {
            return Err(EventError::EventWithValue {
                pmu: pmu.name.clone(),
                event: name.to_owned(),
            });
        }
        (None | Some(_), None) => {}
    }
    Err(if PERF_ONLY.contains(&name) {
        EventError::PerfTerm {
            pmu: pmu.name.clone(),
            term: name.to_owned(),
        }
    } else if term.value.is_none() {
        EventError::UnknownEventOrTerm {
            pmu: pmu.name.clone(),
            name: name.to_owned(),
            nearest: Nearest::to(name, pmu.events.keys()),
            terms: term_names(pmu),
        }
    } else {
        EventError::UnknownTerm {
            pmu: pmu.name.clone(),
            term: name.to_owned(),
            terms: term_names(pmu),
        }
    })
}

/// The event `name` of the PMU. A core PMU's `cycles` may be in `events/` as `cpu-cycles`.
fn named_event<'p>(pmu: &'p Pmu, name: &str) -> Option<&'p PmuEvent> {
    pmu.event(name).or_else(|| {
        let is_core = pmu.kind == PmuKind::Core;
        let mut aliases = generic::hardware_aliases(name).iter();
        aliases.find_map(|alias| pmu.events.get(*alias).filter(|_| is_core))
    })
}

/// The number of a term; 1 if the term has no value.
fn number(pmu: &Pmu, term: &Term) -> Result<u64, EventError> {
    let Some(value) = &term.value else {
        return Ok(1);
    };
    terms::number(value).ok_or_else(|| EventError::NotANumber {
        pmu: pmu.name.clone(),
        term: term.name.clone(),
        value: value.clone(),
    })
}

/// Writes the terms of `events/<name>` into `words`.
fn put_event(
    pmu: &Pmu,
    name: &str,
    event: &PmuEvent,
    words: &mut ConfigWords,
) -> Result<(), EventError> {
    for (term, value) in &event.terms {
        if let Some(word) = Word::named(term) {
            words.set(word, *value);
            continue;
        }
        let format = pmu.formats.get(term).copied();
        let field = format.and_then(|format| Some((format, format.scatter(*value)?)));
        let Some((format, scattered)) = field else {
            return Err(EventError::TermNotInFormat {
                pmu: pmu.name.clone(),
                event: name.to_owned(),
                term: term.clone(),
                value: *value,
            });
        };
        words.put(format, scattered);
    }
    Ok(())
}

fn unknown_event(pmu: &Pmu, name: &str) -> EventError {
    EventError::UnknownPmuEvent {
        pmu: pmu.name.clone(),
        event: name.to_owned(),
        nearest: Nearest::to(name, pmu.events.keys()),
    }
}

/// The terms that the PMU accepts, for a message.
fn term_names(pmu: &Pmu) -> String {
    let mut names: Vec<&str> = pmu.formats.keys().map(String::as_str).collect();
    names.extend(Word::ALL.map(Word::name));
    names.push("name");
    names.join(", ")
}
