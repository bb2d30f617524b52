//! Writes a recording, in [`Parts`] of ten seconds. The part that is not full is written again
//! after each window, at most once a second, so that a kill leaves all windows before it.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};

use super::{
    columns::{COLUMNS, Rows, layout},
    key,
    row::{Of, Row, rows},
};
use crate::{
    derive::Report,
    join::View,
    plan::Plan,
    record::parts::{Layout, Parts, at, end, make_whole},
    snapshot::{Snapshot, recording},
    sys::clock::nanos,
};

/// How long a part is added to.
const PART: Duration = Duration::from_secs(10);

/// The least time between two writings of a part.
const WRITTEN: Duration = Duration::from_millis(900);

/// What is known of a recording when it begins.
pub struct About<'a> {
    /// What is counted.
    pub plan: &'a Plan,
    /// How rows are made.
    pub view: &'a View,
    /// More names and values for the metadata.
    pub more: Vec<(String, String)>,
}

/// The file of a recording that is being made.
pub struct RecordingFile {
    parts: Parts,
    layout: Layout,
    about: Vec<(String, String)>,
    rows: Rows,
    /// Windows so far.
    window: u32,
    /// Of the part that is added to.
    number: u32,
    /// When that part was begun, and written.
    since: Instant,
    written: Option<Instant>,
    /// Whether rows wait that no part has.
    waiting: bool,
    whole: Vec<PathBuf>,
}

impl RecordingFile {
    /// Begins it with the snapshot that begins the first window.
    ///
    /// # Errors
    ///
    /// Where it cannot be written, or where parts of an earlier recording are in the way.
    pub fn begin(path: &Path, about: About<'_>, first: &Snapshot) -> io::Result<Self> {
        let units = COLUMNS.iter();
        let units: serde_json::Map<_, _> = units
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
            rows: Rows::new(),
            window: 0,
            number: 0,
            since: Instant::now(),
            written: None,
            waiting: false,
            whole: Vec::new(),
        };
        file.add_snapshot(first)?;
        file.write()?;
        Ok(file)
    }

    /// Adds a window, and the snapshot at its end.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub fn add(&mut self, report: &Report, snapshot: &Snapshot) -> io::Result<()> {
        self.window += 1;
        for row in rows(report, self.window) {
            self.rows.push(&row);
        }
        self.add_snapshot(snapshot)?;
        if self.since.elapsed() >= PART {
            self.end_part()
        } else if self.written.is_none_or(|at| at.elapsed() >= WRITTEN) {
            self.write()
        } else {
            Ok(())
        }
    }

    /// Windows so far.
    #[must_use]
    pub fn windows(&self) -> u32 {
        self.window
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// Where it cannot be written: then its parts are still there.
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
        self.rows.push(&Row {
            window: self.window,
            time: (at, at),
            of: Of::Snapshot(&bytes),
        });
        self.waiting = true;
        Ok(())
    }

    /// Ends a part before its time.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn end_part(&mut self) -> io::Result<()> {
        if self.waiting {
            self.write()?;
        }
        // What was written last is the whole part.
        self.rows = Rows::new();
        self.number += 1;
        self.since = Instant::now();
        Ok(())
    }

    /// Writes the rows that wait as the part, in place of what was written of it before.
    fn write(&mut self) -> io::Result<()> {
        let (path, file) = self.parts.open(&format!("{:06}", self.number))?;
        let written = self.layout.begin(file).and_then(|mut writer| {
            self.rows.write(&mut writer)?;
            end(writer, &self.about)
        });
        written.map_err(|error| at(&path, &error))?;
        let whole = make_whole(&path)?;
        if self.whole.last() != Some(&whole) {
            self.whole.push(whole);
        }
        self.written = Some(Instant::now());
        self.waiting = false;
        Ok(())
    }
}
