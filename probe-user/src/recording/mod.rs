//! Recordings of whole runs: what every window shows, as rows of a Parquet file that other programs
//! read, and in the same file the snapshots, from which a replay computes it again, also
//! differently.
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
    file::{About, RecordingFile},
    read::{ReadError, Recording, Snapshots},
    replay::Replay,
    samples::{SampleRow, Samples, Text},
};

/// The keys of the metadata that a replay needs, without what all begin with.
mod key {
    /// The first line of the JSON codec: format and plan.
    pub(super) const HEAD: &str = "recording";
    /// How rows were made, as JSON of a [`View`](crate::join::View).
    pub(super) const VIEW: &str = "view";
}
