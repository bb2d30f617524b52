//! Writes a recording, in [`Parts`] of ten seconds. The current part is rewritten after each
//! window, at most once a second, so that a kill loses no earlier window.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};

use super::{
    columns::{COLUMNS, WindowRows, layout},
    key,
    row::{RowSource, WindowRow, for_each_row},
};
use crate::{
    derive::Report,
    join::View,
    plan::Plan,
    record::parts::{Layout, Parts, close, make_whole, with_path},
    snapshot::{Snapshot, recording},
    sys::clock::nanos,
};

/// Duration of a part.
const PART_DURATION: Duration = Duration::from_secs(10);

/// Minimum time between two rewrites of a part.
const MIN_REWRITE_INTERVAL: Duration = Duration::from_millis(900);

/// Metadata of a recording at its begin.
pub struct RecordingMetadata<'a> {
    /// The plan of what is counted.
    pub plan: &'a Plan,
    /// The view of its rows.
    pub view: &'a View,
    /// More metadata: keys and values.
    pub more: Vec<(String, String)>,
}

/// The file of a running recording.
pub struct RecordingFile {
    parts: Parts,
    layout: Layout,
    about: Vec<(String, String)>,
    rows: WindowRows,
    /// Number of windows so far.
    window: u32,
    /// Number of the current part.
    number: u32,
    /// When the current part was begun, and last written.
    since: Instant,
    written: Option<Instant>,
    /// Whether some rows are not in a part yet.
    has_unwritten: bool,
    whole: Vec<PathBuf>,
}

impl RecordingFile {
    /// Creates it, with the snapshot at the begin of the first window.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or parts of an earlier recording are in the way.
    pub fn begin(path: &Path, about: RecordingMetadata<'_>, first: &Snapshot) -> io::Result<Self> {
        let units: serde_json::Map<_, _> = COLUMNS
            .iter()
            .map(|column| (column.name.to_owned(), column.unit.into()))
            .collect();
        let mut known = about.more;
        known.extend([
            (key::HEAD.to_owned(), recording::head(about.plan)?),
            (key::VIEW.to_owned(), serde_json::to_string(about.view)?),
            (
                "units".to_owned(),
                serde_json::Value::Object(units).to_string(),
            ),
        ]);
        let mut file = Self {
            parts: Parts::begin(path)?,
            layout: layout()?,
            about: known,
            rows: WindowRows::new(),
            window: 0,
            number: 0,
            since: Instant::now(),
            written: None,
            has_unwritten: false,
            whole: Vec::new(),
        };
        file.add_snapshot(first)?;
        file.write()?;
        Ok(file)
    }

    /// Adds a window and the snapshot at its end.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub fn add(&mut self, report: &Report, snapshot: &Snapshot) -> io::Result<()> {
        self.window += 1;
        for_each_row(report, self.window, |row| self.rows.push(row));
        self.add_snapshot(snapshot)?;
        if self.since.elapsed() >= PART_DURATION {
            self.end_part()
        } else if self
            .written
            .is_none_or(|at| at.elapsed() >= MIN_REWRITE_INTERVAL)
        {
            self.write()
        } else {
            Ok(())
        }
    }

    /// Number of windows so far.
    #[must_use]
    pub fn windows(&self) -> u32 {
        self.window
    }

    /// Ends the recording.
    ///
    /// # Errors
    ///
    /// If it cannot be written: its parts are kept.
    pub fn finish(mut self) -> io::Result<()> {
        let ended = self.end_part();
        let windows = ("count.windows".to_owned(), self.window.to_string());
        self.about.push(windows);
        self.parts
            .finish(&self.whole, &self.layout, &self.about, ended)
    }

    /// Removes it: nothing was recorded.
    ///
    /// # Errors
    ///
    /// Where it cannot be removed.
    pub fn discard(self) -> io::Result<()> {
        self.parts.discard()
    }

    fn add_snapshot(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        serde_json::to_writer(&mut gzip, snapshot)?;
        gzip.flush()?;
        let bytes = gzip.finish()?;
        let at = nanos(snapshot.at);
        self.rows.push(&WindowRow {
            window: self.window,
            time: (at, at),
            source: RowSource::Snapshot(&bytes),
        });
        self.has_unwritten = true;
        Ok(())
    }

    /// Ends a part before its time.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn end_part(&mut self) -> io::Result<()> {
        if self.has_unwritten {
            self.write()?;
        }
        // The last rewrite has the whole part.
        self.rows = WindowRows::new();
        self.number += 1;
        self.since = Instant::now();
        Ok(())
    }

    /// Writes all rows of the current part, replacing its previous version.
    fn write(&mut self) -> io::Result<()> {
        let (path, file) = self.parts.open(&format!("{:06}", self.number))?;
        let written = self
            .write_into(file)
            .map_err(|error| with_path(&path, &error))
            .and_then(|()| make_whole(&path));
        if written.is_err() {
            // A leftover file would make the next attempt fail.
            let _ = fs::remove_file(&path);
        }
        let whole = written?;
        if self.whole.last() != Some(&whole) {
            self.whole.push(whole);
        }
        self.written = Some(Instant::now());
        self.has_unwritten = false;
        Ok(())
    }

    fn write_into(&self, file: File) -> io::Result<()> {
        let mut writer = self.layout.begin(file)?;
        self.rows.write(&mut writer)?;
        close(writer, &self.about)
    }
}
