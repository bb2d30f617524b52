//! The terms of an event, as in files of `events/` and between a user's slashes:
//! `event=0x3c,umask=1`.

use std::fmt;

use winnow::{
    ModalResult, Parser,
    combinator::{cut_err, eof, opt, preceded, terminated},
    error::{StrContext, StrContextValue},
    token::{one_of, take_while},
};

/// One term of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) name: String,
    /// `None` for a bare flag.
    pub(crate) value: Option<String>,
}

/// Parses the content of a file of `events/`: terms without a PMU.
pub(crate) fn parse_terms(text: &str) -> Option<Vec<Term>> {
    terminated(terms, eof).parse(text).ok()
}

/// Parses a number: decimal, or hexadecimal behind `0x`.
pub(crate) fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    // from_str_radix would accept a sign.
    let plain = digits.bytes().all(|b| b.is_ascii_alphanumeric());
    plain.then(|| u64::from_str_radix(digits, radix).ok())?
}

pub(crate) fn expected(what: &'static str) -> StrContext {
    StrContext::Expected(StrContextValue::Description(what))
}

/// Parses terms with commas between them.
pub(crate) fn terms(input: &mut &str) -> ModalResult<Vec<Term>> {
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

/// A name of a PMU, an event or a term. No name starts with `-` or `.`.
pub(crate) fn word<'i>(input: &mut &'i str) -> ModalResult<&'i str> {
    (
        one_of(|c: char| c.is_ascii_alphanumeric() || c == '_'),
        take_while(0.., |c: char| {
            c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
        }),
    )
        .take()
        .parse_next(input)
}

fn is_value(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !matches!(c, ',' | '/' | '=' | '{' | '}')
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
