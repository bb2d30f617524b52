//! What other verbs wrote as JSON, for the page: one object with the version of its format.

use serde::{Deserialize, de::DeserializeOwned};

use crate::record::{CALIBRATED_FORMAT, Calibrated};

/// Why the output of a verb cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum VerbJsonError {
    /// Not what the verb writes.
    #[error("it is no output of `pmuscope {verb} --format json`: {error}")]
    Foreign {
        /// The verb.
        verb: &'static str,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// Of another version of this program.
    #[error("its format is {format}, and {known} is read: measure it again with this pmuscope")]
    Format {
        /// The file's.
        format: u32,
        /// This program's.
        known: u32,
    },
    /// Nothing was tried.
    #[error("it has no settings: calibrate again")]
    Empty,
}

/// Reads what a verb wrote, in this version of its format.
pub(super) fn versioned<T: DeserializeOwned>(
    text: &str,
    verb: &'static str,
    known: u32,
) -> Result<T, VerbJsonError> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let foreign = |error| VerbJsonError::Foreign { verb, error };
    let Version { format } = serde_json::from_str(text).map_err(foreign)?;
    if format != known {
        return Err(VerbJsonError::Format { format, known });
    }
    serde_json::from_str(text).map_err(foreign)
}

/// Reads what `mem calibrate --format json` wrote.
///
/// # Errors
///
/// Where it is something else, or of another version.
pub fn calibrated(text: &str) -> Result<Calibrated, VerbJsonError> {
    let calibrated: Calibrated = versioned(text, "mem calibrate", CALIBRATED_FORMAT)?;
    // The one that is recommended is one of them.
    match calibrated.recommended < calibrated.settings.len() {
        true => Ok(calibrated),
        false => Err(VerbJsonError::Empty),
    }
}
