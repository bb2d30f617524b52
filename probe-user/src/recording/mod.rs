//! Recordings of whole runs, in one Parquet file: the values of every window as rows for other
//! programs, and the snapshots. A [`Replay`] recomputes windows from the snapshots, also with
//! another view.
//!
//! docs/recordings.md describes the file.

mod columns;
mod file;
mod marks;
mod read;
mod replay;
mod row;
mod samples;
#[cfg(test)]
mod tests;

pub use self::{
    file::{RecordingFile, RecordingMetadata},
    read::{ReadError, Recording, Snapshots},
    replay::Replay,
    samples::{SampleReader, SampleRow, TextIndex},
};

/// Metadata keys that a replay needs, without the prefix.
mod key {
    /// The first line of the JSON codec: format and plan.
    pub(super) const HEAD: &str = "recording";
    /// The view of the recording, as JSON of a [`View`](crate::join::View).
    pub(super) const VIEW: &str = "view";
}
