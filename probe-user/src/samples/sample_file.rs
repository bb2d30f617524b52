//! Writes samples as a Parquet file, in [`Parts`] of ten seconds.

use std::{
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    LazyMetadata, Mapping, Sample, Sink,
    about::boot_time,
    columns::COLUMNS,
    parts::{self, ParquetWriter, Parts},
    rows::{self, SampleRows},
};

/// Time after which a round ends the open parts; rounds are 100 ms apart.
const PART_DURATION: Duration = Duration::from_millis(9_800);

/// The file of `--output`.
pub struct SampleFile {
    parts: Parts,
    about: Vec<(String, String)>,
    /// One writer for each decoding thread.
    threads: Vec<Mutex<ThreadWriter>>,
    state: Mutex<SharedState>,
}

/// Output state of one decoding thread.
struct ThreadWriter {
    number: usize,
    /// Rows that are not written yet.
    rows: SampleRows,
    /// Path and writer of the open part.
    open: Option<(PathBuf, ParquetWriter)>,
}

/// Output state that all threads share.
struct SharedState {
    /// When [`SampleFile::end_parts`] was last called, or the file was created.
    since: Instant,
    /// Sequence number of the open parts, which all threads share.
    number: u32,
    /// Whole parts, in the order of their numbers.
    whole: Vec<PathBuf>,
    mappings: Vec<Arc<Mapping>>,
    /// How many of `mappings` are in whole parts.
    written: usize,
}

impl SampleFile {
    /// Creates the file, for `threads` decoding threads. `about` is its metadata: keys and values.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or parts of an earlier recording exist.
    pub fn begin(
        path: &Path,
        threads: NonZeroUsize,
        mut about: Vec<(String, String)>,
    ) -> io::Result<Self> {
        let parts = Parts::begin(path)?;
        let units: serde_json::Map<_, _> = COLUMNS
            .iter()
            .map(|column| (column.name.to_owned(), column.unit.into()))
            .collect();
        about.push((
            "units".to_owned(),
            serde_json::Value::Object(units).to_string(),
        ));
        let boot_time = boot_time(&about).and_then(|time| i64::try_from(time).ok());
        let threads = (0..threads.get()).map(|number| {
            Mutex::new(ThreadWriter {
                number,
                rows: SampleRows::new(boot_time),
                open: None,
            })
        });
        Ok(Self {
            parts,
            about,
            threads: threads.collect(),
            state: Mutex::new(SharedState {
                since: Instant::now(),
                number: 0,
                whole: Vec::new(),
                mappings: Vec::new(),
                written: 0,
            }),
        })
    }

    /// Ends the file. `about` is metadata to add to what [`Self::begin`] was given.
    ///
    /// # Errors
    ///
    /// If it cannot be written; its parts are kept.
    pub fn finish(self, about: &[(String, String)]) -> io::Result<()> {
        // A part that cannot be ended is left out: the file is merged from the other parts.
        let ended = self.end_parts(&|| about.to_vec());
        let Self {
            parts,
            about: mut metadata,
            state,
            ..
        } = self;
        let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        metadata.extend_from_slice(about);
        metadata.push(mappings(&state.mappings));
        parts.finish(&state.whole, &rows::layout()?, &metadata, ended)
    }

    /// Removes the parts of a recording without samples, and the file if [`Self::begin`] created
    /// it.
    ///
    /// # Errors
    ///
    /// If they cannot be removed.
    pub fn discard(self) -> io::Result<()> {
        self.parts.discard()
    }

    fn state(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn thread(&self, number: usize) -> MutexGuard<'_, ThreadWriter> {
        let thread = &self.threads[number % self.threads.len()];
        thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the open parts. `news` is the metadata that is new since parts were last ended. On an
    /// error the other parts are still ended, and the first error is returned.
    ///
    /// # Errors
    ///
    /// If one of them cannot be written.
    pub fn end_parts(&self, news: LazyMetadata<'_>) -> io::Result<()> {
        let mut state = self.state();
        state.since = Instant::now();
        let mut numbers = 0..self.threads.len();
        // Without an open part, new metadata waits for the next one.
        if !numbers.any(|number| self.thread(number).open.is_some()) {
            return Ok(());
        }
        let mut about = self.about.clone();
        about.extend(news());
        about.push(mappings(&state.mappings[state.written..]));
        state.written = state.mappings.len();
        let mut result = Ok(());
        for number in 0..self.threads.len() {
            match self.thread(number).end(&about) {
                Ok(part) => state.whole.extend(part),
                Err(error) => result = result.and(Err(error)),
            }
        }
        state.since = Instant::now();
        state.number += 1;
        result
    }
}

impl ThreadWriter {
    /// The open part; opens one if needed.
    fn part(
        &mut self,
        parts: &Parts,
        number: u32,
    ) -> io::Result<(&mut SampleRows, &mut ParquetWriter)> {
        let Self { rows, open, .. } = self;
        let (_, writer) = match open {
            Some(open) => open,
            None => {
                let (path, file) = parts.open(&format!("{number:06}-{:02}", self.number))?;
                let writer = rows::begin(file).map_err(|error| parts::with_path(&path, &error))?;
                open.insert((path, writer))
            }
        };
        Ok((rows, writer))
    }

    /// Ends the open part. Returns its final path.
    fn end(&mut self, about: &[(String, String)]) -> io::Result<Option<PathBuf>> {
        let Some((path, mut writer)) = self.open.take() else {
            return Ok(None);
        };
        self.rows.write(&mut writer)?;
        parts::close(writer, about)?;
        parts::make_whole(&path).map(Some)
    }
}

impl Sink for SampleFile {
    fn samples(&self, thread: usize, samples: &[Sample]) -> io::Result<()> {
        // Locks the shared state before the thread's, as `end_parts` does.
        let number = self.state().number;
        let mut thread = self.thread(thread);
        let (rows, writer) = thread.part(&self.parts, number)?;
        rows.add(samples, writer)
    }

    fn mapping(&self, mapping: &Arc<Mapping>) {
        self.state().mappings.push(Arc::clone(mapping));
    }

    fn round(&self, news: LazyMetadata<'_>) -> io::Result<()> {
        if self.state().since.elapsed() < PART_DURATION {
            return Ok(());
        }
        self.end_parts(news)
    }
}

/// Metadata with the mappings, by which readers name addresses.
fn mappings(mappings: &[Arc<Mapping>]) -> (String, String) {
    let mappings: Vec<&Mapping> = mappings.iter().map(|mapping| &**mapping).collect();
    let text = serde_json::to_string(&mappings).unwrap_or_default();
    ("mappings".to_owned(), text)
}
