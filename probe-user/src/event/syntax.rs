//! Parses the text of `-e` to a syntax tree, and prints it back.
//!
//! The tree holds names, values and modifiers as written: their meaning depends on the machine and
//! is decided in `resolve`. A printed tree parses to the same tree.

use std::fmt;

use winnow::{
    ModalResult, Parser,
    ascii::multispace0,
    combinator::{cut_err, delimited, eof, opt, preceded},
    error::StrContext,
    token::{one_of, take_while},
};

use super::error::EventError;
use crate::machine::terms::{Term, expected, terms};

/// An element of the event list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListItem {
    /// An event on its own.
    Event(WrittenEvent),
    /// `{a,b}:mods`.
    Group {
        /// At least one.
        events: Vec<WrittenEvent>,
        /// The letters behind the brace; may be empty.
        modifiers: String,
    },
}

/// An event as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrittenEvent {
    pub(super) head: EventHead,
    /// The letters behind `:` or the closing `/`; may be empty.
    pub(super) modifiers: String,
}

/// An event without its modifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EventHead {
    /// `cycles`, `inst_retired`, `r1a`.
    Name(String),
    /// `pmu/term,term=value/`.
    Pmu { pmu: String, terms: Vec<Term> },
}

impl ListItem {
    /// Its events without their modifiers.
    pub(super) fn heads(&self) -> impl Iterator<Item = &EventHead> {
        let events = match self {
            Self::Event(event) => std::slice::from_ref(event),
            Self::Group { events, .. } => events,
        };
        events.iter().map(|event| &event.head)
    }

    /// The item with the wanted events only; `None` if there are none.
    pub(super) fn retain(self, mut is_wanted: impl FnMut(&WrittenEvent) -> bool) -> Option<Self> {
        match self {
            Self::Event(event) => is_wanted(&event).then_some(Self::Event(event)),
            Self::Group {
                mut events,
                modifiers,
            } => {
                events.retain(is_wanted);
                (!events.is_empty()).then_some(Self::Group { events, modifiers })
            }
        }
    }
}

/// Parses the whole list.
pub(super) fn parse(text: &str) -> Result<Vec<ListItem>, EventError> {
    if text.trim().is_empty() {
        return Err(EventError::Empty);
    }
    list.parse(text).map_err(|error| EventError::Syntax {
        text: text.to_owned(),
        column: text[..error.char_span().start].chars().count() + 1,
        expected: expectation(error.inner()),
    })
}

/// The innermost expectation: the context closest to where parsing stopped.
fn expectation(error: &winnow::error::ContextError) -> String {
    let expected = error.context().find_map(|context| match context {
        StrContext::Expected(value) => Some(value.to_string()),
        _ => None,
    });
    expected.unwrap_or_else(|| "an event".to_owned())
}

fn list(input: &mut &str) -> ModalResult<Vec<ListItem>> {
    let mut items = vec![spaced(item).parse_next(input)?];
    while opt(',').parse_next(input)?.is_some() {
        items.push(cut_err(spaced(item)).parse_next(input)?);
    }
    eof.context(expected("`,` or the end of the list"))
        .parse_next(input)?;
    Ok(items)
}

fn item(input: &mut &str) -> ModalResult<ListItem> {
    if opt('{').parse_next(input)?.is_some() {
        cut_err(group_rest).parse_next(input)
    } else {
        event
            .map(ListItem::Event)
            .context(expected("an event name, `pmu/term/` or `{`"))
            .parse_next(input)
    }
}

fn group_rest(input: &mut &str) -> ModalResult<ListItem> {
    let member = "an event name or `pmu/term/`";
    let mut events = vec![spaced(event).context(expected(member)).parse_next(input)?];
    while opt(',').parse_next(input)?.is_some() {
        events.push(spaced(event).context(expected(member)).parse_next(input)?);
    }
    '}'.context(expected("`,` or `}`")).parse_next(input)?;
    let modifiers = opt(preceded(':', cut_err(modifier_letters))).parse_next(input)?;
    Ok(ListItem::Group {
        events,
        modifiers: modifiers.unwrap_or_default().to_owned(),
    })
}

fn event(input: &mut &str) -> ModalResult<WrittenEvent> {
    let name = head.parse_next(input)?.to_owned();
    if opt('/').parse_next(input)?.is_none() {
        let modifiers = opt(preceded(':', cut_err(modifier_letters))).parse_next(input)?;
        return Ok(WrittenEvent {
            head: EventHead::Name(name),
            modifiers: modifiers.unwrap_or_default().to_owned(),
        });
    }
    let terms = cut_err(terms).parse_next(input)?;
    cut_err('/')
        .context(expected("`,` or the closing `/`"))
        .parse_next(input)?;
    // perf writes `pmu/term/u`; `pmu/term/:u` is a common slip and means the same.
    let modifiers = if opt(':').parse_next(input)?.is_some() {
        cut_err(modifier_letters).parse_next(input)?
    } else {
        take_while(0.., is_modifier).parse_next(input)?
    };
    Ok(WrittenEvent {
        head: EventHead::Pmu { pmu: name, terms },
        modifiers: modifiers.to_owned(),
    })
}

/// A name, or a pattern for names of PMUs, with `*` and `?`.
fn head<'i>(input: &mut &'i str) -> ModalResult<&'i str> {
    let starts = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '*' | '?');
    let continues = move |c: char| starts(c) || matches!(c, '-' | '.');
    (one_of(starts), take_while(0.., continues))
        .take()
        .parse_next(input)
}

fn modifier_letters<'i>(input: &mut &'i str) -> ModalResult<&'i str> {
    take_while(1.., is_modifier)
        .context(expected("a modifier such as `u` or `k`"))
        .parse_next(input)
}

fn is_modifier(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// A parser that skips spaces around what `parser` parses.
fn spaced<'i, O>(
    parser: impl Parser<&'i str, O, winnow::error::ErrMode<winnow::error::ContextError>>,
) -> impl Parser<&'i str, O, winnow::error::ErrMode<winnow::error::ContextError>> {
    delimited(multispace0, parser, multispace0)
}

impl ListItem {
    /// Its events.
    pub(super) fn events(&self) -> &[WrittenEvent] {
        match self {
            Self::Event(event) => std::slice::from_ref(event),
            Self::Group { events, .. } => events,
        }
    }

    /// A copy with `name` in place of the PMU `pattern`.
    pub(super) fn with_pmu(&self, pattern: &str, name: &str) -> Self {
        let mut item = self.clone();
        let events = match &mut item {
            Self::Event(event) => std::slice::from_mut(event),
            Self::Group { events, .. } => events,
        };
        for event in events {
            if let EventHead::Pmu { pmu, .. } = &mut event.head
                && pmu == pattern
            {
                name.clone_into(pmu);
            }
        }
        item
    }
}

impl fmt::Display for ListItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(event) => event.fmt(f),
            Self::Group { events, modifiers } => {
                f.write_str("{")?;
                join(f, events)?;
                f.write_str("}")?;
                if modifiers.is_empty() {
                    Ok(())
                } else {
                    write!(f, ":{modifiers}")
                }
            }
        }
    }
}

impl fmt::Display for WrittenEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { head, modifiers } = self;
        match head {
            EventHead::Name(_) if !modifiers.is_empty() => write!(f, "{head}:{modifiers}"),
            EventHead::Name(_) | EventHead::Pmu { .. } => write!(f, "{head}{modifiers}"),
        }
    }
}

impl fmt::Display for EventHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Pmu { pmu, terms } => {
                write!(f, "{pmu}/")?;
                join(f, terms)?;
                f.write_str("/")
            }
        }
    }
}

fn join<T: fmt::Display>(f: &mut fmt::Formatter<'_>, parts: &[T]) -> fmt::Result {
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            f.write_str(",")?;
        }
        part.fmt(f)?;
    }
    Ok(())
}
