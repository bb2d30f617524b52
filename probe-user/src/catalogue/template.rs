//! Patterns of PMU names, and event encodings with placeholders.

use std::collections::BTreeMap;

/// The names that the instances of a PMU have in sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<PatternPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternPart {
    Text(String),
    Number(PatternNumber),
    /// The core PMU, by any name.
    Core,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatternNumber {
    Socket,
    RootComplex,
    Unit,
    /// In hexadecimal.
    Address,
}

/// The numbers in the name of one PMU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// `{socket}`
    pub socket: Option<u32>,
    /// `{rc}`
    pub root_complex: Option<u32>,
    /// `{unit}`
    pub unit: Option<u32>,
    /// `{address}`
    pub address: Option<u64>,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "{core}" {
            return Ok(Self(vec![PatternPart::Core]));
        }
        let mut parts = Vec::new();
        for piece in pieces(text) {
            parts.push(match piece {
                Piece::Text(text) => PatternPart::Text(text.to_owned()),
                Piece::Placeholder("socket") => PatternPart::Number(PatternNumber::Socket),
                Piece::Placeholder("rc") => PatternPart::Number(PatternNumber::RootComplex),
                Piece::Placeholder("unit") => PatternPart::Number(PatternNumber::Unit),
                Piece::Placeholder("address") => PatternPart::Number(PatternNumber::Address),
                Piece::Placeholder("core") => return Err("{core} stands alone"),
                Piece::Placeholder(_) => {
                    return Err(
                        "its placeholders are {socket}, {rc}, {unit}, {address} and {core}",
                    );
                }
            });
        }
        match &parts[..] {
            [] => Err("it is empty"),
            [PatternPart::Number(_), ..] => Err("it begins with a number"),
            parts => {
                let number = |part: &PatternPart| matches!(part, PatternPart::Number(_));
                let adjacent = parts.windows(2).any(|pair| pair.iter().all(number));
                if adjacent {
                    Err("two numbers in a row cannot be told apart")
                } else {
                    Ok(Self(parts.to_vec()))
                }
            }
        }
    }

    /// Whether it is the core PMU.
    #[must_use]
    pub fn is_core(&self) -> bool {
        self.0 == [PatternPart::Core]
    }

    /// Whether the name has the socket's number, so that one CPU reads the PMU.
    #[must_use]
    pub fn has_socket(&self) -> bool {
        self.0.contains(&PatternPart::Number(PatternNumber::Socket))
    }

    /// The numbers in `name`; `None` if it is no instance of this PMU. The pattern of the core PMU
    /// has no instances: its name is not fixed.
    #[must_use]
    pub fn instance(&self, name: &str) -> Option<Instance> {
        let mut instance = Instance::default();
        let mut rest = name;
        for part in &self.0 {
            match part {
                PatternPart::Core => return None,
                PatternPart::Text(text) => rest = rest.strip_prefix(text.as_str())?,
                PatternPart::Number(number) => {
                    let radix = if *number == PatternNumber::Address {
                        16
                    } else {
                        10
                    };
                    let end = rest.find(|c: char| !c.is_digit(radix));
                    let (digits, after) = rest.split_at(end.unwrap_or(rest.len()));
                    let value = u64::from_str_radix(digits, radix).ok()?;
                    let value_u32 = u32::try_from(value).ok();
                    rest = after;
                    match number {
                        PatternNumber::Socket => instance.socket = Some(value_u32?),
                        PatternNumber::RootComplex => instance.root_complex = Some(value_u32?),
                        PatternNumber::Unit => instance.unit = Some(value_u32?),
                        PatternNumber::Address => instance.address = Some(value),
                    }
                }
            }
        }
        rest.is_empty().then_some(instance)
    }

    /// The pattern as a shell glob, for messages.
    #[must_use]
    pub fn glob(&self) -> String {
        let part = |part: &PatternPart| match part {
            PatternPart::Text(text) => text.clone(),
            PatternPart::Number(_) | PatternPart::Core => "*".to_owned(),
        };
        self.0.iter().map(part).collect()
    }

    /// The text before the first number: the name that tools print for the sum of all instances.
    #[must_use]
    pub fn stem(&self) -> Option<&str> {
        match self.0.first() {
            Some(PatternPart::Text(text)) => Some(text.trim_end_matches('_')),
            _ => None,
        }
    }
}

/// As written in the file.
impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for part in &self.0 {
            f.write_str(match part {
                PatternPart::Text(text) => text,
                PatternPart::Number(PatternNumber::Socket) => "{socket}",
                PatternPart::Number(PatternNumber::RootComplex) => "{rc}",
                PatternPart::Number(PatternNumber::Unit) => "{unit}",
                PatternPart::Number(PatternNumber::Address) => "{address}",
                PatternPart::Core => "{core}",
            })?;
        }
        Ok(())
    }
}

/// The first placeholder of an encoding that is neither valid for all PMUs nor one of the PMU's
/// `defaults`; `None` if all are known.
pub(super) fn unknown_placeholder(
    encoding: &str,
    defaults: &BTreeMap<String, u64>,
) -> Option<String> {
    let placeholders = pieces(encoding)
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::Placeholder(name) => Some(name),
            Piece::Text(_) => None,
        });
    let is_general = |name: &str| ["pmu", "peer", "part_mask"].contains(&name);
    placeholders
        .filter(|name| !is_general(name) && !defaults.contains_key(*name))
        .map(str::to_owned)
        .next()
}

/// `text` with its placeholders replaced; those without a `value` stay.
pub(crate) fn fill(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let piece = |piece: Piece<'_>| match piece {
        Piece::Text(text) => text.to_owned(),
        Piece::Placeholder(name) => value(name).unwrap_or_else(|| format!("{{{name}}}")),
    };
    pieces(text).into_iter().map(piece).collect()
}

enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

fn pieces(mut text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    while let Some((before, after)) = text.split_once('{') {
        let Some((name, rest)) = after.split_once('}') else {
            break;
        };
        if !before.is_empty() {
            pieces.push(Piece::Text(before));
        }
        pieces.push(Piece::Placeholder(name));
        text = rest;
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    pieces
}
