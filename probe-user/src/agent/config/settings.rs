//! Settings by name, from wherever they come.

use std::{borrow::Cow, ffi::OsString};

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeTable, DeValue, ValueDeserializer},
};

use super::{Config, Mistake, PREFIX, keys};
use crate::event::Nearest;

/// A value for a key, and where it was set.
pub(super) struct Setting<'a> {
    pub(super) place: String,
    /// As `http.listen`.
    pub(super) key: String,
    value: Spanned<DeValue<'a>>,
}

impl Setting<'_> {
    /// Sets it.
    pub(super) fn apply(self, config: &mut Config) -> Result<(), Mistake> {
        let Self { place, key, value } = self;
        let result = match keys::of(&key) {
            Some(known) => (known.set)(config, Given(value)),
            None => {
                let nearest = Nearest::to(&key, keys::names());
                Err(format!("there is no such key; the nearest are {nearest}"))
            }
        };
        result.map_err(|what| Mistake {
            place,
            key: Some(key),
            what,
        })
    }
}

/// The value of a setting.
pub(super) struct Given<'a>(Spanned<DeValue<'a>>);

impl Given<'_> {
    /// As a type.
    pub(super) fn to<T: DeserializeOwned>(&self) -> Result<T, String> {
        let value = ValueDeserializer::from(self.0.clone());
        T::deserialize(value).map_err(|error| error.message().to_owned())
    }

    /// A list of texts, or one text alone.
    pub(super) fn texts(&self) -> Result<Vec<String>, String> {
        match self.0.get_ref() {
            DeValue::String(text) => Ok(vec![text.to_string()]),
            _ => self.to(),
        }
    }
}

/// Those of a file's text.
pub(super) fn of_file<'a>(
    file: &str,
    text: &'a str,
    mistakes: &mut Vec<Mistake>,
) -> Vec<Setting<'a>> {
    let place = |at: usize| {
        let before = text.as_bytes().get(..at).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("{file}:{line}")
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        mistakes.push(Mistake {
            place: place(error.span().map_or(0, |span| span.start)),
            key: None,
            what: error.message().to_owned(),
        });
    }
    // The table is in the order of names, and mistakes are told in that of lines.
    let mut settings = Vec::new();
    for (name, value) in table.into_inner() {
        let at = name.span().start;
        let name = name.into_inner();
        match value.get_ref() {
            DeValue::Table(_) if keys::is_section(&name) => {
                let DeValue::Table(section) = value.into_inner() else {
                    continue;
                };
                settings.extend(section.into_iter().map(|(key, value)| {
                    let at = key.span().start;
                    let key = format!("{name}.{}", key.get_ref());
                    (at, key, value)
                }));
            }
            _ => settings.push((at, name.into_owned(), value)),
        }
    }
    settings.sort_by_key(|(at, ..)| *at);
    let settings = settings.into_iter().map(|(at, key, value)| Setting {
        place: place(at),
        key,
        value,
    });
    settings.collect()
}

/// Those of environment variables. Other variables are not ours.
pub(super) fn of_environment<'a>(
    variables: &'a [(OsString, OsString)],
    mistakes: &mut Vec<Mistake>,
) -> Vec<Setting<'a>> {
    let mut settings = Vec::new();
    for (variable, value) in variables {
        let variable = variable.to_string_lossy();
        let Some(name) = variable.strip_prefix(PREFIX) else {
            continue;
        };
        let place = format!("variable {variable}");
        let Some(value) = value.to_str() else {
            mistakes.push(Mistake {
                place,
                key: None,
                what: "is not valid UTF-8".to_owned(),
            });
            continue;
        };
        let wanted = name.to_ascii_lowercase();
        let known = keys::names().find(|key| key.replace('.', "_") == wanted);
        settings.push(Setting {
            place,
            key: known.map_or(wanted, str::to_owned),
            value: of_text(value),
        });
    }
    settings
}

/// Those of flags.
pub(super) fn of_flags<'a>(
    flags: &'a [(&'static str, &'static str, String)],
) -> impl Iterator<Item = Setting<'a>> {
    flags.iter().map(|(flag, key, value)| Setting {
        place: (*flag).to_owned(),
        key: (*key).to_owned(),
        value: of_text(value),
    })
}

/// A text outside of a file: TOML where it is a list, a table, a number or a truth value, else the
/// text itself.
fn of_text(text: &str) -> Spanned<DeValue<'_>> {
    DeValue::parse(text)
        .unwrap_or_else(|_| Spanned::new(0..text.len(), DeValue::String(Cow::Borrowed(text))))
}
