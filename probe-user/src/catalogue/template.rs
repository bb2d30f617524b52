//! Names of PMUs with numbers in them, and encodings with placeholders.

use std::collections::BTreeMap;

/// The names that the instances of a PMU have in sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Number(Number),
    /// The core PMU, by any name.
    Core,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
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
            return Ok(Self(vec![Part::Core]));
        }
        let mut parts = Vec::new();
        for piece in pieces(text) {
            parts.push(match piece {
                Piece::Text(text) => Part::Text(text.to_owned()),
                Piece::Placeholder("socket") => Part::Number(Number::Socket),
                Piece::Placeholder("rc") => Part::Number(Number::RootComplex),
                Piece::Placeholder("unit") => Part::Number(Number::Unit),
                Piece::Placeholder("address") => Part::Number(Number::Address),
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
            [Part::Number(_), ..] => Err("it begins with a number"),
            parts => {
                let number = |part: &Part| matches!(part, Part::Number(_));
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
        self.0 == [Part::Core]
    }

    /// Whether its name tells the socket, so that each PMU has one reader.
    #[must_use]
    pub fn has_socket(&self) -> bool {
        self.0.contains(&Part::Number(Number::Socket))
    }

    /// The numbers in `name`; `None` where it is no instance of this PMU. A core PMU has no name
    /// of its own, so it is no instance either.
    #[must_use]
    pub fn instance(&self, name: &str) -> Option<Instance> {
        let mut instance = Instance::default();
        let mut rest = name;
        for part in &self.0 {
            match part {
                Part::Core => return None,
                Part::Text(text) => rest = rest.strip_prefix(text.as_str())?,
                Part::Number(number) => {
                    let radix = if *number == Number::Address { 16 } else { 10 };
                    let end = rest.find(|c: char| !c.is_digit(radix));
                    let (digits, behind) = rest.split_at(end.unwrap_or(rest.len()));
                    let value = u64::from_str_radix(digits, radix).ok()?;
                    let short = u32::try_from(value).ok();
                    rest = behind;
                    match number {
                        Number::Socket => instance.socket = Some(short?),
                        Number::RootComplex => instance.root_complex = Some(short?),
                        Number::Unit => instance.unit = Some(short?),
                        Number::Address => instance.address = Some(value),
                    }
                }
            }
        }
        rest.is_empty().then_some(instance)
    }

    /// The names as a shell would match them, for sentences.
    #[must_use]
    pub fn glob(&self) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Number(_) | Part::Core => "*".to_owned(),
        };
        self.0.iter().map(part).collect()
    }

    /// Its text up to the first number: what tools print where they add up all instances.
    #[must_use]
    pub fn stem(&self) -> Option<&str> {
        match self.0.first() {
            Some(Part::Text(text)) => Some(text.trim_end_matches('_')),
            _ => None,
        }
    }
}

/// As written in the file.
impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for part in &self.0 {
            f.write_str(match part {
                Part::Text(text) => text,
                Part::Number(Number::Socket) => "{socket}",
                Part::Number(Number::RootComplex) => "{rc}",
                Part::Number(Number::Unit) => "{unit}",
                Part::Number(Number::Address) => "{address}",
                Part::Core => "{core}",
            })?;
        }
        Ok(())
    }
}

/// The first placeholder of an encoding that is neither general nor a filter of the PMU.
pub(super) fn unknown(encoding: &str, defaults: &BTreeMap<String, u64>) -> Option<String> {
    let placeholders = pieces(encoding)
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::Placeholder(name) => Some(name),
            Piece::Text(_) => None,
        });
    let known = |name: &str| ["pmu", "peer", "part_mask"].contains(&name);
    placeholders
        .filter(|name| !known(name) && !defaults.contains_key(*name))
        .map(str::to_owned)
        .next()
}

/// `text` with its placeholders replaced; one that `value` does not know stays.
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
