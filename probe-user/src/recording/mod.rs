//! Recordings of whole runs: a file with the snapshots of a session, and everything that a
//! [`Replay`] needs to compute the same windows again, also with another view.
//!
//! A recording is lines of JSON, each compressed by gzip on its own, so that whole lines survive a
//! kill and a checksum detects a damaged line. The first line has the format's version and the
//! [`RecordingHead`], each further line a [`Snapshot`](crate::snapshot::Snapshot), and the last
//! line the number of windows. Uncompressed lines are read too.

mod lines;
mod read;
mod replay;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::{
    read::{ReadError, Recording},
    replay::Replay,
    write::RecordingFile,
};
use crate::{join::View, plan::Plan};

/// The format that this program writes, and the only one that it reads. To be raised with every
/// change after which older recordings would be misread or unreadable.
pub const FORMAT: u32 = 6;

/// The contents of a recording's first line, except format and version.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecordingHead {
    /// The machine and the command line: keys and values.
    pub about: BTreeMap<String, String>,
    /// The view of the recorded run.
    pub view: View,
    /// What was counted where, with the definitions of the metrics.
    pub plan: Plan,
}

/// Identifies a recording: the first fields of its first line.
#[derive(Serialize, Deserialize)]
struct RecordingMark {
    /// [`FORMAT`].
    pmuscope_recording: u32,
    /// Version of the program that wrote it.
    version: String,
}

/// The content of the last line.
#[derive(Serialize, Deserialize)]
struct RecordingEnd {
    windows: u32,
}

/// How the first line starts.
const MARK: &[u8] = b"{\"pmuscope_recording\":";

/// How the last line starts.
const END: &[u8] = b"{\"windows\":";
