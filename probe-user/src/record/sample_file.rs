//! The samples as a Parquet file, which is written in [`Parts`] of ten seconds.

use std::{
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    Mapping, News, Sample, Sink,
    columns::COLUMNS,
    parts::{self, Parts, Writer},
    rows::{self, Rows},
};

/// The longest time that a part is open. A round ends it, and those are 100 ms apart.
const PART: Duration = Duration::from_millis(9_800);

/// The file of `--output`.
pub struct SampleFile {
    parts: Parts,
    about: Vec<(String, String)>,
    /// One for each thread that decodes.
    threads: Vec<Mutex<Thread>>,
    state: Mutex<State>,
}

/// What one thread writes.
struct Thread {
    number: usize,
    rows: Rows,
    open: Option<(PathBuf, Writer)>,
}

/// What all threads share.
struct State {
    /// When the parts that are open were begun.
    since: Instant,
    /// The number of these parts.
    number: u32,
    /// Whole parts, in the order of their numbers.
    whole: Vec<PathBuf>,
    mappings: Vec<Arc<Mapping>>,
    /// How many of them are in whole parts.
    written: usize,
}

impl SampleFile {
    /// Begins the file, written by this many threads, with what is known of the recording: names
    /// and values.
    ///
    /// # Errors
    ///
    /// Where it cannot be written, or where parts of an earlier recording are in the way.
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
        let threads = (0..threads.get()).map(|number| {
            Mutex::new(Thread {
                number,
                rows: Rows::new(),
                open: None,
            })
        });
        Ok(Self {
            parts,
            about,
            threads: threads.collect(),
            state: Mutex::new(State {
                since: Instant::now(),
                number: 0,
                whole: Vec::new(),
                mappings: Vec::new(),
                written: 0,
            }),
        })
    }

    /// Ends it, with what is known of the recording by now.
    ///
    /// # Errors
    ///
    /// Where it cannot be written: then its parts are still there.
    pub fn finish(self, about: &[(String, String)]) -> io::Result<()> {
        // A part that cannot be ended is not among the whole ones; the others become the file.
        let ended = self.end_parts(&|| about.to_vec());
        let Self {
            parts,
            about: mut known,
            state,
            ..
        } = self;
        let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        known.extend_from_slice(about);
        known.push(mappings(&state.mappings));
        parts.finish(&state.whole, &rows::layout()?, &known, ended)
    }

    /// Removes it: nothing was recorded.
    ///
    /// # Errors
    ///
    /// Where it cannot be removed.
    pub fn discard(self) -> io::Result<()> {
        self.parts.discard()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn thread(&self, number: usize) -> MutexGuard<'_, Thread> {
        let thread = &self.threads[number % self.threads.len()];
        thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the open parts whole, with metadata that came since the last ones. The first error is
    /// given, and ends none of the others.
    ///
    /// # Errors
    ///
    /// Where one of them cannot be written.
    pub fn end_parts(&self, news: News<'_>) -> io::Result<()> {
        let mut state = self.state();
        state.since = Instant::now();
        let mut numbers = 0..self.threads.len();
        // What is new stays so until there is a part to tell it.
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

impl Thread {
    /// The open part; a new one where there is none.
    fn part(&mut self, parts: &Parts, number: u32) -> io::Result<(&mut Rows, &mut Writer)> {
        let Self { rows, open, .. } = self;
        let (_, writer) = match open {
            Some(open) => open,
            None => {
                let (path, file) = parts.open(&format!("{number:06}-{:02}", self.number))?;
                let writer = rows::begin(file).map_err(|error| parts::at(&path, &error))?;
                open.insert((path, writer))
            }
        };
        Ok((rows, writer))
    }

    /// Makes the open part whole, and says where it is then.
    fn end(&mut self, about: &[(String, String)]) -> io::Result<Option<PathBuf>> {
        let Some((path, mut writer)) = self.open.take() else {
            return Ok(None);
        };
        self.rows.write(&mut writer)?;
        parts::end(writer, about)?;
        parts::make_whole(&path).map(Some)
    }
}

impl Sink for SampleFile {
    fn samples(&self, thread: usize, samples: &[Sample]) -> io::Result<()> {
        // Before the thread's: the end of a part takes both in this order.
        let number = self.state().number;
        let mut thread = self.thread(thread);
        let (rows, writer) = thread.part(&self.parts, number)?;
        rows.add(samples, writer)
    }

    fn mapping(&self, mapping: &Arc<Mapping>) {
        self.state().mappings.push(Arc::clone(mapping));
    }

    fn round(&self, news: News<'_>) -> io::Result<()> {
        if self.state().since.elapsed() < PART {
            return Ok(());
        }
        self.end_parts(news)
    }
}

/// The metadata that names addresses.
fn mappings(mappings: &[Arc<Mapping>]) -> (String, String) {
    let mappings: Vec<&Mapping> = mappings.iter().map(|mapping| &**mapping).collect();
    let text = serde_json::to_string(&mappings).unwrap_or_default();
    ("mappings".to_owned(), text)
}
