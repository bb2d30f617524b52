//! The letters behind an event: the privilege levels in which it counts.

use std::fmt;

use super::{Exclude, error::EventError};

/// The requested privilege levels; if none is requested, all are counted, as in perf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Modifiers {
    user: bool,
    kernel: bool,
    hv: bool,
}

impl Modifiers {
    /// Parses the `letters` after the event or group `event`.
    pub(super) fn parse(letters: &str, event: &dyn fmt::Display) -> Result<Self, EventError> {
        // Names of kernel tracepoints have an underscore; modifiers have none.
        if letters.contains('_') {
            return Err(EventError::Tracepoint {
                text: event.to_string(),
            });
        }
        let mut modifiers = Self::default();
        for letter in letters.chars() {
            match letter {
                'u' => modifiers.user = true,
                'k' => modifiers.kernel = true,
                'h' => modifiers.hv = true,
                _ => return Err(refuse(letter, event)),
            }
        }
        Ok(modifiers)
    }

    /// The union with `other`: perf adds the group's modifiers to each event's own.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            user: self.user | other.user,
            kernel: self.kernel | other.kernel,
            hv: self.hv | other.hv,
        }
    }

    /// Whether no level was requested, so that all are counted.
    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// The bits of `perf_event_attr`: if levels were requested, all other levels are excluded.
    pub(super) fn exclude(self) -> Exclude {
        let is_limited = !self.is_empty();
        Exclude {
            user: is_limited && !self.user,
            kernel: is_limited && !self.kernel,
            hv: is_limited && !self.hv,
        }
    }
}

/// Prints the letters, in the order `ukh`.
impl fmt::Display for Modifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, kernel, hv } = *self;
        for (is_set, letter) in [(user, "u"), (kernel, "k"), (hv, "h")] {
            if is_set {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

fn refuse(letter: char, event: &dyn fmt::Display) -> EventError {
    let why = match letter {
        'p' => "asks for precise samples, and only sampled events have them (--sample)",
        'P' => "asks for the most precise samples that there are, which pmuscope does not look for",
        'S' => "asks for the counts of a group in each sample, which pmuscope does not take",
        'G' | 'H' => "splits guest from host, which pmuscope does not",
        'I' => "leaves the idle task out, and pmuscope shows it as a row of its own",
        'D' | 'e' | 'W' => {
            "changes how the kernel schedules a group, and pmuscope does that itself"
        }
        'b' | 'R' | 'X' => "is perf's own and means nothing to pmuscope",
        _ => "is not known",
    };
    EventError::Modifier {
        letter,
        event: event.to_string(),
        why,
    }
}
