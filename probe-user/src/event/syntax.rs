//! The text of `-e` to a syntax tree, and back.
//!
//! The tree keeps every name, value and modifier as it was written: what they mean depends on the
//! machine and is decided in `resolve`. Printing a tree gives text that parses to the same tree.

use std::fmt;

use winnow::{
    ModalResult, Parser,
    ascii::multispace0,
    combinator::{cut_err, delimited, eof, opt, preceded, terminated},
    error::{StrContext, StrContextValue},
    token::{one_of, take_while},
};

use super::error::EventError;

/// One element of the event list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// An event on its own.
    Event(EventSpec),
    /// `{a,b}:mods`.
    Group {
        /// At least one.
        events: Vec<EventSpec>,
        /// The letters behind the brace, empty where there are none.
        modifiers: String,
    },
}

/// One event as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventSpec {
    pub(super) head: Head,
    /// The letters behind `:` or the closing `/`, empty where there are none.
    pub(super) modifiers: String,
}

/// What names the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// `cycles`, `inst_retired`, `r1a`.
    Name(String),
    /// `pmu/term,term=value/`.
    Pmu { pmu: String, terms: Vec<Term> },
}

/// One term between the slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) name: String,
    /// `None` for a bare flag.
    pub(super) value: Option<String>,
}

/// Parses the whole list.
pub(super) fn parse(text: &str) -> Result<Vec<Item>, EventError> {
    if text.trim().is_empty() {
        return Err(EventError::Empty);
    }
    list.parse(text).map_err(|error| EventError::Syntax {
        text: text.to_owned(),
        column: text[..error.char_span().start].chars().count() + 1,
        expected: expectation(error.inner()),
    })
}

/// Parses what a file of `events/` holds: terms without the PMU around them.
pub(super) fn parse_terms(text: &str) -> Option<Vec<Term>> {
    terminated(terms, eof).parse(text).ok()
}

/// The number a value stands for: decimal, or hexadecimal behind `0x`.
pub(super) fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    // from_str_radix would take a sign.
    let plain = digits.bytes().all(|b| b.is_ascii_alphanumeric());
    plain.then(|| u64::from_str_radix(digits, radix).ok())?
}

/// The innermost expectation: the context closest to where reading stopped.
fn expectation(error: &winnow::error::ContextError) -> String {
    let expected = error.context().find_map(|context| match context {
        StrContext::Expected(value) => Some(value.to_string()),
        _ => None,
    });
    expected.unwrap_or_else(|| "an event".to_owned())
}

fn expected(what: &'static str) -> StrContext {
    StrContext::Expected(StrContextValue::Description(what))
}

fn list(input: &mut &str) -> ModalResult<Vec<Item>> {
    let mut items = vec![spaced(item).parse_next(input)?];
    while opt(',').parse_next(input)?.is_some() {
        items.push(cut_err(spaced(item)).parse_next(input)?);
    }
    eof.context(expected("`,` or the end of the list"))
        .parse_next(input)?;
    Ok(items)
}

fn item(input: &mut &str) -> ModalResult<Item> {
    if opt('{').parse_next(input)?.is_some() {
        cut_err(group_rest).parse_next(input)
    } else {
        event
            .map(Item::Event)
            .context(expected("an event name, `pmu/term/` or `{`"))
            .parse_next(input)
    }
}

fn group_rest(input: &mut &str) -> ModalResult<Item> {
    let member = "an event name or `pmu/term/`";
    let mut events = vec![spaced(event).context(expected(member)).parse_next(input)?];
    while opt(',').parse_next(input)?.is_some() {
        events.push(spaced(event).context(expected(member)).parse_next(input)?);
    }
    '}'.context(expected("`,` or `}`")).parse_next(input)?;
    let modifiers = opt(preceded(':', cut_err(modifier_letters))).parse_next(input)?;
    Ok(Item::Group {
        events,
        modifiers: modifiers.unwrap_or_default().to_owned(),
    })
}

fn event(input: &mut &str) -> ModalResult<EventSpec> {
    let name = word.parse_next(input)?.to_owned();
    if opt('/').parse_next(input)?.is_none() {
        let modifiers = opt(preceded(':', cut_err(modifier_letters))).parse_next(input)?;
        return Ok(EventSpec {
            head: Head::Name(name),
            modifiers: modifiers.unwrap_or_default().to_owned(),
        });
    }
    let terms = cut_err(terms).parse_next(input)?;
    cut_err('/')
        .context(expected("`,` or the closing `/`"))
        .parse_next(input)?;
    // perf writes `pmu/term/u`; the colon of the other form is an easy slip that means the same.
    let modifiers = if opt(':').parse_next(input)?.is_some() {
        cut_err(modifier_letters).parse_next(input)?
    } else {
        take_while(0.., is_modifier).parse_next(input)?
    };
    Ok(EventSpec {
        head: Head::Pmu { pmu: name, terms },
        modifiers: modifiers.to_owned(),
    })
}

fn terms(input: &mut &str) -> ModalResult<Vec<Term>> {
    let mut terms = vec![term.parse_next(input)?];
    while opt(',').parse_next(input)?.is_some() {
        terms.push(cut_err(term).parse_next(input)?);
    }
    Ok(terms)
}

fn term(input: &mut &str) -> ModalResult<Term> {
    let name = word
        .context(expected("a term or an event of the PMU"))
        .parse_next(input)?;
    let value = opt(preceded('=', cut_err(value))).parse_next(input)?;
    Ok(Term {
        name: name.to_owned(),
        value: value.map(str::to_owned),
    })
}

fn value<'i>(input: &mut &'i str) -> ModalResult<&'i str> {
    take_while(1.., is_value)
        .context(expected("a value"))
        .parse_next(input)
}

fn modifier_letters<'i>(input: &mut &'i str) -> ModalResult<&'i str> {
    take_while(1.., is_modifier)
        .context(expected("a modifier such as `u` or `k`"))
        .parse_next(input)
}

/// A name of a PMU, an event or a term. None of them starts with `-` or `.`.
fn word<'i>(input: &mut &'i str) -> ModalResult<&'i str> {
    (
        one_of(|c: char| c.is_ascii_alphanumeric() || c == '_'),
        take_while(0.., |c: char| {
            c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
        }),
    )
        .take()
        .parse_next(input)
}

fn is_modifier(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_value(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !matches!(c, ',' | '/' | '=' | '{' | '}')
}

fn spaced<'i, O>(
    parser: impl Parser<&'i str, O, winnow::error::ErrMode<winnow::error::ContextError>>,
) -> impl Parser<&'i str, O, winnow::error::ErrMode<winnow::error::ContextError>> {
    delimited(multispace0, parser, multispace0)
}

impl fmt::Display for Item {
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

impl fmt::Display for EventSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { head, modifiers } = self;
        match head {
            Head::Name(_) if !modifiers.is_empty() => write!(f, "{head}:{modifiers}"),
            Head::Name(_) | Head::Pmu { .. } => write!(f, "{head}{modifiers}"),
        }
    }
}

impl fmt::Display for Head {
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

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match &self.value {
            Some(value) => write!(f, "={value}"),
            None => Ok(()),
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
