//! Settings by key, from a file, environment variables and flags.

use std::{borrow::Cow, ffi::OsString};

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeTable, DeValue, ValueDeserializer},
};

use super::{Config, Mistake, PREFIX, keys};
use crate::event::Nearest;

/// A value for a key, and where it was set.
pub(super) struct ConfigSetting<'a> {
    pub(super) origin: String,
    /// For example `http.listen`.
    pub(super) key: String,
    value: Spanned<DeValue<'a>>,
}

impl ConfigSetting<'_> {
    /// Applies the setting to the configuration.
    pub(super) fn apply(self, config: &mut Config) -> Result<(), Mistake> {
        let Self { origin, key, value } = self;
        let result = match keys::find(&key) {
            Some(config_key) => (config_key.set)(config, &SettingValue(value)),
            None => {
                let nearest = Nearest::to(&key, keys::names());
                Err(format!("there is no such key; the nearest are {nearest}"))
            }
        };
        result.map_err(|what| Mistake {
            origin,
            key: Some(key),
            what,
        })
    }
}

/// The value of a setting.
pub(super) struct SettingValue<'a>(Spanned<DeValue<'a>>);

impl SettingValue<'_> {
    /// Converts the value to a type.
    pub(super) fn to<T: DeserializeOwned>(&self) -> Result<T, String> {
        let value = ValueDeserializer::from(self.0.clone());
        T::deserialize(value).map_err(|error| error.message().to_owned())
    }

    /// A list of strings; a single string is a list of one.
    pub(super) fn texts(&self) -> Result<Vec<String>, String> {
        match self.0.get_ref() {
            DeValue::String(text) => Ok(vec![text.to_string()]),
            _ => self.to(),
        }
    }
}

/// The settings in a file's text.
pub(super) fn from_file<'a>(
    file: &str,
    text: &'a str,
    mistakes: &mut Vec<Mistake>,
) -> Vec<ConfigSetting<'a>> {
    let origin = |offset: usize| {
        let before = text.as_bytes().get(..offset).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("{file}:{line}")
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        mistakes.push(Mistake {
            origin: origin(error.span().map_or(0, |span| span.start)),
            key: None,
            what: error.message().to_owned(),
        });
    }
    // The table is sorted by name. Mistakes are reported in the order of lines, so settings are
    // sorted by their offset in the text.
    let mut settings = Vec::new();
    for (name, value) in table.into_inner() {
        let offset = name.span().start;
        let name = name.into_inner();
        match value.get_ref() {
            DeValue::Table(_) if keys::is_section(&name) => {
                let DeValue::Table(section) = value.into_inner() else {
                    continue;
                };
                settings.extend(section.into_iter().map(|(key, value)| {
                    let offset = key.span().start;
                    let key = format!("{name}.{}", key.get_ref());
                    (offset, key, value)
                }));
            }
            _ => settings.push((offset, name.into_owned(), value)),
        }
    }
    settings.sort_by_key(|(offset, ..)| *offset);
    settings
        .into_iter()
        .map(|(offset, key, value)| ConfigSetting {
            origin: origin(offset),
            key,
            value,
        })
        .collect()
}

/// The settings in environment variables. Variables without the prefix are ignored.
pub(super) fn from_environment<'a>(
    variables: &'a [(OsString, OsString)],
    mistakes: &mut Vec<Mistake>,
) -> Vec<ConfigSetting<'a>> {
    let mut settings = Vec::new();
    for (variable, value) in variables {
        let variable = variable.to_string_lossy();
        let Some(name) = variable.strip_prefix(PREFIX) else {
            continue;
        };
        let origin = format!("variable {variable}");
        let Some(value) = value.to_str() else {
            mistakes.push(Mistake {
                origin,
                key: None,
                what: "is not valid UTF-8".to_owned(),
            });
            continue;
        };
        let lower_case = name.to_ascii_lowercase();
        let matching_key = keys::names().find(|key| key.replace('.', "_") == lower_case);
        settings.push(ConfigSetting {
            origin,
            key: matching_key.map_or(lower_case, str::to_owned),
            value: parse_value(value),
        });
    }
    settings
}

/// The settings in flags.
pub(super) fn from_flags<'a>(
    flags: &'a [(&'static str, &'static str, String)],
) -> impl Iterator<Item = ConfigSetting<'a>> {
    flags.iter().map(|(flag, key, value)| ConfigSetting {
        origin: (*flag).to_owned(),
        key: (*key).to_owned(),
        value: parse_value(value),
    })
}

/// Parses the value of a variable or flag: as TOML if it is a TOML value, such as a list, a number
/// or a quoted string, else as the string itself.
fn parse_value(text: &str) -> Spanned<DeValue<'_>> {
    DeValue::parse(text)
        .unwrap_or_else(|_| Spanned::new(0..text.len(), DeValue::String(Cow::Borrowed(text))))
}
