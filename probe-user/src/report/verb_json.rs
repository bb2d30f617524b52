//! Reads the JSON of other verbs for the report page: one object with a format version.

use serde::{Deserialize, de::DeserializeOwned};

use crate::samples::{CALIBRATED_FORMAT, Calibrated};

/// Why the output of a verb cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum VerbJsonError {
    /// Not output of the verb.
    #[error("it is no output of `pmuscope {verb} --format json`: {error}")]
    Foreign {
        /// The verb.
        verb: &'static str,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// Output of another format version.
    #[error("its format is {format}, and {known} is read: measure it again with this pmuscope")]
    Format {
        /// The file's version.
        format: u32,
        /// The version that is read.
        known: u32,
    },
    /// It has no settings.
    #[error("it has no settings: calibrate again")]
    Empty,
}

/// Reads a verb's JSON of format version `known`.
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

/// Reads the output of `mem calibrate --format json`.
///
/// # Errors
///
/// If it is something else, or of another version.
pub fn calibrated(text: &str) -> Result<Calibrated, VerbJsonError> {
    let calibrated: Calibrated = versioned(text, "mem calibrate", CALIBRATED_FORMAT)?;
    // This also refuses an index of the recommended setting that is out of range.
    match calibrated.recommended < calibrated.settings.len() {
        true => Ok(calibrated),
        false => Err(VerbJsonError::Empty),
    }
}
