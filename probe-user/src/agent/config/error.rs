//! Mistakes in a configuration.

use std::fmt;

/// All mistakes of a configuration, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub Vec<Mistake>);

/// A mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// File and line, variable, or flag.
    pub origin: String,
    /// The key, if the mistake concerns one.
    pub key: Option<String>,
    /// The mistake, and what would be valid.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "{}: {key}: {}", self.origin, self.what),
            None => write!(f, "{}: {}", self.origin, self.what),
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
