//! What is wrong with a configuration.

use std::fmt;

/// Everything that is wrong, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub Vec<Mistake>);

/// A mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// File and line, variable, or flag.
    pub place: String,
    /// The key, where there is one.
    pub key: Option<String>,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "{}: {key}: {}", self.place, self.what),
            None => write!(f, "{}: {}", self.place, self.what),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigError {}
